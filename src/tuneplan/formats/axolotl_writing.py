"""A job as a YAML of Axolotl.

Keys: axolotl ``utils/schemas/*.py`` 0.19; from which dtype follows: ``utils/config/__init__.py``.
"""

from __future__ import annotations

from typing import Any, Final

from tuneplan.formats import deepspeed_writing, trainer_writing
from tuneplan.formats.data_writing import UNKNOWN, Rows, files_of, loader_of
from tuneplan.formats.file_text import yaml_text
from tuneplan.formats.foreign import ExportedFile
from tuneplan.formats.launching import Program
from tuneplan.formats.telling import Teller, kept
from tuneplan.formats.trainer_writing import ENGINES, OPTIMIZERS, STRATEGIES_WITHOUT_ENGINE
from tuneplan.language import message
from tuneplan.spec.stated import StatedJob

NAME: Final = "axolotl"
FILE: Final = "train.yaml"
OLDEST: Final = "0.8"
_ADAPTERS: Final = {"full": None, "lora": "lora", "dora": "lora", "qlora": "qlora"}
_PREFERENCES: Final = ("dpo", "kto", "orpo", "simpo")
_PRECISIONS: Final = {
    ("bf16", "bfloat16"): {"bf16": True},
    ("fp16", "float16"): {"bf16": False, "fp16": True},
    ("none", "bfloat16"): {"bf16": False, "bfloat16": True},
    ("none", "float16"): {"bf16": False, "float16": True},
    ("none", "float32"): {"bf16": False},
    ("fp32", "float32"): {"bf16": False},
    ("tf32", "float32"): {"bf16": False, "tf32": True},
}
_ATTENTION: Final = {
    name: name
    for name in ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
}
_FLAGS: Final = {  # before 0.17
    "eager": "eager_attention",
    "sdpa": "sdp_attention",
    "flash_attention_2": "flash_attention",
    "flex_attention": "flex_attention",
}
_LIGER: Final = "axolotl.integrations.liger.LigerPlugin"
_LIGER_KERNELS: Final = ("liger_rope", "liger_rms_norm", "liger_glu_activation")
_FUSED: Final = "liger_fused_linear_cross_entropy"


def dump(job: StatedJob, *, rows: Rows = UNKNOWN) -> tuple[ExportedFile, ...]:
    """``train.yaml``, and DeepSpeed's JSON where ZeRO shards the job.

    Raises:
        CannotExport: Axolotl has no key for some of the settings; all of them named.
    """
    teller = Teller(job, framework="Axolotl")
    trainer_writing.refuse_old(teller, "axolotl", OLDEST)
    sections = (
        (
            message("section_model", "Model"),
            {"base_model": job.model, **_precision(teller), **_attention(teller)},
        ),
        (message("section_adapter", "Adapters"), _adapter(teller)),
        (message("section_data", "Data"), {**_objective(teller), **_data(teller, rows)}),
        (message("section_training", "Training"), _training(teller)),
        (message("section_kernels", "Kernels"), _kernels(teller)),
        (message("section_parallelism", "Several accelerators"), _parallelism(teller)),
    )
    teller.finish()
    purpose = message(
        "purpose_axolotl",
        "the job for axolotl train; the job says no learning_rate, which Axolotl wants: a usual "
        "one is written",
    )
    return (
        ExportedFile(name=FILE, text=yaml_text(*sections), purpose=purpose),
        *deepspeed_writing.companion(job),
    )


def program(job: StatedJob) -> Program:  # noqa: ARG001 - every format has the same surface
    """The module that ``axolotl train`` starts."""
    return Program(module="axolotl.cli.train", arguments=(FILE,))


def _precision(teller: Teller) -> dict[str, Any]:
    """Flags that decide the dtype of the weights and autocast together."""
    precision, dtype = teller.take("training.precision"), teller.take("training.dtype")
    usual = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "tf32": "float32"}
    if precision is None:
        if dtype is not None:
            fix = message("state_precision", "state training.precision, which decides both")
            teller.refuse("training.dtype", how_to_fix=fix)
        return {}
    if dtype in (None, "auto"):
        dtype = usual.get(precision, "bfloat16")
    flags = _PRECISIONS.get((precision, dtype))
    eight = teller.peek("quantization.bits") == 8 and teller.peek("method") == "qlora"
    if eight and precision in ("fp32", "tf32", "none") and dtype == "float32":
        why = message("eight_bits_half", "without a half format load_in_8bit loads float16")
        teller.refuse("training.precision", why, near=("bf16", "fp16"))
    elif flags is None:
        why = message(
            "precision_decides_dtype",
            "Axolotl loads the weights in the dtype of its precision: {dtype} under {precision} "
            "has no key",
            dtype=dtype,
            precision=precision,
        )
        near = (usual[precision],) if precision in usual else ()
        teller.refuse("training.dtype", why, near=near)
    trainer_writing.masters(teller, fp32_weights=dtype == "float32")
    return dict(flags or {})


