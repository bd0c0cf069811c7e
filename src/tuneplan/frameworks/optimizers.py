"""Names of optimizers (TrainingArguments ``optim`` and their kin) and how each one runs."""

from __future__ import annotations

import difflib
from typing import Final

from tuneplan.errors import NotSupported
from tuneplan.frameworks.context import Software
from tuneplan.frameworks.ledger import Default, Ledger, by_rule
from tuneplan.frozen import dataclass
from tuneplan.language import message, sentence
from tuneplan.spec.recipe import DType, Optimizer, OptimizerFamily, OptimizerImplementation

_ADAMW = OptimizerFamily.ADAMW
_ADAMW_8BIT = OptimizerFamily.ADAMW_8BIT


@dataclass(frozen=True, slots=True)
class _Kind:
    """How an optimizer of a name runs.

    Attributes:
        implementation: None = PyTorch's own choice (foreach since torch 2.0).
        fp32_states: States are fp32 whatever the weights are (bitsandbytes' 32-bit optimizers).
    """

    family: OptimizerFamily
    implementation: OptimizerImplementation | None = OptimizerImplementation.FUSED
    paged: bool = False
    fp32_states: bool = False


_FUSED = OptimizerImplementation.FUSED
_LOOP = OptimizerImplementation.FOR_LOOP
_KINDS: Final = {
    "adamw_torch": _Kind(_ADAMW, None),
    "adamw_torch_fused": _Kind(_ADAMW, _FUSED),
    "adamw_torch_foreach": _Kind(_ADAMW, OptimizerImplementation.FOREACH),
    "adamw_hf": _Kind(_ADAMW, _LOOP),
    "adamw_apex_fused": _Kind(_ADAMW, _FUSED, fp32_states=True),
    "adamw_bnb_8bit": _Kind(_ADAMW_8BIT),
    "adamw_torch_8bit": _Kind(_ADAMW_8BIT, _LOOP),
    "paged_adamw_32bit": _Kind(_ADAMW, _FUSED, paged=True, fp32_states=True),
    "paged_adamw_8bit": _Kind(_ADAMW_8BIT, _FUSED, paged=True),
    "adafactor": _Kind(OptimizerFamily.ADAFACTOR, _LOOP, fp32_states=True),
    "lion_32bit": _Kind(OptimizerFamily.LION, _FUSED, fp32_states=True),
    "lion_8bit": _Kind(OptimizerFamily.LION_8BIT),
    "paged_lion_32bit": _Kind(OptimizerFamily.LION, _FUSED, paged=True, fp32_states=True),
    "paged_lion_8bit": _Kind(OptimizerFamily.LION_8BIT, _FUSED, paged=True),
    "sgd": _Kind(OptimizerFamily.SGD, None),
    "sgd_momentum": _Kind(OptimizerFamily.SGD_MOMENTUM, None),
    "muon": _Kind(OptimizerFamily.MUON, _LOOP),
    "decoupled_adamw": _Kind(_ADAMW, _LOOP),
    "deepspeed_cpu_adam": _Kind(_ADAMW, _FUSED, fp32_states=True),
}
_ALIASES: Final = {
    "adam": "adamw_torch",
    "adamw": "adamw_torch",
    "torch.adamw": "adamw_torch",
    "torch.optim.adamw": "adamw_torch",
    "torch adamw": "adamw_torch",
    "torch adamw (fused)": "adamw_torch_fused",
    "adamw (torch, fp32 states)": "adamw_torch",
    "adamw_torch (hf default)": "adamw_torch",
    "adam fp32 states": "adamw_torch",
    "adam bf16 states": "adamw_torch",
    "adamw_8bit": "adamw_bnb_8bit",
    "ao_adamw_8bit": "adamw_torch_8bit",
    "adamw8bit": "adamw_bnb_8bit",
    "bitsandbytes adamw8bit": "adamw_bnb_8bit",
    "torchao adamw8bit": "adamw_torch_8bit",
    "paged_adamw": "paged_adamw_32bit",
    "bnb.pagedadamw": "paged_adamw_32bit",
    "bnb.optim.pagedadamw": "paged_adamw_32bit",
    "bitsandbytes pagedadamw": "paged_adamw_32bit",
    "pagedadamw": "paged_adamw_32bit",
    "bnb.optim.pagedadamw8bit": "paged_adamw_8bit",
    "pagedadamw8bit": "paged_adamw_8bit",
    "lion": "lion_32bit",
    "paged_lion": "paged_lion_32bit",
    "cpu_adam": "deepspeed_cpu_adam",
    "deepspeedcpuadam": "deepspeed_cpu_adam",
}
_WITHOUT_FORMULA: Final = (
    "adamw_anyprecision",
    "adamw_torch_4bit",
    "adamw_torch_npu_fused",
    "adamw_torch_xla",
    "adamw_adan",
    "ademamix",
    "ademamix_8bit",
    "paged_ademamix_32bit",
    "paged_ademamix_8bit",
    "adalomo",
    "lomo",
    "grokadamw",
    "schedule_free_radam",
    "schedule_free_adamw",
    "schedule_free_sgd",
    "stable_adamw",
    "apollo_adamw",
    "apollo_adamw_layerwise",
    "galore_adamw",
    "galore_adamw_8bit",
    "galore_adafactor",
    "galore_adamw_layerwise",
    "galore_adamw_8bit_layerwise",
    "galore_adafactor_layerwise",
    "rmsprop",
    "rmsprop_bnb",
    "rmsprop_bnb_8bit",
    "rmsprop_bnb_32bit",
    "adagrad",
    "badam",
    "dist_muon",
    "lora-fa",
    "ao_adamw_4bit",
    "ao_adamw_fp8",
    "came_pytorch",
    "shampoo",
    "sophia",
    "optimi_adamw",
    "adopt_adamw",
    "dion",
    "sinkgd",
    "flash_adamw",
    "flash_adam",
    "flash_sgd",
    "flash_sgdw",
    "flash_lion",
    "q_galore_adamw8bit",
    "cpuoffloadoptimizer",
)


