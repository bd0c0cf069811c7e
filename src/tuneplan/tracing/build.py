"""The real model of a job, on the device without memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.recipe import (
    AttentionKernel,
    DType,
    Method,
    Objective,
    Quantization,
    QuantizationType,
    TrainingRecipe,
)
from tuneplan.tracing.adapters import adapt, torch_dtype
from tuneplan.tracing.checkpointing import enable_checkpointing
from tuneplan.tracing.configuration import build_config
from tuneplan.tracing.device import fake_device
from tuneplan.tracing.flash import SOURCE as FLASH_SOURCE
from tuneplan.tracing.gptq import GPTQ_SOURCE, GptqLinear
from tuneplan.tracing.kbit import (
    EIGHT_BIT_SOURCE,
    FOUR_BIT_SOURCE,
    Linear4bit,
    Linear8bitLt,
    QuantizedLinear,
)
from tuneplan.tracing.litgpt_code import build_litgpt, note_litgpt, prepare_litgpt
from tuneplan.tracing.older import dtype_word, loads_by_name, without_initialization
from tuneplan.tracing.recorder import Recorder

_IMPLEMENTATIONS = {
    AttentionKernel.EAGER: "eager",
    AttentionKernel.FLASH_2: "flash_attention_2",
    AttentionKernel.FLASH_3: "flash_attention_2",  # keeps the same tensors
}


def build_model(
    architecture: ModelArchitecture,
    recipe: TrainingRecipe,
    *,
    own_code: bool = True,
    sharded: bool = False,
) -> torch.nn.Module:
    """The model's real modules, on the host, without initialisation.

    Args:
        architecture: The model.
        recipe: Says dtypes and attention.
        own_code: The code of another program than transformers may be taken, where there is some.
        sharded: FSDP will shard it.
    """
    own = build_litgpt(architecture, recipe, sharded=sharded) if own_code else None
    if isinstance(own, torch.nn.Module):
        return own
    config = build_config(architecture)
    config.use_cache = recipe.keeps_key_values
    if recipe.unties_head:
        config.tie_word_embeddings = False
    trained = recipe.method is Method.FULL
    dtype = torch_dtype(recipe.trainable_dtype if trained else recipe.frozen_dtype)
    with without_initialization():
        model = _auto_class(architecture, recipe, config).from_config(
            config,
            **{dtype_word(): dtype},
            attn_implementation=_IMPLEMENTATIONS.get(recipe.attention, "sdpa"),
        )
    model.tie_weights()
    assert isinstance(model, torch.nn.Module)  # noqa: S101 - what transformers returns
    return model


def _auto_class(architecture: ModelArchitecture, recipe: TrainingRecipe, config: Any) -> Any:
    """Which head the model has: one number a sequence for reward models, else the vocabulary."""
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    if recipe.objective is Objective.RM:
        config.num_labels = 1
        config.get_text_config().pad_token_id = 0
        return AutoModelForSequenceClassification
    if architecture.vision is not None:
        from transformers import AutoModelForImageTextToText

        if type(config) in AutoModelForImageTextToText._model_mapping:  # noqa: SLF001
            return AutoModelForImageTextToText
    return AutoModelForCausalLM


def load_reference(
    architecture: ModelArchitecture, recipe: TrainingRecipe, recorder: Recorder
) -> torch.nn.Module | None:
    """The frozen copy that a preference objective compares with, where the recipe has one."""
    if not recipe.reference_model:
        return None
    model = build_model(architecture, recipe)
    _materialize(model, recipe, recorder)
    dtype = torch_dtype(recipe.frozen_dtype)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(False)
        parameter.data = parameter.data.to(dtype)
        recorder.name(parameter, "reference_weight", name)
    return model.eval()


def load_model(
    model: torch.nn.Module,
    architecture: ModelArchitecture,
    recipe: TrainingRecipe,
    recorder: Recorder,
    peft_config: Any = None,
) -> torch.nn.Module:
    """Put weights on the device as loading does, then prepare them and add adapters.

    Args:
        model: As ``build_model`` made it.
        architecture: Names the layers' classes and adapted parts.
        recipe: Says dtypes, quantisation and adapters.
        recorder: Watches.
        peft_config: A configuration of PEFT's own, for methods that no recipe names.
    """
    stand_ins = recorder.recording.stand_ins
    if note_litgpt(model, recipe, recorder.recording):
        return _load_litgpt(model, recipe, recorder)
    if recipe.kernels.model_code != "transformers":
        said = f"transformers' in place of {recipe.kernels.model_code}'s"
        stand_ins.setdefault("model code", said)
        _one_kernel_activations(model)
    if recipe.attention in (AttentionKernel.FLASH_2, AttentionKernel.FLASH_3):
        stand_ins["flash attention"] = FLASH_SOURCE
    if recipe.quantization is not None:
        kind, source = _quantized_linear(recipe.quantization)
        stand_ins["quantized linears"] = source
        _replace_linears(model, recipe.quantization, kind)
    _materialize(model, recipe, recorder)
    _prepare(model, architecture, recipe)
    if recipe.quantization is not None and recipe.outer_dtype is DType.FLOAT32:
        # peft ``utils/other.py prepare_model_for_kbit_training``, from 0.20; who replays knows.
        recorder.recording.emptied.append(len(recorder.recording.events))
    if peft_config is not None or recipe.adapter is not None:
        model = adapt(model, architecture, recipe, peft_config)
    _choose_trained(model, architecture, recipe)
    enable_checkpointing(model, recipe, recorder.recording)
    _name_weights(model, recorder)
    return model


def _load_litgpt(
    model: torch.nn.Module, recipe: TrainingRecipe, recorder: Recorder
) -> torch.nn.Module:
    """LitGPT's own model; Fabric quantises every linear, the head's too."""
    if recipe.quantization is not None:
        kind, source = _quantized_linear(recipe.quantization)
        recorder.recording.stand_ins["quantized linears"] = source
        for module in model.modules():
            if type(module) is torch.nn.Linear:
                module.__class__ = kind
    _materialize(model, recipe, recorder)
    prepare_litgpt(model, recipe)
    _name_weights(model, recorder)
    return model


def _one_kernel_activations(model: torch.nn.Module) -> None:
    """PyTorch's GELU, which other programs call, for what transformers writes out in Python."""
    for module in model.modules():
        for name, child in list(module.named_children()):
            if type(child).__name__ in ("NewGELUActivation", "FastGELUActivation"):
                setattr(module, name, torch.nn.GELU(approximate="tanh"))


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

    Subclasses of ``nn.Linear`` (Falcon's, most routers) are left alone; by AutoGPTQ also sizes
    that are no multiples of 32.
    """
    from transformers.pytorch_utils import Conv1D

    even = 32 if kind is GptqLinear else 1

    head = _head_of(model)
    for module in list(model.modules()):
        for child in list(module.children()):
            if not isinstance(child, (torch.nn.Linear, Conv1D)):
                continue
            if child is head and not quantization.quantizes_head:
                continue
            if child.weight.shape[0] % even or child.weight.shape[1] % even:
                continue
            if type(child) is torch.nn.Linear:
                child.__class__ = kind
            elif isinstance(child, Conv1D):
                child.in_features, child.out_features = child.weight.shape
                child.__class__ = kind


def _materialize(model: torch.nn.Module, recipe: TrainingRecipe, recorder: Recorder) -> None:
    """Every weight and buffer made on the device.

    In the order of the modules, or by name where transformers 5 quantises as it loads.
    """
    device = fake_device()
    moved: dict[int, torch.nn.Parameter] = {}
    tensors = list(_tensors_of(model))
    if recipe.quantization is not None and loads_by_name():
        tensors.sort(key=lambda one: _by_number(one[0]))
    for name, module in tensors:
        leaf = name.rpartition(".")[2]
        if leaf in module._buffers:  # noqa: SLF001
            module._buffers[leaf] = module._buffers[leaf].to(device)  # type: ignore[union-attr] # noqa: SLF001
            continue
        parameter = module._parameters[leaf]  # noqa: SLF001
        if parameter is None or parameter.device == device:
            continue
        if isinstance(module, QuantizedLinear) and leaf == "weight":
            assert recipe.quantization is not None  # noqa: S101 - only then are there such layers
            module.quantize(recipe.quantization, device, parameter.dtype)
            module.compute_dtype = torch_dtype(recipe.compute_dtype)
            continue
        if id(parameter) not in moved:
            new = torch.empty_strided(
                parameter.shape, parameter.stride(), dtype=parameter.dtype, device=device
            )
            moved[id(parameter)] = torch.nn.Parameter(new)
        module._parameters[leaf] = moved[id(parameter)]  # noqa: SLF001
    del recorder


def _tensors_of(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Path of every parameter and buffer, each with its module; quantised weights come first."""
    for path, module in model.named_modules():
        leaves = [*module._parameters, *module._buffers]  # noqa: SLF001
        if isinstance(module, QuantizedLinear):
            leaves.sort(key=lambda leaf: leaf != "weight")
        for leaf in leaves:
            if module._parameters.get(leaf) is None and module._buffers.get(leaf) is None:  # noqa: SLF001
                continue
            yield f"{path}.{leaf}".lstrip("."), module


def _by_number(name: str) -> list[tuple[int, int, str]]:
    """Layer 2 before layer 10, numbers before words."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in name.split(".")]


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
    dtype = torch_dtype(recipe.trainable_dtype)
    for layer in layers[len(layers) - recipe.trained_layers :]:
        for parameter in layer.parameters():
            parameter.requires_grad_(True)
            parameter.data = parameter.data.to(dtype)


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
