"""A job as a YAML of LLaMA-Factory, with the entry of its data in ``dataset_info.json``.

Keys: LLaMA-Factory ``hparams/*_args.py`` 0.9.5 and 0.9.3; formats of rows: ``data/parser.py``.
"""

from __future__ import annotations

from typing import Any, Final

from tuneplan.formats import deepspeed_writing, trainer_writing
from tuneplan.formats.data_writing import UNKNOWN, Rows, files_of
from tuneplan.formats.file_text import json_text, yaml_text
from tuneplan.formats.foreign import ExportedFile
from tuneplan.formats.launching import Program
from tuneplan.formats.telling import Teller, kept
from tuneplan.formats.trainer_writing import at_least
from tuneplan.language import message
from tuneplan.spec.stated import StatedJob

NAME: Final = "llamafactory"
FILE: Final = "train.yaml"
OLDEST: Final = "0.9"
_DATA: Final = "train"
_STAGES: Final = {
    "sft": {"stage": "sft"},
    "pretrain": {"stage": "pt"},
    "rm": {"stage": "rm"},
    "dpo": {"stage": "dpo", "pref_loss": "sigmoid"},
    "orpo": {"stage": "dpo", "pref_loss": "orpo"},
    "simpo": {"stage": "dpo", "pref_loss": "simpo"},
    "kto": {"stage": "kto"},
}
_METHODS: Final = {"full": "full", "freeze": "freeze", "lora": "lora", "dora": "lora"}
_ATTENTION: Final = {
    "eager": "disabled",
    "sdpa": "sdpa",
    "flash_attention_2": "fa2",
    "flash_attention_3": "fa3",
    "auto": "auto",
}
_LOADED_AS: Final = {"bf16": "bfloat16", "fp16": "float16", "none": "bfloat16"}
_TURNS: Final = {
    "role_tag": "role",
    "content_tag": "content",
    "user_tag": "user",
    "assistant_tag": "assistant",
    "system_tag": "system",
}


def dump(job: StatedJob, *, rows: Rows = UNKNOWN) -> tuple[ExportedFile, ...]:
    """``train.yaml``, ``dataset_info.json``, and DeepSpeed's JSON where ZeRO shards the job.

    Raises:
        CannotExport: LLaMA-Factory has no key for some of the settings; all of them named.
    """
    teller = Teller(job, framework="LLaMA-Factory")
    trainer_writing.refuse_old(teller, "llamafactory", OLDEST)
    precision = _precision(teller)
    sections = (
        (message("section_model", "Model"), _model(teller)),
        (message("section_method", "Method"), _method(teller)),
        (message("section_data", "Data"), _data(teller)),
        (
            message("section_training", "Training"),
            {
                "output_dir": "output",
                **precision,
                **trainer_writing.batches(teller),
                **trainer_writing.duration(teller),
                **trainer_writing.optimizer(teller),
                **_switches(teller),
                **trainer_writing.saving(teller),
            },
        ),
        (
            message("section_parallelism", "Several accelerators"),
            trainer_writing.sharding(teller, deepspeed_file=deepspeed_writing.FILE),
        ),
    )
    teller.finish()
    purpose = message("purpose_llamafactory", "the job for llamafactory-cli train")
    overlaps = not at_least(job, "llamafactory", "0.9.4")
    return (
        ExportedFile(name=FILE, text=yaml_text(*sections), purpose=purpose),
        _dataset_info(job, rows),
        *deepspeed_writing.companion(job, overlap_comm=overlaps),
    )


def program(job: StatedJob) -> Program:  # noqa: ARG001 - every format has the same surface
    """The module that ``llamafactory-cli train`` starts under torchrun."""
    return Program(module="llamafactory.launcher", arguments=(FILE,))


def _precision(teller: Teller) -> dict[str, Any]:
    """The base is loaded in the compute dtype; ``pure_bf16`` is bf16 without autocast.

    Without a half format what is trained is cast to fp32 and the frozen base stays as it is stored
    (``model/patcher.py``, ``model/adapter.py``).
    """
    precision, dtype = teller.take("training.precision"), teller.take("training.dtype")
    trainer_writing.masters(teller, fp32_weights=dtype == "float32")
    loaded = _LOADED_AS.get(precision or "", "float32" if precision else None)
    if dtype not in (None, "auto") and loaded is not None and dtype != loaded:
        why = message(
            "loaded_in_compute_dtype",
            "LLaMA-Factory loads the base in the dtype it computes in: {loaded} for precision "
            "{precision}",
            loaded=loaded,
            precision=precision,
        )
        teller.refuse("training.dtype", why, near=(loaded,))
    if precision in ("fp32", "tf32") and teller.peek("method") not in (None, "full"):
        why = message("fp32_base", "without bf16 or fp16 the frozen base stays in its stored dtype")
        teller.refuse("training.precision", why, near=("bf16", "fp16"))
    if precision == "none":
        if teller.peek("parallelism.strategy") == "zero3":
            why = message("pure_bf16_zero3", "pure_bf16 does not run under ZeRO-3")
            teller.refuse("training.precision", why, near=("bf16",))
        return {"pure_bf16": True}
    flags = trainer_writing.precision_flags(teller, precision)
    return {name: value for name, value in flags.items() if value}


