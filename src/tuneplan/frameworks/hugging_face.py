"""What Trainer, PEFT, bitsandbytes and accelerate do: the ground that most frameworks stand on."""

from __future__ import annotations

from tuneplan.estimation.parameters import default_target_modules
from tuneplan.frameworks.attention import default_implementation
from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.ledger import Default, by_rule, by_table, switched_off
from tuneplan.frameworks.losses import full_loss, fused_cross_entropy, fused_linear, generic_chunked
from tuneplan.frameworks.settings import NO_TRUNCATION, Defaults, Settings
from tuneplan.frameworks.stack import FsdpUpcast, KbitPreparation, Stack
from tuneplan.frameworks.timeline import Fact
from tuneplan.language import message
from tuneplan.spec.recipe import Checkpointing, DType, Loss, Objective

_TRAINER = "transformers training_args.py"


def flag(fact: Fact) -> Default[bool]:
    """A default whose cell says ``true`` or ``false``."""
    return by_table(fact, fact.value == "true")


def whole(fact: Fact) -> Default[int]:
    """A default whose cell is an integer."""
    return by_table(fact, int(fact.value))


def number(fact: Fact) -> Default[float]:
    """A default whose cell is a number."""
    return by_table(fact, float(fact.value))


def word(fact: Fact) -> Default[str]:
    """A default whose cell is a word."""
    return by_table(fact, fact.value)


def checkpointing(fact: Fact) -> Default[Checkpointing]:
    """A default whose cell switches activation checkpointing."""
    value = Checkpointing.FULL if fact.value == "true" else Checkpointing.NONE
    return by_table(fact, value)


def targets(fact: Fact) -> Default[str | tuple[str, ...]]:
    """A default whose cell lists leaf names or says ``all-linear``."""
    value = fact.value
    return by_table(fact, value if value == "all-linear" else tuple(value.split(",")))


def load_dtype(context: Context, head: Head) -> Default[str]:
    """Dtype of the weights when ``from_pretrained`` is given none."""
    key = "load_dtype_4bit" if head.method.quantized else "load_dtype"
    return word(context.software.fact("transformers", key, context.model_type))


def optimizer_name(fact: Fact, context: Context) -> Default[str]:
    """Trainer's default ``optim`` of a version (fused only with torch 2.8 or newer)."""
    if fact.value != "adamw_torch_fused_if_torch_2.8":
        return word(fact)
    fused = context.software.at_least("torch", "2.8")
    return by_table(fact, "adamw_torch_fused" if fused else "adamw_torch")


def default_targets(context: Context) -> Default[str | tuple[str, ...]]:
    """PEFT's target modules for the architecture; all linears where it demands a statement."""
    known = default_target_modules(context.model_type)
    if known is not None:
        reason = message("peft_targets", "PEFT adapts these in a {m} model", m=context.model_type)
        return by_rule(known, reason, "peft utils/constants.py 0.5.0 to 0.21.2")
    reason = message("peft_targets_missing", "PEFT has no default for this model type")
    return by_rule("all-linear", reason, "peft utils/constants.py 0.21.2")


def hugging_face_defaults(context: Context, head: Head) -> Defaults:
    """Defaults of ``TrainingArguments``, ``LoraConfig`` and ``BitsAndBytesConfig``."""
    fact = context.software.fact
    batch = whole(fact("transformers", "per_device_batch_size"))
    attention, attention_source = default_implementation(context)
    return Defaults(
        dtype=load_dtype(context, head),
        precision=word(fact("transformers", "precision")),
        max_length=model_length(context),
        packing=switched_off(message("not_packed", "nothing packs samples"), _TRAINER),
        padding=by_rule(
            "longest",
            message("padding_longest", "batches are padded to their longest sample"),
            "transformers data/data_collator.py",
        ),
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=batch,
        gradient_accumulation_steps=by_rule(
            1, message("no_accumulation", "one micro-batch a step"), _TRAINER
        ),
        optim=optimizer_name(fact("transformers", "optim"), context),
        gradient_checkpointing=checkpointing(fact("transformers", "gradient_checkpointing")),
        use_reentrant=flag(fact("transformers", "use_reentrant")),
        attn_implementation=by_rule(
            attention,
            message("attention_by_model", "the model class decides when nothing is asked"),
            attention_source,
        ),
        loss=by_rule("full", message("loss_full", "the model makes all logits"), _TRAINER),
        torch_compile=switched_off(message("not_compiled", "eager code runs"), _TRAINER),
        use_liger_kernel=switched_off(message("no_liger", "plain kernels run"), _TRAINER),
        max_grad_norm=number(fact("transformers", "max_grad_norm")),
        num_train_epochs=number(fact("transformers", "num_train_epochs")),
        eval_steps=by_rule(0, message("no_evaluation", "evaluation is off"), _TRAINER),
        save_steps=by_table(
            fact("transformers", "save_steps"), int(fact("transformers", "save_steps").value)
        ),
        save_total_limit=by_rule(0, message("keeps_all", "every checkpoint is kept"), _TRAINER),
        trained_layers=by_rule(
            2,
            message("trained_layers", "the number LLaMA-Factory trains with `freeze`"),
            "LLaMA-Factory finetuning_args.py 0.6.0",
        ),
        r=whole(fact("peft", "lora_r")),
        lora_alpha=number(fact("peft", "lora_alpha")),
        lora_dropout=number(fact("peft", "lora_dropout")),
        target_modules=default_targets(context),
        modules_to_save=by_rule(
            (), message("nothing_saved_whole", "no module is trained whole"), "peft LoraConfig"
        ),
        bits=by_rule(4, message("four_bits", "QLoRA stores 4 bits"), "QLoRA paper, section 3"),
        quantization_type=word(fact("transformers", "bnb_type")),
        double_quant=flag(fact("transformers", "bnb_double_quant")),
    )


