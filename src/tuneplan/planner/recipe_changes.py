"""Changes of what is trained and how: batch, lengths, kernels, dtypes, optimizer, method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tuneplan.frameworks.registry import find_framework
from tuneplan.language import Message, message
from tuneplan.planner.change import Change, Price
from tuneplan.planner.resolving import Resolved
from tuneplan.spec.recipe import Method, OptimizerFamily

ROWS: Final = "training.per_device_train_batch_size"
ACCUMULATION: Final = "training.gradient_accumulation_steps"
_CHECKPOINTING: Final = "training.gradient_checkpointing"
_ATTENTION: Final = "training.attn_implementation"
# One dtype for everything, no autocast beside it, and a loss of its own in chunks.
_ONE_DTYPE: Final = ("torchtune",)
_CHUNKS_LOSS: Final = ("torchtune",)
_8_BIT: Final = {
    OptimizerFamily.ADAMW: ("adamw_bnb_8bit", "AdamW"),
    OptimizerFamily.LION: ("lion_8bit", "Lion"),
}


def packing(resolved: Resolved, rows: int, accumulation: int) -> Change:
    """Samples joined into full rows; as many samples a step as before."""
    return Change(
        name="packing",
        kind="packing",
        message=message(
            "change_packing",
            "pack samples into rows of {length:,} tokens, {rows} a micro-batch",
            length=resolved.recipe.max_length,
            rows=rows,
        ),
        settings={"training.packing": True, ROWS: rows, ACCUMULATION: accumulation},
    )


def checkpointing() -> Change:
    """Activations computed again in the backward."""
    text = message("change_checkpointing_on", "activation checkpointing")
    return _one("checkpointing", text, {_CHECKPOINTING: True})


def no_checkpointing() -> Change:
    """All activations kept."""
    text = message("change_checkpointing_off", "no activation checkpointing")
    return _one("no_checkpointing", text, {_CHECKPOINTING: False})


def offloaded_checkpoints() -> Change:
    """Checkpoints of activations in main memory."""
    text = message("change_checkpoint_offload", "checkpoints of activations in main memory")
    return _one("checkpoint_offload", text, {_CHECKPOINTING: "offload"}, price=Price.SPEED)


def micro_batch(resolved: Resolved, rows: int, accumulation: int) -> Change:
    """Other rows at once, with the accumulation that keeps the batch in all."""
    before = resolved.recipe.per_device_train_batch_size
    return Change(
        name=f"micro_batch_{rows}",
        kind="smaller_batch" if rows < before else "larger_batch",
        message=message(
            "change_micro_batch",
            "micro-batch {rows} instead of {before}, accumulation {accumulation}",
            rows=rows,
            before=before,
            accumulation=accumulation,
        ),
        settings={ROWS: rows, ACCUMULATION: accumulation},
    )


def evaluation_batch(rows: int) -> Change:
    """Fewer rows at once in an evaluation."""
    return Change(
        name=f"eval_batch_{rows}",
        kind="eval_batch",
        message=message("change_eval_batch", "evaluation batch of {rows}", rows=rows),
        settings={"training.per_device_eval_batch_size": rows},
    )


def flash_attention() -> Change:
    """A kernel that keeps no scores."""
    text = message("change_flash", "flash attention")
    return _one("flash_attention", text, {_ATTENTION: "flash_attention_2"})


def sdpa() -> Change:
    """PyTorch's kernel, where the chip has no flash kernel."""
    text = message("change_sdpa", "PyTorch's attention function (this chip has no flash kernel)")
    return Change(
        name="sdpa",
        kind="flash_attention",
        message=text,
        settings={_ATTENTION: "sdpa"},
    )


def fused_loss(framework: str, stated_loss: str | None) -> Change:
    """No whole logits in training, in the framework's own way."""
    if framework in _CHUNKS_LOSS:
        text = message("change_chunked", "the loss in chunks: no whole logits in training")
        return Change(
            name="chunked_loss",
            kind="fused_loss",
            message=text,
            settings={"training.loss": "chunked"},
        )
    settings: dict[str, Any] = {"training.use_liger_kernel": True}
    if stated_loss not in (None, "auto", "fused"):
        settings["training.loss"] = None
    text = message(
        "change_liger", "Liger's fused kernels (use_liger_kernel): no whole logits in training"
    )
    return Change(name="liger", kind="fused_loss", message=text, settings=settings)


def half_weights(dtype: str, *, full: bool) -> Change:
    """Weights held in half precision; where all of them learn, small updates are lost."""
    return Change(
        name="half_weights",
        kind="half_weights",
        message=message("change_dtype", "weights loaded in {dtype}", dtype=dtype),
        price=Price.NUMERICS if full else Price.NOTHING,
        settings={"training.dtype": dtype},
        note=_LOST_UPDATES if full else None,
    )


