"""torchtune: batches, optimizer, loss, checkpointing, sharding.

Source: torchtune 0.7.0 ``recipes/full_finetune_distributed.py``,
``recipes/lora_finetune_single_device.py`` and ``training/activations.py`` at bd2a0fc7.
"""

from __future__ import annotations

import math
from typing import Final

from tuneplan.formats import typed_values as typed
from tuneplan.formats.carrying import Carrier
from tuneplan.language import message

_DTYPES: Final = {"bf16": "bfloat16", "fp32": "float32", "fp16": "float16"}
# Optimizer classes by package; what is not here goes on by its own name.
_OPTIMIZERS: Final = {
    "torch.optim.Adam": "adamw_torch_foreach",
    "torch.optim.AdamW": "adamw_torch_foreach",
    "torch.optim.Adafactor": "adafactor",
    "torch.optim.Muon": "muon",
    "bitsandbytes.optim.AdamW": "adamw_torch_fused",
    "bitsandbytes.optim.AdamW8bit": "adamw_bnb_8bit",
    "bitsandbytes.optim.PagedAdamW": "paged_adamw_32bit",
    "bitsandbytes.optim.PagedAdamW32bit": "paged_adamw_32bit",
    "bitsandbytes.optim.PagedAdamW8bit": "paged_adamw_8bit",
    "bitsandbytes.optim.Lion": "lion_32bit",
    "bitsandbytes.optim.Lion8bit": "lion_8bit",
    "bitsandbytes.optim.PagedLion": "paged_lion_32bit",
    "bitsandbytes.optim.PagedLion8bit": "paged_lion_8bit",
    "torchao.optim.AdamW8bit": "adamw_torch_8bit",
    "torchao.optim.AdamW4bit": "adamw_torch_4bit",
    "torchao.optim.AdamWFp8": "ao_adamw_fp8",
    "torchao.prototype.low_bit_optim.AdamW8bit": "adamw_torch_8bit",
    "torchao.prototype.low_bit_optim.AdamW4bit": "adamw_torch_4bit",
    "torchao.prototype.low_bit_optim.AdamWFp8": "ao_adamw_fp8",
}
_CHUNKED: Final = ("LinearCrossEntropyLoss", "CEWithChunkedOutputLoss")
# The newest release whose files have the loss over chunks of logits; 0.7 fuses the head.
_LAST_OF_CHUNKED_OUTPUT: Final = "0.6.1"


def carry_training(carrier: Carrier, version: str | None) -> None:
    """The ``training`` and ``parallelism`` sections."""
    for path, job_key, read in (
        ("tokenizer.max_seq_len", "training.max_length", typed.whole),
        ("batch_size", "training.per_device_train_batch_size", typed.whole),
        ("batch_size_val", "training.per_device_eval_batch_size", typed.whole),
        ("gradient_accumulation_steps", "training.gradient_accumulation_steps", typed.whole),
        ("clip_grad_norm", "training.max_grad_norm", typed.number),
        ("dataset.packed", "training.packing", typed.flag),
        ("compile", "training.torch_compile", typed.flag),
        ("optimizer_in_bwd", "training.optimizer_in_backward", typed.flag),
        ("run_val_every_n_steps", "training.eval_steps", typed.whole),
        ("save_every_n_steps", "training.save_steps", typed.whole),
        ("checkpointer.keep_last_n_checkpoints", "training.save_total_limit", typed.whole),
    ):
        if path == "compile" and isinstance(carrier.value(path), dict):
            continue
        value = read(carrier, path)
        if value is not None:
            carrier.carry(path, (job_key, value))
    _compiled_parts(carrier)
    _length_of_run(carrier)
    _dtype(carrier)
    _optimizer(carrier)
    _loss(carrier, version)
    _checkpointing(carrier)
    _sharding(carrier)


def _compiled_parts(carrier: Carrier) -> None:
    """``compile: {model: true, loss: false}``."""
    parts = typed.section(carrier, "compile")
    if parts is not None:
        carrier.carry("compile", ("training.torch_compile", parts.get("model") is not False))


def _length_of_run(carrier: Carrier) -> None:
    epochs = typed.whole(carrier, "epochs")
    steps = typed.whole(carrier, "max_steps_per_epoch")
    if steps is not None:
        total = steps * (epochs if epochs and epochs > 0 else 1)
        carrier.carry("max_steps_per_epoch", ("training.max_steps", total))
    if epochs is not None:
        carrier.carry("epochs", ("training.num_train_epochs", epochs))
    each = typed.whole(carrier, "save_every_n_epochs")
    if each is not None:
        carrier.carry("save_every_n_epochs", ("training.save_strategy", "epoch"))


def _dtype(carrier: Carrier) -> None:
    dtype = typed.word(carrier, "dtype", tuple(_DTYPES))
    if dtype == "fp16":
        fix = message("write_bf16", "write dtype: bf16 or dtype: fp32")
        text = message("fp16_recipe", "torchtune's recipes do not train in fp16")
        carrier.wrong("dtype", text, near=("bf16", "fp32"), how_to_fix=fix)
    elif dtype is not None:
        precision = "none" if dtype == "bf16" else "fp32"
        carrier.carry(
            "dtype", ("training.dtype", _DTYPES[dtype]), ("training.precision", precision)
        )
    if typed.flag(carrier, "enable_fp8_training"):
        carrier.carry("enable_fp8_training", ("training.precision", "fp8"))
    carrier.irrelevant(("enable_fp8_training",), message("fp8_off", "fp8 is off"))