def _attention(teller: Teller) -> dict[str, Any]:
    kernel = teller.word("training.attn_implementation", _ATTENTION)
    if kernel is None:
        return {}
    if trainer_writing.at_least(teller.job, "axolotl", "0.17"):
        return {"attn_implementation": kernel}
    if kernel not in _FLAGS:
        teller.refuse("training.attn_implementation", near=tuple(_FLAGS))
        return {}
    return {_FLAGS[kernel]: True}


def _adapter(teller: Teller) -> dict[str, Any]:
    method = teller.peek("method")
    adapter = teller.word("method", _ADAPTERS)
    if adapter is None:
        return {}
    targets = teller.take("adapter.target_modules")
    linear = targets == "all-linear"
    dora = teller.take("adapter.use_dora")
    return kept(
        {
            **(_quantization(teller) if method == "qlora" else {"adapter": adapter}),
            "lora_r": teller.take("adapter.r"),
            "lora_alpha": teller.whole("adapter.lora_alpha"),
            "lora_dropout": teller.take("adapter.lora_dropout"),
            "lora_target_linear": True if linear else None,
            "lora_target_modules": None if linear else targets,
            "lora_target_parameters": teller.take("adapter.target_parameters") or None,
            "lora_modules_to_save": teller.take("adapter.modules_to_save") or None,
            "peft_use_rslora": teller.take("adapter.use_rslora"),
            "peft_use_dora": True if method == "dora" else dora,
            **_fused(teller),
        }
    )


def _fused(teller: Teller) -> dict[str, Any]:
    """The Triton kernels of LoRA layers, all three together."""
    fused = teller.take("adapter.fused_kernels")
    return {f"lora_{part}_kernel": fused for part in ("mlp", "qkv", "o")}


def _quantization(teller: Teller) -> dict[str, Any]:
    bits, kind = teller.take("quantization.bits"), teller.take("quantization.type")
    double = teller.take("quantization.double_quant")  # 8 bits have no scales of scales
    experts = {"quantize_moe_experts": teller.take("quantization.quantize_experts")}
    if bits == 8 or kind == "int8":
        return kept({"adapter": "lora", "load_in_8bit": True, **experts})
    if bits not in (None, 4) or kind not in (None, "nf4", "fp4"):
        teller.refuse("quantization.type", near=("nf4", "fp4"))
    options = kept(
        {
            "bnb_4bit_quant_type": kind if kind == "fp4" else None,
            "bnb_4bit_use_double_quant": False if double is False else None,
        }
    )
    quantized = {
        "adapter": "qlora",
        "load_in_4bit": True,
        "bnb_config_kwargs": options or None,
    }
    return kept(quantized | experts)


def _objective(teller: Teller) -> dict[str, Any]:
    objective = teller.take("objective")
    if objective == "kto":
        return {"rl": objective, "remove_unused_columns": False}  # which its schema demands
    if objective in _PREFERENCES:
        return {"rl": objective}
    if objective == "rm":
        return {"reward_model": True}
    if objective not in (None, "sft", "pretrain"):
        teller.refuse("objective", near=("sft", "pretrain", *_PREFERENCES, "rm"))
    return {}


def _data(teller: Teller, rows: Rows) -> dict[str, Any]:
    packing = teller.take("training.packing")
    padding = teller.take("training.padding")
    flat = padding == "none" and not packing
    kernel = teller.peek("training.attn_implementation")
    if flat and kernel not in ("flash_attention_2", "flash_attention_3"):
        why = message("flat_needs_flash", "batch_flattening needs flash attention")
        teller.refuse("training.padding", why, near=("longest",))
    kind = _rows(teller, rows)
    key = "datasets"
    if teller.peek("objective") == "pretrain":
        kind = {"type": "pretrain", "text_column": rows.column or "text"}
        key = "pretraining_dataset"
        _streams(teller)
    datasets = [{"path": name, "ds_type": loader_of(name), **kind} for name in files_of(teller.job)]
    return kept(
        {
            key: datasets,
            "val_set_size": teller.job.data.eval_fraction,
            "sequence_len": teller.take("training.max_length"),
            "excess_length_strategy": "truncate",
            "sample_packing": packing,
            "pad_to_sequence_len": True if padding == "max_length" else None,
            "group_by_length": True if padding == "grouped" else None,
            "batch_flattening": True if flat else None,
        }
    )


def _streams(teller: Teller) -> None:
    """Rows of a pre-training are streamed, so that only steps can end the run."""
    if teller.peek("training.max_steps") is None:
        why = message(
            "streamed_rows", "Axolotl streams the rows of a pre-training: they have no end"
        )
        fix = message("state_max_steps", "state training.max_steps, or write objective: sft")
        teller.refuse("objective", why, how_to_fix=fix)