def half_precision(framework: str, *, native: bool) -> Change:
    """Computing in half precision: bf16, or fp16 where the chip has no bf16."""
    if not native:
        return Change(
            name="fp16",
            kind="half_precision",
            message=message("change_fp16", "compute in fp16, which this chip has"),
            settings={"training.precision": "fp16", "training.dtype": "float16"},
        )
    if framework in _ONE_DTYPE:
        return Change(
            name="bf16",
            kind="half_precision",
            message=message("change_pure", "hold and compute everything in bf16 (dtype: bf16)"),
            price=Price.NUMERICS,
            settings={"training.dtype": "bfloat16", "training.precision": "none"},
            note=_LOST_UPDATES,
        )
    text = message("change_precision", "compute in bf16")
    return Change(
        name="bf16", kind="half_precision", message=text, settings={"training.precision": "bf16"}
    )


_LOST_UPDATES: Final = message(
    "change_pure_bf16", "small updates are lost to rounding in pure bf16"
)


def optimizer_8bit(family: OptimizerFamily) -> Change | None:
    """The same optimizer with states in 8 bits; None where there is no such."""
    if family not in _8_BIT:
        return None
    name, spoken = _8_BIT[family]
    return Change(
        name="optimizer_8bit",
        kind="optimizer_8bit",
        message=message("change_8bit", "an 8-bit {name} (optim: {optim})", name=spoken, optim=name),
        price=Price.NUMERICS,
        settings={"training.optim": name},
        note=message("change_8bit_states", "optimizer states are kept in 8 bits"),
    )


def shorter_length(length: int, cut: float | None, accumulation: int | None = None) -> Change:
    """Rows of fewer tokens; ``cut`` is the share of the samples that lose their end."""
    settings: dict[str, Any] = {"training.max_length": length}
    text = message("change_length", "max_length {length:,}", length=length)
    if cut is not None:
        text = message(
            "change_length_cuts",
            "max_length {length:,} (cuts {share:.0%} of the samples)",
            length=length,
            share=cut,
        )
    if accumulation is not None:
        settings[ACCUMULATION] = accumulation
        text = message(
            "change_length_packed", "{length}, accumulation {accumulation}", length=text,
            accumulation=accumulation,
        )  # fmt: skip
    return Change(
        name="shorter_context",
        kind="shorter_length",
        message=text,
        price=Price.DATA,
        settings=settings,
        note=message("change_cut", "the longest samples are cut"),
    )


_NEW_ADAPTER: Final = {"adapter.r": 16, "adapter.target_modules": "all-linear"}
_OF_FULL: Final = {"training.trained_layers": None, "training.master_weights": None}


def lora() -> Change:
    """An adapter in place of all weights."""
    return Change(
        name="lora",
        kind="adapter",
        message=message(
            "change_lora", "a LoRA adapter in place of all weights (r 16, all linear layers)"
        ),
        price=Price.METHOD,
        settings={"method": "lora", **_NEW_ADAPTER, **_OF_FULL},
        note=message("change_method_note", "another method: fewer parameters learn"),
    )


def qlora(method: Method) -> Change:
    """An adapter on a base in 4 bits."""
    settings = {
        "method": "qlora",
        "quantization.bits": 4,
        "quantization.type": "nf4",
        **_OF_FULL,
        **({} if method.uses_adapter else _NEW_ADAPTER),
    }
    text = message("change_qlora", "QLoRA: the frozen base in 4 bits")
    if not method.uses_adapter:
        text = message(
            "change_qlora_full",
            "QLoRA in place of all weights: the base in 4 bits (r 16, all linear layers)",
        )
    return Change(
        name="qlora",
        kind="adapter",
        message=text,
        price=Price.METHOD,
        settings=settings,
        note=message("change_quantized_note", "the base is rounded to 4 bits"),
    )


def no_copies(modules: Sequence[str]) -> Change:
    """No whole modules trained beside an adapter."""
    return Change(
        name="no_copies",
        kind="no_copies",
        message=message(
            "change_copies",
            "no whole copies trained of {modules} (modules_to_save)",
            modules=", ".join(modules),
        ),
        price=Price.METHOD,
        settings={"adapter.modules_to_save": ()},
    )


def rarer_evaluation(steps: float) -> Change:
    """Evaluations further apart."""
    return Change(
        name="rarer_evaluation",
        kind="rarer_evaluation",
        message=message(
            "change_rarer_evaluation",
            "evaluate four times less often: eval_steps {steps:g}",
            steps=steps,
        ),
        settings={"training.eval_strategy": "steps", "training.eval_steps": steps},
    )


def rarer_saving(steps: float) -> Change:
    """Checkpoints further apart."""
    return Change(
        name="rarer_saving",
        kind="rarer_saving",
        message=message(
            "change_rarer_saving",
            "write checkpoints four times less often: save_steps {steps:g}",
            steps=steps,
        ),
        settings={"training.save_strategy": "steps", "training.save_steps": steps},
    )


def _one(
    name: str, text: Message, settings: Mapping[str, Any], *, price: Price = Price.NOTHING
) -> Change:
    return Change(name=name, kind=name, message=text, price=price, settings=settings)


_NEEDS: Final = {
    "liger": "Liger-Kernel",
    "optimizer_8bit": "bitsandbytes",
    "qlora": "bitsandbytes",
}


def lacking(framework: str, change: Change) -> str | None:
    """The library that a change needs and the framework has no switch for; None mostly."""
    needed = _NEEDS.get(change.name)
    return needed if needed in find_framework(framework).lacks else None
