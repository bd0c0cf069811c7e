"""The real model of a job, on the device without memory."""

from __future__ import annotations

import re
from typing import Any

import torch

from tuneplan.errors import NotSupported
from tuneplan.estimation.roles import with_expert_targets
from tuneplan.language import message
from tuneplan.spec.architecture import ModelArchitecture, WeightKind
from tuneplan.spec.recipe import (
    Adapter,
    AttentionKernel,
    DType,
    Method,
    Quantization,
    QuantizationType,
    TrainingRecipe,
)
from tuneplan.tracing.checkpointing import enable_checkpointing
from tuneplan.tracing.device import fake_device
from tuneplan.tracing.gptq import GPTQ_SOURCE, GptqLinear
from tuneplan.tracing.kbit import (
    EIGHT_BIT_SOURCE,
    FOUR_BIT_SOURCE,
    Linear4bit,
    Linear8bitLt,
    QuantizedLinear,
)
from tuneplan.tracing.recorder import Recorder

_IMPLEMENTATIONS = {
    AttentionKernel.EAGER: "eager",
    AttentionKernel.FLASH_2: "flash_attention_2",
    AttentionKernel.FLASH_3: "flash_attention_3",
}


def torch_dtype(name: object) -> torch.dtype:
    """PyTorch's dtype of a name."""
    dtype = getattr(torch, str(name))
    assert isinstance(dtype, torch.dtype)  # noqa: S101 - names come from our own enum
    return dtype


def build_config(architecture: ModelArchitecture) -> Any:
    """The transformers configuration of a model.

    Raises:
        NotSupported: where this transformers has no code for the model type.
    """
    from transformers import CONFIG_MAPPING, AutoConfig

    fields = dict(architecture.hf_config)
    kind = fields.pop("model_type", architecture.model_type)
    if "auto_map" in fields or kind not in CONFIG_MAPPING:
        raise NotSupported(
            message(
                "trace_remote_code",
                "the code of {kind} models is not part of transformers; code from a model's own "
                "repository is never run",
                kind=kind,
            )
        )
    fields.pop("torch_dtype", None)
    fields.pop("dtype", None)
    config = AutoConfig.for_model(kind, **fields)
    config.use_cache = False
    return config