def canonical_optimizer(name: str, ledger: Ledger) -> str:
    """The Hugging Face name of an optimizer, whatever it is called.

    Raises:
        NotSupported: For optimizers that exist but have no formula here.
    """
    key = name.strip().lower()
    key = _ALIASES.get(key, key)
    if key in _KINDS:
        return key
    if key in _WITHOUT_FORMULA or key.startswith(("galore", "apollo")):
        raise NotSupported(
            message(
                "optimizer_without_formula",
                "optim {name!r} has no formula yet; nearest that has: {near}",
                name=name,
                near=", ".join(_near(key)),
            ),
            path="training.optim",
            value=name,
        )
    ledger.mistake(
        message("unknown_optimizer", "{name!r} is not an optimizer we know", name=name),
        "training.optim",
        name,
        near=_near(key),
        how_to_fix=message("use_optim_name", "write a name of TrainingArguments `optim`"),
    )
    return "adamw_torch"


def _near(key: str) -> tuple[str, ...]:
    close = difflib.get_close_matches(key, _KINDS, n=3, cutoff=0.4)
    return tuple(close) or ("adamw_torch", "adamw_torch_fused", "adamw_bnb_8bit")


def implementation_of(name: str, software: Software) -> Default[OptimizerImplementation]:
    """How the step of a (canonical) optimizer runs on CUDA with these libraries."""
    kind = _KINDS[name]
    if kind.implementation is not None:
        reason = message("optimizer_kernel", "{name} has one implementation", name=name)
        return by_rule(kind.implementation, reason, sentence("its own package"))
    fact = software.fact("torch", "foreach")
    reason = message(
        "optimizer_foreach",
        "PyTorch picks the multi-tensor step on CUDA since 2.0, a loop before",
    )
    value = OptimizerImplementation.FOREACH if fact.value == "true" else _LOOP
    return by_rule(value, reason, fact.citation, "--set training.optim=adamw_torch_fused")


def make_optimizer(
    name: str,
    *,
    implementation: OptimizerImplementation,
    weight_dtype: DType,
    master_weights: bool,
    in_backward: bool = False,
) -> Optimizer:
    """The optimizer with the dtype of its states.

    PyTorch keeps moments in the dtype of what it updates: the weight's, or fp32 where an fp32
    master copy is what the step sees. bitsandbytes' 32-bit optimizers keep fp32 always
    (``optim/optimizer.py get_state_buffer``).
    """
    kind = _KINDS[name]
    fp32 = kind.fp32_states or master_weights
    return Optimizer(
        name=name,
        family=kind.family,
        implementation=implementation,
        state_dtype=DType.FLOAT32 if fp32 else weight_dtype,
        paged=kind.paged,
        in_backward=in_backward,
        master_weights=master_weights,
        follows_weights=not fp32,
    )
