"""llm-foundry (Composer): MPT models in fp32 under FSDP, Triton attention before 2024."""

from __future__ import annotations

from dataclasses import replace

from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.hugging_face import chosen_loss, hugging_face_defaults
from tuneplan.frameworks.ledger import Default, by_rule, switched_off
from tuneplan.frameworks.settings import Defaults, Settings
from tuneplan.frameworks.stack import FsdpUpcast, KbitPreparation, Stack
from tuneplan.frameworks.transformers import method_by_section
from tuneplan.language import message
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import Checkpointing, DType, Kernels, Loss, LossPath, Method

_YAMLS = "llm-foundry scripts/train/yamls/pretrain/mpt-*.yaml"
_SUBMIT = "llm-foundry scripts/train/benchmarking/submit_benchmarks.py at b2a43a1 and 5e85bd6"


def _method(context: Context) -> Default[Method]:
    return method_by_section(context, Method.FULL, _YAMLS)


def _strategy(context: Context, method: Method) -> Default[Strategy]:
    del context, method
    reason = message("strategy_foundry", "its files shard with FSDP FULL_SHARD")
    return by_rule(Strategy.FSDP, reason, _YAMLS)


def foundry_defaults(context: Context, head: Head) -> Defaults:
    """fp32 weights, amp_bf16, decoupled AdamW, clipping at 1, packed rows of 2048 tokens."""
    base = hugging_face_defaults(context, head)
    files = message("foundry_files", "its shipped files say this")
    triton = message("foundry_triton", "the benchmark script ran Triton attention")
    return replace(
        base,
        dtype=by_rule("float32", files, _YAMLS),
        precision=by_rule("bf16", files, f"{_YAMLS}: amp_bf16"),
        max_length=by_rule(2048, files, _YAMLS),
        packing=Default(value=True, reason=files, source=_YAMLS),
        per_device_train_batch_size=by_rule(8, files, _YAMLS),
        gradient_accumulation_steps=by_rule(1, files, _YAMLS),
        optim=by_rule("decoupled_adamw", files, _YAMLS),
        gradient_checkpointing=by_rule(Checkpointing.FULL, files, _YAMLS),
        use_reentrant=switched_off(files, f"{_YAMLS}: activation_checkpointing_reentrant false"),
        attn_implementation=by_rule("triton", triton, _SUBMIT),
        loss=by_rule("full", files, _YAMLS),
        num_train_epochs=by_rule(1.0, files, _YAMLS),
    )


def foundry_stack(context: Context, settings: Settings) -> Stack:
    """Composer's FSDP with mixed precision DEFAULT: fp32 shards, half compute, fp32 reduction.

    Composer ``trainer/mosaic_fsdp_utils.py get_mixed_precision``: DEFAULT sets ``reduce_dtype`` to
    float32, PURE to the half dtype; ``submit_benchmarks.py`` takes DEFAULT unless told otherwise.
    """
    fused = message("foundry_loss", "flash-attn's fused cross entropy over half logits")
    loss = Loss(path=LossPath.FUSED_CROSS_ENTROPY, upcast_logits=False, shifted_copy=False)
    adapter = message("foundry_adapter", "what is trained stays fp32")
    return Stack(
        kbit=by_rule(KbitPreparation.NONE, adapter, _YAMLS),
        adapter_dtype=by_rule(DType.FLOAT32, adapter, _YAMLS),
        loss=chosen_loss(context, settings)
        or by_rule(loss, fused, "llm-foundry modeling_mpt.py: loss_fn fused_crossentropy"),
        kernels=Kernels(model_code="llm-foundry"),
        fsdp_upcast=by_rule(
            FsdpUpcast.TRAINABLE,
            message(
                "foundry_fsdp",
                "Composer's FSDP holds fp32 shards and gathers them in half",
            ),
            _YAMLS,
        ),
        masks_padding=False,
        gradient_dtype=DType.FLOAT32,
        gathers_for_checkpointing=False,
        accumulates_unsharded=False,
    )


LLM_FOUNDRY = Framework(
    name="llm-foundry",
    aliases=("llm-foundry (composer, pytorch fsdp)", "llmfoundry", "composer"),
    libraries=("torch",),
    method=_method,
    strategy=_strategy,
    defaults=foundry_defaults,
    stack=foundry_stack,
)