def _model(teller: Teller) -> dict[str, Any]:
    model = {
        "model_name_or_path": teller.job.model,
        "flash_attn": teller.word("training.attn_implementation", _ATTENTION),
    }
    if teller.peek("method") != "qlora":
        return kept(model)
    bits = teller.take("quantization.bits")
    kind = teller.take("quantization.type")
    if bits not in (None, 4, 8):
        teller.refuse("quantization.bits", near=("4", "8"))
    if kind not in ((None, "int8") if bits == 8 else (None, "nf4", "fp4")):
        teller.refuse("quantization.type", near=("int8",) if bits == 8 else ("nf4", "fp4"))
    return kept(
        {
            **model,
            "quantization_bit": bits or 4,
            "quantization_method": "bnb",
            "quantization_type": kind if bits != 8 else None,
            "double_quantization": teller.take("quantization.double_quant"),
        }
    )


def _method(teller: Teller) -> dict[str, Any]:
    stage = teller.word("objective", _STAGES)
    method = teller.word("method", {**_METHODS, "qlora": "lora"})
    said = {**(stage or {"stage": "sft"}), "do_train": True, "finetuning_type": method}
    if method == "freeze":
        said["freeze_trainable_layers"] = teller.take("training.trained_layers")
    if method != "lora":
        return kept(said)
    targets = teller.take("adapter.target_modules")
    saved = teller.take("adapter.modules_to_save")
    dora = teller.take("adapter.use_dora")
    return kept(
        {
            **said,
            "lora_rank": teller.take("adapter.r"),
            "lora_alpha": teller.whole("adapter.lora_alpha"),
            "lora_dropout": teller.take("adapter.lora_dropout"),
            "lora_target": "all" if targets == "all-linear" else _listed(targets),
            "additional_target": _listed(saved) if saved else None,
            "use_rslora": teller.take("adapter.use_rslora"),
            "use_dora": True if teller.peek("method") == "dora" else dora,
        }
    )


def _listed(names: str | tuple[str, ...] | None) -> str | None:
    return ",".join(names) if isinstance(names, tuple) else names


def _data(teller: Teller) -> dict[str, Any]:
    grouped = trainer_writing.sampling(teller)
    packing = teller.take("training.packing")
    padding = teller.take("training.padding")
    if padding in ("max_length", "none") and not (packing and padding == "none"):
        teller.refuse("training.padding", near=("longest", "grouped"))
    return kept(
        {
            "dataset": ",".join(_names(teller.job)),
            "dataset_dir": ".",
            "cutoff_len": teller.take("training.max_length"),
            "packing": packing,
            "val_size": teller.job.data.eval_fraction,
            **grouped,
        }
    )


def _switches(teller: Teller) -> dict[str, Any]:
    """Checkpointing is on unless disabled; the offloading kind is that of unsloth."""
    trainer_writing.loss_without_word(teller)
    kind = teller.take("training.gradient_checkpointing")
    if isinstance(kind, str) and kind != "offload":
        teller.refuse("training.gradient_checkpointing", near=("true", "false", "offload"))
    reentrant = teller.take("training.use_reentrant")
    return kept(
        {
            "disable_gradient_checkpointing": None if kind is None else kind is False,
            "use_unsloth_gc": True if kind == "offload" else None,
            "use_reentrant_gc": reentrant if kind is not False else None,
            "enable_liger_kernel": teller.take("training.use_liger_kernel"),
            "torch_compile": teller.take("training.torch_compile"),
        }
    )


def _names(job: StatedJob) -> tuple[str, ...]:
    """One data set a file: ``train``, ``train_2``, ..."""
    return tuple(_DATA if at == 0 else f"{_DATA}_{at + 1}" for at in range(len(files_of(job))))


def _dataset_info(job: StatedJob, rows: Rows) -> ExportedFile:
    """``dataset_info.json``: one entry a file, by the layout of its rows."""
    entry = _entry(job, rows)
    named = zip(_names(job), files_of(job), strict=True)
    tree = {name: {"file_name": file, **entry} for name, file in named}
    purpose = message("purpose_dataset_info", "the entry of the data, which train.yaml names")
    return ExportedFile(name="dataset_info.json", text=json_text(tree), purpose=purpose)


def _entry(job: StatedJob, rows: Rows) -> dict[str, Any]:
    shape = rows.shape or "messages"
    ranked = {"ranking": True} if job.recipe.objective in ("dpo", "orpo", "simpo", "rm") else {}
    if shape == "sharegpt":
        return {"formatting": "sharegpt", **ranked}
    if shape == "alpaca":
        return {"formatting": "alpaca", **ranked}
    if shape == "prompt_completion":
        prompt, answer = rows.pair or ("prompt", "completion")
        return {"formatting": "alpaca", "columns": {"prompt": prompt, "response": answer}}
    if shape == "text":
        return {"formatting": "alpaca", "columns": {"prompt": rows.column or "text"}}
    columns = {"messages": rows.column or "messages"}
    if ranked:
        columns |= {"chosen": "chosen", "rejected": "rejected"}
    return {"formatting": "sharegpt", "columns": columns, "tags": dict(_TURNS), **ranked}
