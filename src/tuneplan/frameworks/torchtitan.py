"""torchtitan: fp32 weights under FSDP2, half gathers, fp32 reduction, selective checkpointing.

Read at 018740b7 and 000204a4: ``config/job_config.py``, ``models/llama3``,
``distributed/activation_checkpoint.py``, ``components/loss.py``. Its tensor, pipeline, context and
expert degrees have no formula here yet and are refused by name.
"""

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
from tuneplan.spec.recipe import (
    Checkpointing,
    DType,
    Kernels,
    Loss,
    LossPath,
    Method,
    OptimizerImplementation,
)

_CONFIG = "torchtitan config/job_config.py"
_FILES = "torchtitan models/llama3/train_configs/*.toml"
_FSDP = "torchtitan models/llama3/infra/parallelize.py apply_fsdp"
_LENGTH = 2048


def _method(context: Context) -> Default[Method]:
    return method_by_section(context, Method.FULL, _CONFIG)


def _strategy(context: Context, method: Method) -> Default[Strategy]:
    del context, method
    reason = message("strategy_torchtitan", "left-over ranks shard with fully_shard")
    return by_rule(Strategy.FSDP2, reason, f"{_CONFIG}: data_parallel_shard_degree -1")


def torchtitan_defaults(context: Context, head: Head) -> Defaults:
    """Defaults of its job configuration; checkpointing as its shipped files have it."""
    base = hugging_face_defaults(context, head)
    said = message("torchtitan_config", "its configuration's default")
    files = message("torchtitan_files", "its shipped files checkpoint selectively, by operation")
    length = min(_LENGTH, context.architecture.max_position_embeddings)
    return replace(
        base,
        dtype=by_rule("float32", said, f"{_CONFIG}: weights are made in fp32"),
        precision=by_rule("bf16", said, f"{_CONFIG}: mixed_precision_param"),
        max_length=by_rule(length, said, f"{_CONFIG}: seq_len"),
        packing=Default(value=True, reason=said, source="torchtitan datasets: a stream, cut"),
        per_device_train_batch_size=by_rule(8, said, f"{_CONFIG}: local_batch_size"),
        gradient_accumulation_steps=by_rule(1, said, f"{_CONFIG}: global_batch_size -1"),
        optim=by_rule("adamw_torch_fused", said, f"{_CONFIG}: implementation fused"),
        gradient_checkpointing=by_rule(Checkpointing.SELECTIVE, files, _FILES),
        use_reentrant=switched_off(said, "torch checkpoint_wrapper: NO_REENTRANT"),
        attn_implementation=by_rule("sdpa", said, "torchtitan models/attention.py"),
        loss=by_rule("full", said, "torchtitan components/loss.py cross_entropy_loss"),
        max_grad_norm=by_rule(1.0, said, f"{_CONFIG}: max_norm"),
        torch_compile=switched_off(said, f"{_CONFIG}: compile"),
        num_train_epochs=by_rule(1.0, said, f"{_CONFIG}: it counts steps"),
    )


def torchtitan_stack(context: Context, settings: Settings) -> Stack:
    """FSDP2 with half weights and fp32 reduction; fp32 logits; keys repeated before attention."""
    none = message("kbit_torchtitan", "nothing is quantised")
    fp32 = message(
        "torchtitan_adapters",
        "the versions read train whole models; adapters are counted in fp32, as its weights are",
    )
    shards = message("torchtitan_shards", "fp32 shards are cast to half before they are gathered")
    logits = message("torchtitan_loss", "logits in fp32, then cross entropy")
    loss = Loss(path=LossPath.FULL, upcast_logits=True, shifted_copy=False)
    return Stack(
        kbit=by_rule(KbitPreparation.NONE, none, _CONFIG),
        adapter_dtype=by_rule(DType.FLOAT32, fp32, _FSDP),
        loss=chosen_loss(context, settings)
        or by_rule(loss, logits, "torchtitan components/loss.py: pred.flatten(0, 1).float()"),
        gradient_dtype=DType.FLOAT32,
        fsdp_upcast=by_rule(FsdpUpcast.TRAINABLE, shards, _FSDP),
        kernels=Kernels(model_code="torchtitan"),
        expand_key_value=True,
        masks_padding=False,
        packs_documents=False,
        adapter_cast=False,
        gathers_for_checkpointing=False,
        accumulates_unsharded=False,
        optimizer_step=by_rule(
            OptimizerImplementation.FUSED,
            message("torchtitan_fused", "its AdamW is fused"),
            f"{_CONFIG}: implementation fused",
        ),
    )


TORCHTITAN = Framework(
    name="torchtitan",
    libraries=("torch",),
    method=_method,
    strategy=_strategy,
    defaults=torchtitan_defaults,
    stack=torchtitan_stack,
    strategies=(Strategy.FSDP2, Strategy.HSDP, Strategy.DDP),
    lacks=("Liger-Kernel",),
)