def _optimizer(carrier: Carrier) -> None:
    path = "optimizer._component_"
    component = typed.text(carrier, path)
    if component is None:
        return
    name = _OPTIMIZERS.get(component) or component.rpartition(".")[2].lower()
    fused = typed.flag(carrier, "optimizer.fused")
    if fused and name == "adamw_torch_foreach":
        name = "adamw_torch_fused"
    if component == "torch.optim.SGD":
        name = "sgd_momentum" if carrier.value("optimizer.momentum") else "sgd"
        learns = message("momentum_counted", "momentum is counted where it is above 0")
        carrier.irrelevant(("optimizer.momentum", "optimizer.nesterov"), learns)
    carrier.carry(path, ("training.optim", name))
    if fused is not None:
        carrier.carry("optimizer.fused", ("training.optim", name))


def _loss(carrier: Carrier, version: str | None) -> None:
    path = "loss._component_"
    component = typed.text(carrier, path)
    if component is None or carrier.said("objective") is not None:
        return
    name = component.rpartition(".")[2]
    if name in _CHUNKED:
        carrier.carry(path, ("training.loss", "chunked"))
    elif name == "CrossEntropyLoss":
        carrier.carry(path, ("training.loss", "full"))
    else:
        text = message("loss_unknown", "{name} is not a loss that is known here", name=name)
        carrier.not_carried((path,), text)
    if name == "CEWithChunkedOutputLoss" and version is None:
        carrier.say("framework", f"torchtune=={_LAST_OF_CHUNKED_OUTPUT}")
        text = message(
            "version_by_loss",
            "{name} is the loss of torchtune's releases before 0.7: {version}, the newest of "
            "them, is assumed",
            name=name,
            version=_LAST_OF_CHUNKED_OUTPUT,
        )
        carrier.notice(path, text)
    chunks = message("loss_chunks", "eight chunks are counted, as the recipes have them")
    carrier.irrelevant(("loss.num_output_chunks", "num_output_chunks"), chunks)


def _checkpointing(carrier: Carrier) -> None:
    for prefix in ("", "training."):
        path = f"{prefix}enable_activation_checkpointing"
        on = typed.flag(carrier, path)
        offloads = typed.flag(carrier, f"{prefix}enable_activation_offloading")
        if on is not None:
            kind = "offload" if on and offloads else on
            carrier.carry(path, ("training.gradient_checkpointing", kind))
            if on and offloads:
                both = ("training.gradient_checkpointing", kind)
                carrier.carry(f"{prefix}enable_activation_offloading", both)
        elif offloads:
            text = message("offload_alone", "offloading without checkpointing has no formula")
            carrier.not_carried((f"{prefix}enable_activation_offloading",), text)
        off = message("offload_off", "nothing is offloaded without checkpointing")
        carrier.irrelevant((f"{prefix}enable_activation_offloading",), off)
    mode = typed.text(carrier, "ac_mode")
    if mode is not None:
        if mode == "full" or (mode == "selective" and carrier.value("ac_option") in (1, "1")):
            carrier.carry("ac_mode", ("training.gradient_checkpointing", True))
        else:
            text = message(
                "some_layers_checkpointed", "checkpointing of some layers has no formula"
            )
            carrier.not_carried(("ac_mode", "ac_option"), text)
    carrier.irrelevant(("ac_option",), message("ac_option_said", "ac_mode says it"))


def _sharding(carrier: Carrier) -> None:
    for path in ("fsdp_cpu_offload", "fsdp.cpu_offload"):
        if typed.flag(carrier, path):
            carrier.carry(path, ("parallelism.offload", "params"))
            carrier.say("parallelism.strategy", "fsdp2")
        carrier.irrelevant((path,), message("not_offloaded", "nothing lies on the host"))
    for path, job_key in (
        ("tensor_parallel_dim", "parallelism.tensor"),
        ("context_parallel_dim", "parallelism.context"),
        ("expert_parallel_dim", "parallelism.expert"),
    ):
        degree = typed.whole(carrier, path)
        if degree is not None:
            carrier.carry(path, (job_key, max(1, degree)))
    shard, copies = (
        typed.whole(carrier, f"data_parallel_{name}_dim") for name in ("shard", "replicate")
    )
    others = [carrier.said(f"parallelism.{name}") or 1 for name in ("tensor", "context")]
    if shard is not None and shard > 1:
        cards = math.prod([shard, max(1, copies or 1), *others])
        carrier.carry("data_parallel_shard_dim", ("hardware.accelerators_per_node", cards))
    if copies is not None and copies > 1:
        carrier.carry("data_parallel_replicate_dim", ("parallelism.strategy", "hsdp"))
    every = message("mesh_by_cards", "the axis takes the cards that are there")
    carrier.irrelevant(("data_parallel_shard_dim", "data_parallel_replicate_dim"), every)
