"""LitGPT on Lightning Fabric: its own layers, query and value adapted.

The precision words of Fabric: ``bf16-mixed`` is precision bf16 over float32 weights, ``bf16-true``
is precision none over bfloat16 weights. A row that gives half weights and no autocast is the
latter, and quantisation allows nothing else.
"""

from __future__ import annotations

from dataclasses import replace

from tuneplan.estimation.litgpt import LITGPT as MODEL_CODE
from tuneplan.estimation.litgpt import PARTS
from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.hugging_face import (
    chosen_loss,
    flag,
    hugging_face_defaults,
    model_length,
    number,
    whole,
)
from tuneplan.frameworks.ledger import Default, by_rule, by_table, switched_off
from tuneplan.frameworks.losses import full_loss, litgpt_loss
from tuneplan.frameworks.settings import Defaults, Settings
from tuneplan.frameworks.stack import KbitPreparation, Stack
from tuneplan.frameworks.transformers import method_by_section
from tuneplan.language import message
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import CheckpointContent, Checkpointing, DType, Kernels, Loss, Method

_LORA = "litgpt finetune/lora.py 0.3.1 to 0.5.13"
_FULL = "litgpt finetune/full.py 0.4.0 to 0.5.13"
_LIGHTNING = "lightning/fabric/plugins/precision/bitsandbytes.py"


def _method(context: Context) -> Default[Method]:
    return method_by_section(context, Method.LORA, "litgpt: `litgpt finetune` is LoRA")


def _strategy(context: Context, method: Method) -> Default[Strategy]:
    fact = context.software.fact("litgpt", "strategy")
    if method.uses_adapter:
        return by_table(fact, Strategy(fact.value))
    reason = message("strategy_litgpt", "several cards are sharded with FSDPStrategy")
    return by_rule(Strategy.FSDP, reason, _FULL)


def litgpt_defaults(context: Context, head: Head) -> Defaults:
    """Defaults of the fine-tuning scripts."""
    fact = context.software.fact
    base = hugging_face_defaults(context, head)
    script = message("litgpt_script", "the script's default")
    true_half = head.method.quantized or context.measured.param_dtype in ("bfloat16", "float16")
    stated_half = context.stated.training.dtype in ("bfloat16", "float16")
    pure = true_half or stated_half
    half = "bfloat16" if context.has_bf16 else "float16"
    mixed = message("litgpt_mixed", "bf16-mixed: fp32 weights under autocast")
    true = message("litgpt_true", "bf16-true: half weights, no autocast")
    shards = head.fsdp
    checkpointing = Checkpointing.FULL if shards else Checkpointing.NONE
    single = message("litgpt_checkpointing", "blocks are checkpointed on several cards only")
    batch = whole(fact("litgpt", "batch_size"))
    return replace(
        base,
        dtype=by_rule(half if pure else "float32", true if pure else mixed, _LORA),
        precision=by_rule("none" if pure else half_word(half), true if pure else mixed, _LORA),
        max_length=model_length(context),
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=batch,
        gradient_accumulation_steps=by_table(
            fact("litgpt", "global_batch_size"), -int(fact("litgpt", "global_batch_size").value)
        ),
        optim=by_rule(
            "paged_adamw_32bit" if head.method.quantized else "adamw_torch", script, _LORA
        ),
        gradient_checkpointing=by_rule(checkpointing, single, _LORA),
        use_reentrant=switched_off(script, "torch checkpoint_wrapper: NO_REENTRANT"),
        attn_implementation=by_rule("sdpa", script, "litgpt model.py"),
        loss=by_rule("chunked", script, _LORA),
        save_steps=by_rule(1000.0, script, f"{_LORA}, full.py: save_interval"),
        max_grad_norm=by_rule(0.0, message("no_clipping", "nothing clips gradients"), _LORA),
        num_train_epochs=number(fact("litgpt", "num_train_epochs")),
        r=whole(fact("litgpt", "lora_r")),
        lora_alpha=number(fact("litgpt", "lora_alpha")),
        lora_dropout=number(fact("litgpt", "lora_dropout")),
        target_modules=by_rule(("query", "value"), script, _LORA),
        quantization_type=by_rule("nf4", script, _LORA),
        double_quant=switched_off(message("litgpt_dq", "bnb.nf4 without -dq"), _LORA),
    )