def _rows(teller: Teller, rows: Rows) -> dict[str, Any]:
    shape = rows.shape or "messages"
    if teller.peek("objective") in _PREFERENCES:
        return {"type": "chat_template.default"}
    if shape == "alpaca":
        return {"type": "alpaca"}
    if shape == "text":
        return {"type": "completion", "field": rows.column or "text"}
    if shape == "prompt_completion":
        prompt, answer = rows.pair or ("prompt", "completion")
        form = {"field_instruction": prompt, "field_output": answer, "format": "{instruction}"}
        return {"type": form}
    turns: dict[str, Any] = {"type": "chat_template", "field_messages": rows.column or "messages"}
    if shape == "sharegpt":
        turns |= {
            "field_messages": rows.column or "conversations",
            "message_property_mappings": {"role": "from", "content": "value"},
        }
    return turns


def _training(teller: Teller) -> dict[str, Any]:
    said = trainer_writing.batches(teller)
    duration = trainer_writing.duration(teller)
    saving = trainer_writing.saving(teller)
    names = {
        "per_device_train_batch_size": "micro_batch_size",
        "per_device_eval_batch_size": "eval_batch_size",
        "num_train_epochs": "num_epochs",
    }
    both = {names.get(name, name): value for name, value in {**said, **duration}.items()}
    optimizer = teller.take("training.optim")
    if optimizer is not None and optimizer not in (*OPTIMIZERS, "muon"):
        teller.refuse("training.optim", near=("adamw_torch_fused", "adamw_bnb_8bit"))
    adapts = teller.peek("method") not in (None, "full")
    checkpointing = trainer_writing.checkpointing(teller, also=("offload",))
    if teller.peek("training.gradient_checkpointing") == "offload":
        checkpointing["gradient_checkpointing"] = "offload"
    return kept(
        {
            "output_dir": "output",
            **both,
            "optimizer": optimizer,
            "learning_rate": 2e-4 if adapts else 2e-5,
            **checkpointing,
            "torch_compile": teller.take("training.torch_compile"),
            **saving,
        }
    )


def _kernels(teller: Teller) -> dict[str, Any]:
    """Liger's kernels and the loss: switches of plugins."""
    liger, loss = teller.take("training.use_liger_kernel"), teller.take("training.loss")
    if teller.peek("objective") in (*_PREFERENCES, "rm"):
        _no_fused_loss(teller, liger=bool(liger), loss=loss)
        return {}
    if liger and loss in (None, "auto", "fused"):
        return {"plugins": [_LIGER], **dict.fromkeys((*_LIGER_KERNELS, _FUSED), True)}
    if liger:
        teller.refuse("training.loss", near=("fused",))
    if loss == "fused":
        return {"plugins": [_LIGER], _FUSED: True}
    return {"chunked_cross_entropy": True} if loss == "chunked" else {}


def _no_fused_loss(teller: Teller, *, liger: bool, loss: str | None) -> None:
    """Preference losses take all logits: nothing fuses or cuts them."""
    if loss not in (None, "auto", "full"):
        teller.refuse("training.loss", near=("full",))
    if liger:
        why = message(
            "liger_with_preferences",
            "a job has Liger's kernels together with its fused loss, which objective {objective} "
            "does not take",
            objective=teller.peek("objective"),
        )
        teller.refuse("training.use_liger_kernel", why, near=("false",))


def _parallelism(teller: Teller) -> dict[str, Any]:
    strategy = teller.take("parallelism.strategy")
    offload = teller.take("parallelism.offload") or "none"
    degrees = {
        f"{name}_parallel_size": degree
        for name in ("tensor", "context")
        if (degree := teller.take(f"parallelism.{name}")) not in (None, 1)
    }
    if strategy is None or strategy in STRATEGIES_WITHOUT_ENGINE:
        if offload != "none":
            teller.refuse("parallelism.offload", near=("zero2", "zero3", "fsdp2"))
        return degrees
    if strategy in ENGINES:
        trainer_writing.engine_keys(teller)
        return {"deepspeed": deepspeed_writing.FILE, **degrees}
    if strategy not in ("fsdp", "fsdp2"):
        teller.refuse("parallelism.strategy", near=("ddp", "zero3", "fsdp2"))
        return degrees
    if offload == "optimizer":
        why = message("fsdp_offloads_all", "FSDP offloads parameters and optimizer together")
        teller.refuse("parallelism.offload", why, near=("params",))
    config = {
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "offload_params": offload == "params",
        "state_dict_type": "FULL_STATE_DICT",
        "reshard_after_forward": True if strategy == "fsdp2" else None,
    }
    version = 2 if strategy == "fsdp2" else 1
    return {"fsdp_version": version, "fsdp_config": kept(config), **degrees}
