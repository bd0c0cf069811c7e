"""The model of a pilot: random weights of its configuration, or those of a folder. Imports PyTorch.

Random weights are made where they are used: on the card, and quantised one matrix at a time, so
that nothing is downloaded and the host holds no copy.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from tuneplan.piloting.wire import PilotRequest
from tuneplan.spec.recipe import DType, Method, Quantization, TrainingRecipe
from tuneplan.tracing.adapters import adapt, torch_dtype
from tuneplan.tracing.configuration import build_config

_DEVIATION: Final = 0.02  # of random weights, as configurations have it (initializer_range)
_ATTENTION: Final = {
    "eager": "eager",
    "flash_attention_2": "flash_attention_2",
    "flash_attention_3": "flash_attention_3",
    "flex_attention": "flex_attention",
}


def build(request: PilotRequest, device: torch.device) -> Any:
    """The model with the adapters of the recipe.

    Args:
        request: Says which.
        device: Where random weights are made; a Trainer moves what is elsewhere.
    """
    recipe = request.model.recipe
    model = _loaded(request) if request.weights is not None else _random(request, device)
    model.config.use_cache = False
    if recipe.quantization is not None and recipe.outer_dtype is DType.FLOAT32:
        from peft import prepare_model_for_kbit_training

        model = prepare_model_for_kbit_training(
            model, use_gradient_checkpointing=recipe.gradient_checkpointing.value != "none"
        )
    if recipe.adapter is not None:
        model = adapt(model, request.model.architecture, recipe)
        if recipe.gradient_checkpointing.value != "none":
            model.enable_input_require_grads()
    if not isinstance(model, torch.nn.Module):
        msg = f"transformers gave a {type(model).__name__}"
        raise TypeError(msg)
    return model


def weights_dtype(recipe: TrainingRecipe) -> torch.dtype:
    """What the model is loaded in."""
    trained = recipe.method is Method.FULL
    return torch_dtype(recipe.trainable_dtype if trained else recipe.frozen_dtype)


def _settings(request: PilotRequest) -> dict[str, Any]:
    recipe = request.model.recipe
    return {
        "dtype": weights_dtype(recipe),
        "attn_implementation": _ATTENTION.get(recipe.attention.value, "sdpa"),
        "trust_remote_code": False,
    }


def _auto_class(request: PilotRequest) -> Any:
    import transformers

    pictured = request.model.architecture.vision is not None
    return (
        transformers.AutoModelForImageTextToText if pictured else transformers.AutoModelForCausalLM
    )


def _loaded(request: PilotRequest) -> Any:
    settings = _settings(request)
    quantization = request.model.recipe.quantization
    if quantization is not None:
        settings["quantization_config"] = _bitsandbytes_config(quantization)
    return _auto_class(request).from_pretrained(request.weights, **settings)


def _bitsandbytes_config(quantization: Quantization) -> Any:
    from transformers import BitsAndBytesConfig

    if quantization.bits == 8:
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=quantization.type.value,
        bnb_4bit_use_double_quant=quantization.double_quant,
        bnb_4bit_compute_dtype=torch_dtype(quantization.dequantized_dtype),
    )


def _random(request: PilotRequest, device: torch.device) -> Any:
    kind, settings = _auto_class(request), _settings(request)
    config = build_config(request.model.architecture)
    quantization = request.model.recipe.quantization
    if quantization is None:
        with device:
            return kind.from_config(config, **settings)
    from transformers.initialization import no_init_weights

    with no_init_weights():  # pages that nobody touches take no memory
        model = kind.from_config(config, **settings)
    _quantize(model, quantization, device)
    _declare_quantized(model, quantization)
    return model


def _declare_quantized(model: Any, quantization: Quantization) -> None:
    """What ``from_pretrained`` leaves on a model for its trainers to read."""
    from transformers.quantizers import AutoHfQuantizer

    config = _bitsandbytes_config(quantization)
    model.config.quantization_config = config
    model.hf_quantizer = AutoHfQuantizer.from_config(config, pre_quantized=False)
    model.quantization_method = config.quant_method
    model.is_quantized = True
    model.is_loaded_in_4bit = quantization.bits == 4
    model.is_loaded_in_8bit = quantization.bits == 8


def _quantize(model: Any, quantization: Quantization, device: torch.device) -> None:
    """Random weights on the device; linears as ``replace_with_bnb_linear`` chooses them.

    Source: transformers ``integrations/bitsandbytes.py``: linears of the class itself, all but the
    output head.
    """
    import bitsandbytes

    head = model.get_output_embeddings()
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is torch.nn.Linear and child is not head:
                setattr(module, name, _linear(bitsandbytes, child, quantization, device))
    quantized = (bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt)
    made: dict[int, torch.nn.Parameter] = {}  # tied weights stay tied
    for module in model.modules():
        if isinstance(module, quantized):
            continue
        for name, parameter in list(module.named_parameters(recurse=False)):
            if id(parameter) not in made:
                values = _random_like(parameter, device)
                made[id(parameter)] = torch.nn.Parameter(values, requires_grad=False)
            setattr(module, name, made[id(parameter)])
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, buffer.to(device))


def _random_like(parameter: torch.Tensor, device: torch.device) -> torch.Tensor:
    values = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
    return values.fill_(1.0) if parameter.dim() == 1 else values.normal_(0.0, _DEVIATION)


def _linear(
    bitsandbytes: Any, child: torch.nn.Linear, quantization: Quantization, device: torch.device
) -> Any:
    shape, has_bias = (child.in_features, child.out_features), child.bias is not None
    values = _random_like(child.weight, device)
    layers = bitsandbytes.nn
    if quantization.bits == 8:
        made = layers.Linear8bitLt(*shape, has_bias, has_fp16_weights=False)
        made.weight = layers.Int8Params(values.cpu(), requires_grad=False, has_fp16_weights=False)
    else:
        made = layers.Linear4bit(
            *shape,
            has_bias,
            compute_dtype=torch_dtype(quantization.dequantized_dtype),
            compress_statistics=quantization.double_quant,
            quant_type=quantization.type.value,
        )
        made.weight = layers.Params4bit(
            values.cpu() if device.type == "cpu" else values,
            requires_grad=False,
            compress_statistics=quantization.double_quant,
            quant_type=quantization.type.value,
            module=made,
        )
    if has_bias:
        made.bias = torch.nn.Parameter(
            torch.zeros(shape[1], dtype=child.weight.dtype), requires_grad=False
        )
    return made.to(device)
