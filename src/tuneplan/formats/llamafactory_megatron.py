"""LLaMA-Factory on Megatron: the mcore adapter (``USE_MCA=1``) and Megatron-Bridge.

Source: LLaMA-Factory ``hparams/training_args.py``, ``extras/packages.py`` and
``examples/megatron*`` at ff6d4d12; what the keys mean: Megatron-LM ``training/arguments.py``.
"""

from __future__ import annotations

from typing import Final

from tuneplan.formats.keys import Keys
from tuneplan.formats.tables import Reasons
from tuneplan.language import message

_DEGREES: Final = {
    "tensor_model_parallel_size": "tensor",
    "pipeline_model_parallel_size": "pipeline",
    "context_parallel_size": "context",
    "expert_model_parallel_size": "expert",
}
_SIGNS: Final = (
    *("use_mca", "use_megatron_bridge", "tensor_model_parallel_size", "use_distributed_optimizer"),
    *("pipeline_model_parallel_size", "expert_model_parallel_size", "recompute_granularity"),
)
_OF_BRIDGE: Final = (
    *("use_megatron_bridge", "megatron_bridge_args", "mixed_precision", "use_packed_sequences"),
    *("export_hf_on_finish", "megatron_pretrained_checkpoint"),
)
IRRELEVANT: Final = Reasons(
    (
        message("mca_switches", "how Megatron is started, and what it overlaps or saves"),
        (
            *("use_mca", "use_megatron_bridge", "megatron_bridge_args", "export_hf_on_finish"),
            *("overlap_grad_reduce", "overlap_param_gather", "mixed_precision", "extra_config"),
            *("moe_token_dispatcher_type", "megatron_pretrained_checkpoint", "recompute_method"),
            *("recompute_num_layers", "tokenizer_type"),
        ),
    ),
)
NOT_CARRIED: Final = Reasons(
    (
        message("mca_usual", "what Megatron usually does there is counted"),
        (
            *("sequence_parallel", "moe_grouped_gemm", "bias_activation_fusion"),
            *("apply_rope_fusion", "masked_softmax_fusion", "cross_entropy_loss_fusion"),
            *("virtual_pipeline_model_parallel_size", "moe_*", "sequence_parallel_size"),
        ),
    ),
)


def is_megatron(keys: Keys) -> bool:
    """Whether Megatron trains: one of its own keys is on."""
    return any(keys.value(name) not in (None, "") and keys.value(name) is not False
               for name in _SIGNS)  # fmt: skip


def carry_megatron(keys: Keys) -> None:
    """Framework, degrees, optimizer states and recomputation."""
    bridge = any(keys.holds(name) for name in _OF_BRIDGE)
    keys.carrier.say("framework", "nemo" if bridge else "megatron")
    sign = next(name for name in _SIGNS if keys.value(name) not in (None, ""))
    text = message(
        "mca_trains",
        "{key}: Megatron trains, so its behaviour is counted and not LLaMA-Factory's own",
        key=sign,
    )
    keys.notice(sign, text)
    for name, axis in _DEGREES.items():
        degree = keys.whole(name)
        if degree is not None and degree < 1:
            keys.wrong(name, message("at_least_one", "{key} is at least 1", key=name))
        elif degree is not None:
            keys.carry(name, (f"parallelism.{axis}", degree))
    shared = keys.flag("use_distributed_optimizer")
    if shared is not None:
        keys.carry(
            "use_distributed_optimizer", ("parallelism.strategy", "zero1" if shared else "ddp")
        )
    packed = keys.flag("use_packed_sequences")
    if packed is not None:
        keys.carry("use_packed_sequences", ("training.packing", packed))
    again = keys.word("recompute_granularity", ("full", "selective"))
    if again is not None:
        kind: bool | str = True if again == "full" else again
        keys.carry("recompute_granularity", ("training.gradient_checkpointing", kind))
    keys.close(irrelevant=IRRELEVANT, not_carried=NOT_CARRIED)
