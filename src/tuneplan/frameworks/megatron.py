"""Megatron-LM, and NeMo and Megatron-Bridge on top of it.

Half weights, gradients in one buffer (fp32 for bf16), fp32 masters and moments of Adam; the
distributed optimizer (``zero1`` here) shares masters and moments over the data ranks.
Source: Megatron-LM ``training/arguments.py``, ``core/distributed``, ``core/optimizer``; NeMo
``collections/llm/recipes``; Megatron-Bridge ``recipes``.
"""

from __future__ import annotations

from dataclasses import replace

from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.hugging_face import hugging_face_defaults
from tuneplan.frameworks.ledger import Default, by_rule, by_table, switched_off, switched_on
from tuneplan.frameworks.settings import Defaults, Settings
from tuneplan.frameworks.stack import KbitPreparation, Splitting, Stack
from tuneplan.frameworks.timeline import look_up
from tuneplan.frameworks.transformers import method_by_section
from tuneplan.language import message
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import (
    AttentionKernel,
    Checkpointing,
    DType,
    Kernels,
    Loss,
    LossPath,
    Method,
    OptimizerImplementation,
)

_ARGUMENTS = "Megatron-LM training/arguments.py core_v0.15.0"
_LAYERS = "Megatron-LM core/tensor_parallel/layers.py"
_NEMO = "NeMo collections/llm/recipes v2.0.0 to v2.5.0; Megatron-Bridge recipes v0.6.0"
_REPLICAS = (Strategy.ZERO1, Strategy.DDP)  # with its distributed optimizer and without
_LACKS = ("Liger-Kernel", "bitsandbytes")
_DEGREES = ("tensor", "pipeline", "context", "expert")
_NEMO_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def _method(context: Context) -> Default[Method]:
    return method_by_section(context, Method.FULL, _ARGUMENTS)


def _replicas(context: Context, method: Method) -> Default[Strategy]:
    del method
    fact = look_up("megatron-lm", "distributed_optimizer", "", date=context.software.date)
    return by_table(fact, Strategy.ZERO1 if fact.value == "true" else Strategy.DDP)


def _distributed(context: Context, method: Method) -> Default[Strategy]:
    del method
    fact = look_up("megatron-bridge", "distributed_optimizer", "", date=context.software.date)
    return by_table(fact, Strategy.ZERO1 if fact.value == "true" else Strategy.DDP)


def _zero_1(context: Context, method: Method) -> Default[Strategy]:
    del context, method
    reason = message("strategy_megatron_deepspeed", "its pipelines run with ZeRO stage 1")
    return by_rule(Strategy.ZERO1, reason, "Megatron-DeepSpeed examples; deepspeed runtime/pipe")


def megatron_defaults(context: Context, head: Head) -> Defaults:
    """``arguments.py``: nothing recomputed, no packing, Adam."""
    base = hugging_face_defaults(context, head)
    said = message("megatron_default", "Megatron takes this when nothing is set")
    half = "bfloat16" if context.has_bf16 and not _computes_fp16(context) else "float16"
    word = {"bfloat16": "bf16", "float16": "fp16"}[half]
    length = min(4096, context.architecture.max_position_embeddings)
    recompute = look_up("megatron-lm", "recompute", "", date=context.software.date)
    return replace(
        base,
        dtype=by_rule(half, said, _ARGUMENTS),
        precision=by_rule(word, said, _ARGUMENTS),
        max_length=by_rule(length, said, _ARGUMENTS),
        padding=by_rule("max_length", said, _ARGUMENTS),
        per_device_train_batch_size=by_rule(1, said, _ARGUMENTS),
        per_device_eval_batch_size=by_rule(1, said, _ARGUMENTS),
        optim=by_rule("adamw_apex_fused", said, "Megatron-LM core/optimizer: FusedAdam"),
        gradient_checkpointing=by_table(recompute, Checkpointing(recompute.value)),
        use_reentrant=switched_on(said, "Megatron-LM core/tensor_parallel/random.py checkpoint"),
        attn_implementation=by_rule(_attention(context), said, _ARGUMENTS),
        torch_compile=switched_off(said, _ARGUMENTS),
        r=by_rule(32, said, _NEMO),
        lora_alpha=by_rule(32.0, said, _NEMO),
        lora_dropout=by_rule(0.0, said, _NEMO),
        target_modules=by_rule(_targets(context), said, _NEMO),
    )


def _computes_fp16(context: Context) -> bool:
    return context.measured.compute_dtype == "float16"


def _attention(context: Context) -> str:
    capability = context.compute_capability
    hopper = capability is not None and int(capability) == 9
    return "flash_attention_3" if hopper else "flash_attention_2" if _has_flash(context) else "sdpa"


def _has_flash(context: Context) -> bool:
    return context.has_flash_attention_2


def _targets(context: Context) -> str | tuple[str, ...]:
    leaves = {w.leaf for group in context.architecture.groups for w in group.layer.weights()}
    return _NEMO_TARGETS if leaves.issuperset(_NEMO_TARGETS) else "all-linear"


def _is_local(context: Context) -> bool:
    """Whether the layers are Megatron's own, before Transformer Engine became the default."""
    fact = look_up("megatron-lm", "transformer_layer", "", date=context.software.date)
    return fact.value == "local"


def _kernel(context: Context, settings: Settings) -> AttentionKernel | None:
    """Fused softmax where the attention is not a flash kernel; cuDNN's on Blackwell."""
    if settings.attn_implementation == "eager":
        return AttentionKernel.FUSED_SOFTMAX
    capability = context.compute_capability
    if capability is not None and capability >= 10:
        return AttentionKernel.CUDNN
    return None