def build_model(architecture: ModelArchitecture, recipe: TrainingRecipe) -> torch.nn.Module:
    """The model's real modules, on the host, without initialisation."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.initialization import no_init_weights

    config = build_config(architecture)
    trained = recipe.method is Method.FULL
    dtype = torch_dtype(recipe.trainable_dtype if trained else recipe.frozen_dtype)
    auto = AutoModelForCausalLM
    if (
        architecture.vision is not None
        and type(config) in AutoModelForImageTextToText._model_mapping  # noqa: SLF001
    ):
        auto = AutoModelForImageTextToText
    with no_init_weights():
        model = auto.from_config(
            config,
            dtype=dtype,
            attn_implementation=_IMPLEMENTATIONS.get(recipe.attention, "sdpa"),
        )
    model.tie_weights()
    assert isinstance(model, torch.nn.Module)  # noqa: S101 - what transformers returns
    return model


def load_model(
    model: torch.nn.Module,
    architecture: ModelArchitecture,
    recipe: TrainingRecipe,
    recorder: Recorder,
) -> torch.nn.Module:
    """Put weights on the device as loading does, then prepare them and add adapters."""
    stand_ins = recorder.recording.stand_ins
    if recipe.kernels.model_code != "transformers":
        stand_ins["model code"] = f"transformers' in place of {recipe.kernels.model_code}'s"
    if recipe.quantization is not None:
        kind, source = _quantized_linear(recipe.quantization)
        stand_ins["quantized linears"] = source
        _replace_linears(model, recipe.quantization, kind)
    _materialize(model, recipe, recorder)
    _prepare(model, architecture, recipe)
    if recipe.quantization is not None and recipe.outer_dtype is DType.FLOAT32:
        # peft ``utils/other.py prepare_model_for_kbit_training``, from 0.20; who replays knows.
        recorder.recording.emptied.append(len(recorder.recording.events))
    if recipe.adapter is not None:
        model = _adapt(model, architecture, recipe)
    _choose_trained(model, architecture, recipe)
    enable_checkpointing(model, recipe, recorder.recording)
    _name_weights(model, recorder)
    return model


def _name_weights(model: torch.nn.Module, recorder: Recorder) -> None:
    for name, module in model.named_modules():
        if isinstance(module, QuantizedLinear):
            for constant in module.constants():
                recorder.name(constant, "quantization_constant", name)
    for name, parameter in model.named_parameters():
        kind = "trained_weight" if parameter.requires_grad else "frozen_weight"
        recorder.name(parameter, kind, name)


def _head_of(model: Any) -> torch.nn.Module | None:
    head = model.get_output_embeddings()
    return head if isinstance(head, torch.nn.Module) else None


def _quantized_linear(quantization: Quantization) -> tuple[type[QuantizedLinear], str]:
    """The stand-in for a kind of quantised linear, and its source."""
    if quantization.type is QuantizationType.GPTQ:
        return GptqLinear, GPTQ_SOURCE
    if quantization.bits == 8:
        return Linear8bitLt, EIGHT_BIT_SOURCE
    return Linear4bit, FOUR_BIT_SOURCE


def _replace_linears(
    model: torch.nn.Module, quantization: Quantization, kind: type[QuantizedLinear]
) -> None:
    """As ``transformers/integrations/bitsandbytes.py replace_with_bnb_linear`` (5.24) chooses.

    Subclasses of ``nn.Linear`` (Falcon's, most routers) are left alone.
    """
    from transformers.pytorch_utils import Conv1D

    head = _head_of(model)
    for module in list(model.modules()):
        for child in list(module.children()):
            if child is head and not quantization.quantizes_head:
                continue
            if type(child) is torch.nn.Linear:
                child.__class__ = kind
            elif isinstance(child, Conv1D):
                child.in_features, child.out_features = child.weight.shape
                child.__class__ = kind


def _materialize(model: torch.nn.Module, recipe: TrainingRecipe, recorder: Recorder) -> None:
    """Every weight and buffer made on the device, in the order of the modules."""
    device = fake_device()
    moved: dict[int, tuple[torch.nn.Parameter, object]] = {}
    for module in model.modules():
        if isinstance(module, QuantizedLinear):
            assert recipe.quantization is not None  # noqa: S101 - only then are there such layers
            module.quantize(recipe.quantization, device, module.weight.dtype)
            module.compute_dtype = torch_dtype(recipe.compute_dtype)
        for name, parameter in module._parameters.items():  # noqa: SLF001
            if parameter is None or parameter.device == device:
                continue
            if id(parameter) not in moved:
                new = torch.empty_strided(
                    parameter.shape, parameter.stride(), dtype=parameter.dtype, device=device
                )
                moved[id(parameter)] = (torch.nn.Parameter(new), parameter)
            module._parameters[name] = moved[id(parameter)][0]  # noqa: SLF001
        for name, buffer in module._buffers.items():  # noqa: SLF001
            if buffer is not None:
                module._buffers[name] = buffer.to(device)  # noqa: SLF001
    del recorder


def _prepare(
    model: torch.nn.Module, architecture: ModelArchitecture, recipe: TrainingRecipe
) -> None:
    """Casts that happen after loading: k-bit preparation and its kin, as the recipe says."""
    if recipe.method is Method.FULL:
        return
    outer, norm = torch_dtype(recipe.outer_dtype), torch_dtype(recipe.norm_dtype)
    quantized = recipe.quantization is not None
    layers = {group.layer.class_name for group in architecture.groups}
    inside = {
        id(parameter)
        for module in model.modules()
        if type(module).__name__ in layers
        for parameter in module.parameters()
    }
    packed = {id(one.weight) for one in model.modules() if isinstance(one, QuantizedLinear)}
    for name, parameter in model.named_parameters():
        if id(parameter) in packed:
            continue
        is_norm = "norm" in name.rsplit(".", 2)[-2] or ".ln" in name
        if is_norm:
            target = norm
        elif id(parameter) not in inside or quantized:
            target = outer
        else:
            target = parameter.dtype
        if parameter.dtype is not target:
            parameter.data = parameter.data.to(target)


def _adapt(
    model: torch.nn.Module, architecture: ModelArchitecture, recipe: TrainingRecipe
) -> torch.nn.Module:
    """PEFT's own adapters on the resolved targets."""
    from peft import LoraConfig, get_peft_model

    recipe = with_expert_targets(architecture, recipe)
    adapter = recipe.adapter
    assert adapter is not None  # noqa: S101 - the caller asks
    stacked = _stacked_targets(architecture, adapter)
    bits = recipe.quantization.bits if recipe.quantization else 16
    model.is_loaded_in_4bit = bits == 4  # type: ignore[assignment]
    model.is_loaded_in_8bit = bits == 8  # type: ignore[assignment]
    config = LoraConfig(
        r=adapter.r,
        lora_alpha=int(adapter.lora_alpha),
        lora_dropout=adapter.lora_dropout,
        use_rslora=adapter.use_rslora,
        use_dora=adapter.use_dora,
        target_modules=_targets(model, architecture, recipe),
        target_parameters=list(stacked) or None,
        rank_pattern={_ending(name): adapter.r * factor for name, factor in stacked.items()},
        alpha_pattern={
            _ending(name): int(adapter.lora_alpha) * factor for name, factor in stacked.items()
        },
        modules_to_save=list(adapter.modules_to_save) or None,
        task_type="CAUSAL_LM",
    )
    wide = torch_dtype(adapter.dtype) is torch.float32
    adapted = get_peft_model(model, config, autocast_adapter_dtype=wide)  # type: ignore[arg-type]
    for name, parameter in adapted.named_parameters():
        if "lora_" in name and parameter.dtype is not torch_dtype(adapter.dtype):
            parameter.data = parameter.data.to(torch_dtype(adapter.dtype))
    assert isinstance(adapted, torch.nn.Module)  # noqa: S101 - what PEFT returns
    return adapted


def _stacked_targets(architecture: ModelArchitecture, adapter: Adapter) -> dict[str, int]:
    """Parameters of routed experts and routers that are adapted, each with its rank's factor.

    PEFT turns the names of linears that were stacked into one parameter into that parameter's,
    and their ranks into the sum (``utils/transformers_weight_conversion.py``, 0.19 to 0.21).
    """
    routers = {
        weight.leaf for _, weight, _ in architecture.weights() if weight.kind is WeightKind.ROUTER
    }
    return {
        f"{name}.weight" if name in routers else name: factor
        for name, factor in adapter.expert_targets or ()
    }


def _ending(name: str) -> str:
    return rf".*\.{re.escape(name)}"


def _targets(
    model: torch.nn.Module, architecture: ModelArchitecture, recipe: TrainingRecipe
) -> list[str]:
    adapter = recipe.adapter
    assert adapter is not None  # noqa: S101 - the caller asks
    if architecture.vision is None or recipe.trains_vision:
        return list(adapter.target_modules)
    layers = {group.layer.class_name for group in architecture.groups}
    names = []
    for path, module in model.named_modules():
        if type(module).__name__ not in layers:
            continue
        for inner, part in module.named_modules():
            leaf = inner.rsplit(".", 1)[-1]
            if isinstance(part, torch.nn.Linear) and leaf in adapter.target_modules:
                names.append(f"{path}.{inner}")
    return names


def _choose_trained(
    model: torch.nn.Module, architecture: ModelArchitecture, recipe: TrainingRecipe
) -> None:
    if recipe.method.uses_adapter:
        return
    if recipe.method is Method.FULL:
        _freeze_vision(model, architecture, recipe)
        return
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    layers = decoder_layers(model, architecture)
    for layer in layers[len(layers) - recipe.trained_layers :]:
        for parameter in layer.parameters():
            parameter.requires_grad_(True)


def _freeze_vision(
    model: torch.nn.Module, architecture: ModelArchitecture, recipe: TrainingRecipe
) -> None:
    if architecture.vision is None or recipe.trains_vision:
        return
    for name, parameter in model.named_parameters():
        if any(part in name for part in ("visual", "vision", "projector")):
            parameter.requires_grad_(False)


def decoder_layers(
    model: torch.nn.Module, architecture: ModelArchitecture
) -> list[torch.nn.Module]:
    """The language model's layers, first to last."""
    names = {group.layer.class_name for group in architecture.groups}
    found = [module for module in model.modules() if type(module).__name__ in names]
    if not found:
        found = [
            module
            for module in model.modules()
            if type(module).__name__.endswith(("DecoderLayer", "Block", "Layer"))
        ]
    return found
