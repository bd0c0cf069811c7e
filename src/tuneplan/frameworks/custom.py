"""Hand-written loops over transformers and PEFT, as measured rows have them.

``custom``: one step of forward, loss, backward and optimizer without autocast, the outputs bound
to a name until it ends (the loop of fitcheck-llm, whose rows are published).
``peft-loop``: PEFT's MetaMathQA comparison, whose outputs live until the next forward returns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from packaging.version import Version

from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.hugging_face import hugging_face_defaults, hugging_face_stack
from tuneplan.frameworks.ledger import Default, by_rule, switched_off
from tuneplan.frameworks.settings import Defaults, Settings
from tuneplan.frameworks.stack import Stack
from tuneplan.frameworks.transformers import ddp_by_default, method_by_section
from tuneplan.frameworks.versions import read_version
from tuneplan.language import message
from tuneplan.spec.recipe import Checkpointing, Method

_FITCHECK = "fitcheck-llm 0.3.1, its one-step runner"
_PEFT_LOOP = "peft method_comparison/MetaMathQA/run.py"
_EVERY_TENTH: Final = Version("0.18.1")


def _lora_by_default(context: Context) -> Default[Method]:
    return method_by_section(context, Method.LORA, _FITCHECK)


def custom_defaults(context: Context, head: Head) -> Defaults:
    """Half weights, no autocast, batch 1, PyTorch's AdamW, no clipping."""
    base = hugging_face_defaults(context, head)
    half = "bfloat16" if context.has_bf16 else "float16"
    loop = message("custom_loop", "the usual choice of a hand-written loop")
    return replace(
        base,
        dtype=by_rule(half, loop, _FITCHECK),
        precision=by_rule("none", message("no_autocast", "no autocast is opened"), _FITCHECK),
        per_device_train_batch_size=by_rule(1, loop, _FITCHECK),
        optim=by_rule("adamw_torch", loop, "torch.optim.AdamW"),
        gradient_checkpointing=by_rule(Checkpointing.FULL, loop, _FITCHECK),
        use_reentrant=switched_off(loop, _FITCHECK),
        max_grad_norm=by_rule(0.0, message("no_clipping", "nothing clips gradients"), _FITCHECK),
        quantization_type=by_rule("nf4", loop, "QLoRA paper"),
    )


def custom_stack(context: Context, settings: Settings) -> Stack:
    """The model's own code; keys repeated before SDPA by the loop's shim.

    ``out = model(...); out.loss.backward(); optimizer.step()``: the name ``out`` holds the logits
    until the step is over.
    """
    return replace(
        hugging_face_stack(context, settings),
        expand_key_value=True,
        fsdp_upcast=None,
        keeps_outputs=True,
        outputs_die_with_step=True,
    )


def peft_loop_defaults(context: Context, head: Head) -> Defaults:
    """Batch 4, length 768, bf16 weights, no checkpointing, gradients clipped at 1."""
    base = custom_defaults(context, head)
    reason = message("peft_loop", "a default of the comparison script")
    return replace(
        base,
        max_length=by_rule(768, reason, _PEFT_LOOP),
        per_device_train_batch_size=by_rule(4, reason, _PEFT_LOOP),
        gradient_checkpointing=by_rule(Checkpointing.NONE, reason, _PEFT_LOOP),
        max_grad_norm=by_rule(1.0, reason, _PEFT_LOOP),
    )


def peft_loop_stack(context: Context, settings: Settings) -> Stack:
    """As ``custom``, with the outputs of the last step still bound.

    Buckets of 20 batches run from long to short; the cache is emptied after each step, from
    November 2025 on after every tenth, before ``zero_grad`` (peft #2894, 0.18.1).
    """
    peft = read_version(context.software.versions.get("peft"))
    return replace(
        hugging_face_stack(context, settings),
        fsdp_upcast=None,
        keeps_outputs=True,
        longest_first=True,
        empties_cache_steps=10 if peft is None or peft >= _EVERY_TENTH else 1,
    )


CUSTOM = Framework(
    name="custom",
    aliases=(
        "transformers + peft (custom single step)",
        "transformers + peft",
        "plain loop",
    ),
    method=_lora_by_default,
    strategy=ddp_by_default,
    defaults=custom_defaults,
    stack=custom_stack,
)
PEFT_LOOP = Framework(
    name="peft-loop",
    aliases=("peft custom loop (transformers)", "peft custom loop", "peft"),
    method=_lora_by_default,
    strategy=ddp_by_default,
    defaults=peft_loop_defaults,
    stack=peft_loop_stack,
)