def _loss() -> Default[Loss]:
    reason = message(
        "megatron_loss",
        "fp32 logits of the own part of the vocabulary; the gradient overwrites them",
    )
    loss = Loss(path=LossPath.FUSED_CROSS_ENTROPY, upcast_logits=True)
    return by_rule(loss, reason, "Megatron-LM core/tensor_parallel/cross_entropy.py")


def _stack(context: Context, settings: Settings, *, kernels: Kernels, splits: Splitting) -> Stack:
    none = message("megatron_kbit", "nothing is quantised")
    half = settings.half or DType.FLOAT32
    wide = message("megatron_adapter", "adapters have the dtype of the model, beside fp32 masters")
    gradient = DType.FLOAT32 if half is DType.BFLOAT16 else half
    return Stack(
        kbit=by_rule(KbitPreparation.NONE, none, _ARGUMENTS),
        adapter_dtype=by_rule(half, wide, "NeMo collections/llm/peft/lora.py"),
        loss=_loss(),
        half_engine=True,
        gradient_dtype=gradient,
        gradient_buffer=True,
        recomputes_attention=True,
        kernels=kernels,
        kernels_source="Megatron-LM core/fusions, Transformer Engine",
        attention_kernel=_kernel(context, settings),
        adapter_cast=False,
        fp32_norm_math=False,
        masks_padding=False,
        packs_documents=False,
        optimizer_step=by_rule(
            OptimizerImplementation.FUSED,
            message("megatron_adam", "Megatron runs FusedAdam"),
            "Megatron-LM core/optimizer/__init__.py",
        ),
        splitting=splits,
    )


def megatron_stack(context: Context, settings: Settings) -> Stack:
    """Megatron-LM alone: what overlaps is asked for, so nothing does by default."""
    said = message("megatron_switch", "a switch of Megatron's that is off unless asked for")
    local = _is_local(context)
    fused = not local
    splits = Splitting(
        sequence=switched_off(said, f"{_ARGUMENTS} sequence_parallel"),
        overlap_tensor=switched_off(said, f"{_ARGUMENTS} tp_comm_overlap"),
        overlap_transfers=switched_on(
            message("interleaved_overlaps", "the interleaved schedule sends beside compute"),
            f"{_ARGUMENTS} overlap_p2p_comm",
        ),
        overlap_gradients=switched_off(said, f"{_ARGUMENTS} overlap_grad_reduce"),
    )
    kernels = Kernels(
        fused_norm=fused, fused_rope=fused, fused_mlp=fused, model_code="megatron"
    )  # fmt: skip
    return _stack(context, settings, kernels=kernels, splits=splits)


def nemo_stack(context: Context, settings: Settings) -> Stack:
    """NeMo's and Megatron-Bridge's recipes: positions shared, exchanges beside compute."""
    said = message("nemo_recipes", "its recipes switch this on")
    splits = Splitting(
        sequence=switched_on(said, _NEMO),
        overlap_tensor=switched_on(said, f"{_NEMO}: tp_comm_overlap"),
        overlap_transfers=switched_on(said, f"{_NEMO}: overlap_p2p_comm"),
        overlap_gradients=switched_on(said, f"{_NEMO}: overlap_grad_reduce, overlap_param_gather"),
    )
    kernels = Kernels(fused_norm=True, fused_rope=True, fused_mlp=True, model_code="megatron")
    return _stack(context, settings, kernels=kernels, splits=splits)


def megatron_deepspeed_stack(context: Context, settings: Settings) -> Stack:
    """Megatron's layers in DeepSpeed's engine: its buckets, half gradients for fp16."""
    said = message("deepspeed_pipeline", "DeepSpeed's pipeline exchanges between computing")
    source = "deepspeed runtime/pipe/engine.py; Megatron-DeepSpeed megatron/model/transformer.py"
    splits = Splitting(
        sequence=switched_off(said, source),
        overlap_tensor=switched_off(said, source),
        overlap_transfers=switched_off(said, source),
        overlap_gradients=switched_off(said, source),
    )
    stack = _stack(context, settings, kernels=Kernels(model_code="megatron"), splits=splits)
    return replace(
        stack,
        gradient_buffer=False,
        kernels_source="",
    )


MEGATRON = Framework(
    name="megatron",
    aliases=("megatron-lm", "megatron-core", "mcore", "ms-swift (megatron)"),
    libraries=("torch",),
    method=_method,
    strategy=_replicas,
    strategies=_REPLICAS,
    lacks=_LACKS,
    defaults=megatron_defaults,
    stack=megatron_stack,
    degrees=_DEGREES,
)
NEMO = Framework(
    name="nemo",
    aliases=("megatron-bridge", "nemo (megatron-core)", "nemo-automodel-megatron"),
    libraries=("torch",),
    method=_method,
    strategy=_distributed,
    strategies=_REPLICAS,
    lacks=_LACKS,
    defaults=megatron_defaults,
    stack=nemo_stack,
    degrees=_DEGREES,
)
MEGATRON_DEEPSPEED = Framework(
    name="megatron-deepspeed",
    libraries=("torch", "deepspeed"),
    method=_method,
    strategy=_zero_1,
    strategies=_REPLICAS,
    lacks=_LACKS,
    defaults=megatron_defaults,
    stack=megatron_deepspeed_stack,
    degrees=("tensor", "pipeline"),
)