def half_word(dtype: str) -> str:
    """The precision word of a half dtype: ``bf16`` or ``fp16``."""
    return {"bfloat16": "bf16", "float16": "fp16"}[dtype]


def litgpt_stack(context: Context, settings: Settings) -> Stack:
    """Lightning quantises from fp16, head included; keys are always expanded.

    The loop's ``logits`` stay bound until the next forward returns, its ``loss`` until the next
    loss exists; the scripts of 2023 run the longest sample first. Head and embedding are two
    weights whatever the published model ties. A checkpoint of ``full.py`` holds the optimizer too,
    one of ``lora.py`` the adapters alone (``save_lora_checkpoint``). FSDP wraps whole Blocks, so
    frozen weights share flat parameters with adapters and get gradient memory too (PyTorch's note
    on ``use_orig_params``).
    """
    same = message("litgpt_adapter", "adapters are created in the model's dtype")
    lightning = message("dequantized_lightning", "Lightning quantises from fp16")
    longest_first = context.software.fact("litgpt", "longest_first").value == "true"
    return Stack(
        kbit=by_rule(KbitPreparation.NONE, message("kbit_litgpt", "nothing is upcast"), _LORA),
        adapter_dtype=by_rule(settings.dtype, same, "litgpt lora.py"),
        loss=_loss(context, settings),
        kernels=Kernels(model_code=MODEL_CODE),
        expand_key_value=True,
        masks_padding=False,
        adapter_cast=False,
        keeps_outputs=True,
        keeps_graph=True,
        longest_first=longest_first,
        unties_head=True,
        query_key_value=_query_key_value(context),
        checkpoint_content=CheckpointContent.WEIGHTS
        if settings.method.uses_adapter
        else CheckpointContent.RESUMABLE,
        frozen_gradients=settings.method.uses_adapter and settings.strategy is Strategy.FSDP,
        gathers_for_checkpointing=False,
        dequantized_dtype=by_rule(DType.FLOAT16, lightning, _LIGHTNING),
        quantizes_head=True,
        keeps_inputs=flag(context.software.fact("bitsandbytes", "keeps_inputs")),
    )


def _query_key_value(context: Context) -> tuple[str, ...]:
    """Which parts of its one query-key-value linear are adapted (``enable_lora``)."""
    stated = context.stated.adapter.target_modules
    words = ("query", "value") if stated is None or isinstance(stated, str) else stated
    return tuple(part for part in PARTS if part in words)


def _loss(context: Context, settings: Settings) -> Default[Loss]:
    if settings.loss == "full" and settings.loss_stated:
        reason = message("loss_full", "the model makes all logits")
        return by_rule(full_loss(context, output_fp32_copy=False), reason, "job: training.loss")
    if settings.loss == "fused":
        chosen = chosen_loss(context, settings)
        if chosen is not None:
            return chosen
    reason = message("litgpt_chunks", "cross entropy runs over 128 tokens at a time")
    return by_rule(litgpt_loss(), reason, f"{_LORA}: lm_head_chunk_size=128")


LITGPT = Framework(
    name="litgpt",
    aliases=("lit-gpt", "lightning-ai/litgpt", "lit_gpt"),
    package="litgpt",
    libraries=("torch", "bitsandbytes"),
    method=_method,
    strategy=_strategy,
    strategies=(Strategy.FSDP,),
    lacks=("Liger-Kernel",),
    defaults=litgpt_defaults,
    stack=litgpt_stack,
)
