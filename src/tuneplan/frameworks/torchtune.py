"""torchtune: pure bf16 everywhere, its own layers and losses; defaults of its shipped files."""

from __future__ import annotations

from dataclasses import replace

from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.hugging_face import chosen_loss, hugging_face_defaults, model_length
from tuneplan.frameworks.ledger import Default, by_rule, by_table, switched_off
from tuneplan.frameworks.losses import torchtune_loss
from tuneplan.frameworks.settings import Defaults, Settings
from tuneplan.frameworks.stack import KbitPreparation, Stack
from tuneplan.frameworks.transformers import method_by_section
from tuneplan.language import message
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import (
    CheckpointContent,
    Checkpointing,
    DType,
    Kernels,
    Loss,
    Method,
    OptimizerImplementation,
)

_CONFIGS = "torchtune recipes/configs (178 files at bd2a0fc7): the most frequent value"
_MODULES = "torchtune modules/transformer.py and modules/attention.py 0.4.0"


def _method(context: Context) -> Default[Method]:
    return method_by_section(context, Method.LORA, _CONFIGS)


def _strategy(context: Context, method: Method) -> Default[Strategy]:
    del context, method
    reason = message("strategy_torchtune", "the distributed recipes shard with fully_shard")
    return by_rule(Strategy.FSDP2, reason, "torchtune recipes/*_distributed.py")


def torchtune_defaults(context: Context, head: Head) -> Defaults:
    """The shipped YAML files are complete, so their most frequent values stand for defaults."""
    base = hugging_face_defaults(context, head)
    usual = message("torchtune_files", "most of its shipped files say this")
    full_single = not head.method.uses_adapter and head.strategy is Strategy.SINGLE
    shifted = message("torchtune_optim", "full single-device files page 8-bit states")
    checkpoints = head.strategy is Strategy.SINGLE or not head.method.uses_adapter
    steps = 8 if head.method.uses_adapter else 1
    flex = bool(context.stated.training.packing) and context.software.at_least("torch", "2.5")
    loss = context.software.fact("torchtune", "loss")
    return replace(
        base,
        dtype=by_rule("bfloat16" if context.has_bf16 else "float32", usual, _CONFIGS),
        precision=by_rule(
            "none" if context.has_bf16 else "fp32",
            message("torchtune_pure", "the recipes open no autocast"),
            _CONFIGS,
        ),
        max_length=model_length(context),
        per_device_train_batch_size=by_rule(2, usual, _CONFIGS),
        per_device_eval_batch_size=by_rule(2, usual, _CONFIGS),
        gradient_accumulation_steps=by_rule(steps, usual, _CONFIGS),
        optim=by_rule("paged_adamw_8bit", shifted, _CONFIGS)
        if full_single
        else by_rule("adamw_torch_fused", usual, _CONFIGS),
        gradient_checkpointing=by_rule(
            Checkpointing.FULL if checkpoints else Checkpointing.NONE, usual, _CONFIGS
        ),
        use_reentrant=switched_off(usual, "torch checkpoint_wrapper: NO_REENTRANT"),
        attn_implementation=by_rule("flex_attention" if flex else "sdpa", usual, _MODULES),
        loss=by_table(loss, "full" if loss.value == "full" else "chunked"),
        max_grad_norm=by_rule(0.0, usual, f"{_CONFIGS}: clip_grad_norm null"),
        num_train_epochs=by_rule(1.0, usual, _CONFIGS),
        save_strategy=by_rule(
            "epoch",
            message("torchtune_saves", "its recipes save at the end of every epoch"),
            "torchtune recipes/: save_checkpoint after each epoch; save_every_n_steps unset",
        ),
        r=by_rule(8, usual, _CONFIGS),
        lora_alpha=by_rule(-2.0, usual, _CONFIGS),
        lora_dropout=by_rule(0.0, usual, _CONFIGS),
        target_modules=by_rule(("q_proj", "v_proj", "output_proj", "mlp"), usual, _CONFIGS),
        quantization_type=by_rule("nf4", usual, "torchao NF4Tensor"),
        double_quant=Default(value=True, reason=usual, source="torchao NF4Tensor"),
    )


def torchtune_stack(context: Context, settings: Settings) -> Stack:
    """Everything in the one dtype; gradients leave inside backward where the files say so.

    A checkpoint holds the whole model, into which adapters are merged, and the adapters; one file
    of optimizer states is written over (0.4 ``recipes/lora_finetune_single_device.py
    save_checkpoint``, 0.6 ``training/checkpointing/_checkpoint_client.py``).
    """
    pure = message("torchtune_dtype", "weights, adapters and states share the one dtype")
    in_backward = (
        settings.method is Method.FULL
        and settings.strategy is Strategy.SINGLE
        and settings.gradient_accumulation_steps == 1
        and settings.max_grad_norm is None
        and context.stated.training.optim is None
    )
    no_kbit = message("kbit_torchtune", "nothing is upcast")
    return Stack(
        kbit=by_rule(KbitPreparation.NONE, no_kbit, _CONFIGS),
        adapter_dtype=by_rule(settings.dtype, pure, _CONFIGS),
        checkpoint_content=CheckpointContent.MERGED,
        loss=_loss(context, settings),
        kernels=Kernels(model_code="torchtune"),
        expand_key_value=True,
        masks_padding=False,
        packs_documents=True,
        adapter_cast=False,
        gathers_for_checkpointing=False,
        accumulates_unsharded=False,
        optimizer_in_backward=in_backward,
        optimizer_step=by_rule(
            OptimizerImplementation.FUSED,
            message("torchtune_fused", "its files give AdamW `fused: True`"),
            _CONFIGS,
        ),
        dequantized_dtype=by_rule(
            DType.BFLOAT16, message("dequantized_nf4", "NF4Tensor expands to bf16"), "torchao"
        ),
    )


def _loss(context: Context, settings: Settings) -> Default[Loss]:
    fact = context.software.fact("torchtune", "loss")
    if settings.loss == "full":
        shifted = not context.software.at_least("torchtune", "0.3.0")
        reason = message("torchtune_full", "full logits in fp32, then cross entropy")
        full = replace(torchtune_loss("full"), upcast_logits=True, shifted_copy=shifted)
        return by_rule(full, reason, f"{_MODULES}: output(h).float()")
    if settings.loss == "chunked":
        kind = fact.value if fact.value != "full" else "chunked_output"
        loss = torchtune_loss(kind)
        if settings.torch_compile:
            loss = replace(loss, keeps_logits=True, keeps_softmax=False)
            reason = message("torchtune_compiled", "compiled cross entropy keeps the half logits")
            return by_rule(loss, reason, f"{fact.citation}; apply_compile_strategy")
        return by_table(fact, loss)
    return chosen_loss(context, settings) or by_table(fact, torchtune_loss(fact.value))


TORCHTUNE = Framework(
    name="torchtune",
    aliases=("pytorch/torchtune", "tune"),
    package="torchtune",
    libraries=("torch", "bitsandbytes"),
    method=_method,
    strategy=_strategy,
    strategies=(Strategy.FSDP2,),
    lacks=("Liger-Kernel",),
    defaults=torchtune_defaults,
    stack=torchtune_stack,
)
