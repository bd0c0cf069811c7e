"""Answer.AI's fsdp_qlora ``train.py``: pure bf16 under FSDP, rank 64 on six linears."""

from __future__ import annotations

from dataclasses import replace

from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.hugging_face import hugging_face_defaults, hugging_face_stack
from tuneplan.frameworks.ledger import Default, by_rule, switched_on
from tuneplan.frameworks.settings import Defaults, Settings
from tuneplan.frameworks.stack import KbitPreparation, Stack
from tuneplan.frameworks.transformers import method_by_section
from tuneplan.language import message
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import Checkpointing, Method

_TRAIN = "AnswerDotAI/fsdp_qlora train.py"
_TARGETS = ("k_proj", "q_proj", "v_proj", "up_proj", "down_proj", "gate_proj")


def _method(context: Context) -> Default[Method]:
    return method_by_section(context, Method.QLORA, f"{_TRAIN}: train_type")


def _strategy(context: Context, method: Method) -> Default[Strategy]:
    del context, method
    reason = message("strategy_fsdp_qlora", "the script shards with FSDP")
    return by_rule(Strategy.FSDP, reason, _TRAIN)


def fsdp_qlora_defaults(context: Context, head: Head) -> Defaults:
    """Defaults of the script's command line (02586ac7)."""
    base = hugging_face_defaults(context, head)
    script = message("fsdp_qlora_script", "the script's default")
    return replace(
        base,
        dtype=by_rule("bfloat16", script, f"{_TRAIN}: precision bf16"),
        precision=by_rule("none", script, f"{_TRAIN}: precision bf16 opens no autocast"),
        max_length=by_rule(512, script, _TRAIN),
        padding=by_rule("longest", script, _TRAIN),
        per_device_train_batch_size=by_rule(1, script, _TRAIN),
        optim=by_rule("adamw_torch", script, _TRAIN),
        gradient_checkpointing=by_rule(Checkpointing.FULL, script, _TRAIN),
        use_reentrant=switched_on(script, _TRAIN),
        max_grad_norm=by_rule(0.3, script, _TRAIN),
        num_train_epochs=by_rule(1.0, script, _TRAIN),
        r=by_rule(64, script, _TRAIN),
        lora_alpha=by_rule(16.0, script, _TRAIN),
        lora_dropout=by_rule(0.1, script, _TRAIN),
        target_modules=by_rule(_TARGETS, script, _TRAIN),
        quantization_type=by_rule("nf4", script, _TRAIN),
    )


def fsdp_qlora_stack(context: Context, settings: Settings) -> Stack:
    """Adapters in the model's dtype, nothing upcast by anyone.

    The script sets its ``output`` to None after the optimizer step, so the logits live until then,
    and calls the model with ``attention_mask=None`` however its rows are padded.
    """
    none = message("kbit_fsdp_qlora", "nothing is upcast")
    same = message("fsdp_qlora_adapter", "adapters are set to the compute dtype")
    stack = hugging_face_stack(
        context,
        settings,
        kbit=by_rule(KbitPreparation.NONE, none, _TRAIN),
        adapter_dtype=by_rule(settings.dtype, same, _TRAIN),
    )
    return replace(
        stack,
        fsdp_upcast=None,
        gathers_for_checkpointing=False,
        accumulates_unsharded=False,
        keeps_outputs=True,
        masks_padding=False,
    )


FSDP_QLORA = Framework(
    name="fsdp_qlora",
    aliases=("answerdotai fsdp_qlora train.py", "fsdp-qlora", "answerdotai/fsdp_qlora"),
    package="fsdp_qlora",
    libraries=("torch", "transformers", "peft", "bitsandbytes"),
    method=_method,
    strategy=_strategy,
    defaults=fsdp_qlora_defaults,
    stack=fsdp_qlora_stack,
)