def model_length(context: Context) -> Default[int]:
    """The model's own limit, where nothing truncates."""
    return by_rule(
        context.architecture.max_position_embeddings,
        NO_TRUNCATION,
        "config.json max_position_embeddings",
    )


def peft_adapter_dtype(context: Context, settings: Settings) -> Default[DType]:
    """Dtype in which PEFT creates adapters on this base and in this version."""
    if settings.method.quantized:
        return by_table(context.software.fact("peft", "lora_dtype_quantized"), DType.FLOAT32)
    fact = context.software.fact("peft", "lora_dtype")
    return by_table(fact, settings.dtype if fact.value == "base" else DType.FLOAT32)


def fsdp_upcast(context: Context, settings: Settings) -> Default[FsdpUpcast]:
    """What accelerate turns into fp32 under FSDP with mixed precision."""
    key = "fsdp_upcast" if settings.strategy.value == "fsdp" else "fsdp2_upcast"
    fact = context.software.fact("accelerate", key)
    value = {
        "none": FsdpUpcast.NONE,
        "trainable": FsdpUpcast.TRAINABLE,
        "all": FsdpUpcast.ALL,
        "trainable_unless_4bit": FsdpUpcast.NONE
        if settings.method.quantized
        else FsdpUpcast.TRAINABLE,
    }[fact.value]
    return by_table(fact, value)


def stacked_experts(context: Context) -> Default[bool]:
    """Whether bitsandbytes reaches the routed experts (not where they are one 3-D parameter)."""
    fact = context.software.fact("transformers", "experts")
    return by_table(fact, fact.value == "linear")


def wraps_outputs(settings: Settings) -> bool:
    """Whether accelerate copies returned half logits to fp32 (under autocast only)."""
    return settings.half is not None and not settings.head.deepspeed


def hugging_face_loss(
    context: Context, settings: Settings, *, extra_copies: int = 0
) -> Default[Loss]:
    """The loss path of the model's own code in this version, or the one that was asked for."""
    fact = context.software.fact("transformers", "logits_upcast", context.model_type)
    chosen = chosen_loss(context, settings)
    if chosen is not None:
        return chosen
    if settings.objective in (Objective.DPO, Objective.KTO, Objective.ORPO, Objective.SIMPO):
        return preference_loss(context, settings)
    loss = full_loss(context, output_fp32_copy=wraps_outputs(settings), extra_copies=extra_copies)
    return by_table(fact, loss)


def chosen_loss(context: Context, settings: Settings) -> Default[Loss] | None:
    """The loss where the job, a kernel flag or a measured row names it; None otherwise."""
    measured = context.measured.fused_ce
    if measured is not None and "unsloth" in measured:
        reason = message("loss_fused_ce", "the row names a fused cross entropy over full logits")
        loss = fused_cross_entropy(context, output_fp32_copy=wraps_outputs(settings))
        return by_rule(loss, reason, "fms-acceleration kernels/unsloth/cross_entropy_loss.py")
    if settings.use_liger_kernel or settings.loss == "fused":
        reason = message("loss_fused", "a fused linear cross entropy is asked for")
        return by_rule(fused_linear(), reason, "liger-kernel ops/fused_linear_cross_entropy.py")
    if settings.loss == "chunked":
        reason = message("loss_chunked", "a chunked loss is asked for")
        return by_rule(generic_chunked(), reason, "recomputed chunks of 1024 tokens")
    return None


def preference_loss(context: Context, settings: Settings) -> Default[Loss]:
    """TRL's preference losses: full logits, then the log-probability of each label."""
    fact = context.software.fact("trl", "log_softmax_kept")
    copies = 1 if wraps_outputs(settings) else 0
    loss = Loss(
        path=full_loss(context, output_fp32_copy=False).path,
        upcast_logits=fact.value == "true",
        shifted_copy=False,
        output_fp32_copies=copies,
    )
    return by_table(fact, loss)


def _keeps_key_values(context: Context) -> bool:
    """Whether the model's forward collects keys and values although it trains.

    Models switch ``use_cache`` off while checkpointing; GPT-BigCode's own loop never did.
    """
    fact = context.software.fact("transformers", "training_cache", context.model_type)
    return fact.value == "kept"


def hugging_face_stack(
    context: Context,
    settings: Settings,
    *,
    loss: Default[Loss] | None = None,
    kbit: Default[KbitPreparation] | None = None,
    adapter_dtype: Default[DType] | None = None,
) -> Stack:
    """Trainer's behaviour: PEFT adapters, bitsandbytes linears, accelerate's wrappers."""
    peft_helper = by_rule(
        KbitPreparation.ALL,
        message("kbit_peft", "scripts call peft's helper, which casts all half weights to fp32"),
        "peft utils/other.py prepare_model_for_kbit_training, 0.3.0 to 0.21.2",
    )
    keeps = context.software.fact("bitsandbytes", "keeps_inputs")
    norm_math = context.software.fact("transformers", "norm_math")
    return Stack(
        kbit=kbit or peft_helper,
        adapter_dtype=adapter_dtype or peft_adapter_dtype(context, settings),
        loss=loss or hugging_face_loss(context, settings),
        fsdp_upcast=fsdp_upcast(context, settings),
        quantizes_experts=stacked_experts(context),
        keeps_inputs=flag(keeps),
        dequantized_dtype=by_rule(
            settings.dtype,
            message("dequantized_as_loaded", "a matrix expands to the dtype it was loaded in"),
            "bitsandbytes functional.py dequantize_4bit: quant_state.dtype",
        ),
        fp32_norm_math=norm_math.value == "fp32",
        keeps_outputs=False,
        keeps_key_values=_keeps_key_values(context),
    )
