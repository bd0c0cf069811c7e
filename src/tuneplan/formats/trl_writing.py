"""A job as the YAML of TRL's command line (``trl sft --config train.yaml``).

Keys: trl ``trainer/sft_config.py``, ``dpo_config.py``, ``model_config.py`` and ``scripts/utils.py``
of 1.16, and of 0.29 for what is spelt otherwise there.
"""

from __future__ import annotations

from typing import Any, Final

from tuneplan.formats import deepspeed_writing, trainer_writing
from tuneplan.formats.data_writing import UNKNOWN, Rows, files_of, loader_of
from tuneplan.formats.file_text import yaml_text
from tuneplan.formats.foreign import ExportedFile
from tuneplan.formats.launching import Program
from tuneplan.formats.telling import Teller, kept
from tuneplan.formats.trainer_writing import at_least
from tuneplan.language import message
from tuneplan.spec.stated import StatedJob

NAME: Final = "trl"
_FILES: Final = {"dpo": "dpo.yaml", "kto": "kto.yaml", "rm": "reward.yaml"}  # else train.yaml
OLDEST: Final = "0.29"  # before it, arguments were spelt in other ways
_SCRIPTS: Final = {"sft": "sft", "dpo": "dpo", "kto": "kto", "rm": "reward"}
_METHODS: Final = {"full": False, "lora": True, "dora": True, "qlora": True}
_ATTENTION: Final = (
    *("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"),
)
_READS: Final = (None, "messages", "prompt_completion", "text", "preference")


def dump(job: StatedJob, *, rows: Rows = UNKNOWN) -> tuple[ExportedFile, ...]:
    """``train.yaml`` (``dpo.yaml``, ...), and DeepSpeed's JSON where ZeRO shards the job.

    Raises:
        CannotExport: TRL has no key for some of the settings; all of them named.
    """
    teller = Teller(job, framework="TRL")
    teller.word("objective", _SCRIPTS)
    trainer_writing.refuse_old(teller, "trl", OLDEST)
    precision = trainer_writing.precision_flags(teller, teller.take("training.precision"))
    dtype = teller.take("training.dtype")
    trainer_writing.masters(teller, fp32_weights=dtype == "float32")
    sections = (
        (message("section_model", "Model"), _model(teller, dtype)),
        (message("section_adapter", "Adapters"), _adapter(teller)),
        (message("section_quantization", "Quantised base"), _quantization(teller)),
        (message("section_data", "Data"), _data(teller, rows)),
        (
            message("section_training", "Training"),
            {
                "output_dir": "output",
                **precision,
                **trainer_writing.batches(teller),
                **trainer_writing.duration(teller),
                **trainer_writing.optimizer(teller),
                **trainer_writing.checkpointing(teller),
                **_loss(teller),
                **trainer_writing.switches(teller),
                **trainer_writing.saving(teller),
            },
        ),
        (
            message("section_parallelism", "Several accelerators"),
            trainer_writing.sharding(teller, deepspeed_file=deepspeed_writing.FILE),
        ),
    )
    teller.finish()
    purpose = message("purpose_trl", "the job for TRL's command line")
    own = ExportedFile(name=_file(job), text=yaml_text(*sections), purpose=purpose)
    return (own, *deepspeed_writing.companion(job))


def program(job: StatedJob) -> Program:
    """TRL's script as a module: every launcher starts it alike."""
    script = _SCRIPTS.get(job.recipe.objective or "sft", "sft")
    return Program(module=f"trl.scripts.{script}", arguments=("--config", _file(job)))


def _file(job: StatedJob) -> str:
    """The name tells the trainer, which no key of the file does."""
    return _FILES.get(job.recipe.objective or "", "train.yaml")


def _model(teller: Teller, dtype: str | None) -> dict[str, Any]:
    attention = teller.take("training.attn_implementation")
    if attention is not None and attention not in _ATTENTION:
        teller.refuse("training.attn_implementation", near=_ATTENTION)
    return kept(
        {
            "model_name_or_path": teller.job.model,
            "dtype": dtype,
            "attn_implementation": attention,
        }
    )


def _adapter(teller: Teller) -> dict[str, Any]:
    peft = teller.word("method", _METHODS)
    if not peft:
        return {}
    targets = teller.take("adapter.target_modules")
    dora = teller.take("adapter.use_dora")
    return kept(
        {
            "use_peft": True,
            "lora_r": teller.take("adapter.r"),
            "lora_alpha": teller.whole("adapter.lora_alpha"),
            "lora_dropout": teller.take("adapter.lora_dropout"),
            "lora_target_modules": (targets,) if isinstance(targets, str) else targets,
            "lora_target_parameters": teller.take("adapter.target_parameters") or None,
            "lora_modules_to_save": teller.take("adapter.modules_to_save") or None,
            "use_rslora": teller.take("adapter.use_rslora"),
            "use_dora": True if teller.peek("method") == "dora" else dora,
        }
    )


def _quantization(teller: Teller) -> dict[str, Any]:
    if teller.peek("method") != "qlora":
        return {}
    bits = teller.take("quantization.bits")
    if bits not in (None, 4, 8):
        teller.refuse("quantization.bits", near=("4", "8"))
    if bits == 8:
        if teller.take("quantization.type") not in (None, "int8"):
            teller.refuse("quantization.type", near=("int8",))
        teller.take("quantization.double_quant")  # 8 bits have no scales of scales
        return {"load_in_8bit": True}
    kind = teller.take("quantization.type")
    if kind not in (None, "nf4", "fp4"):
        teller.refuse("quantization.type", near=("nf4", "fp4"))
    return kept(
        {
            "load_in_4bit": True,
            "bnb_4bit_quant_type": kind,
            "use_bnb_nested_quant": teller.take("quantization.double_quant"),
        }
    )


def _data(teller: Teller, rows: Rows) -> dict[str, Any]:
    if rows.shape not in _READS:
        why = message(
            "rows_not_read",
            "{framework} does not read {shape} rows",
            framework=teller.framework,
            shape=rows.shape,
        )
        fix = message("rows_to_messages", "turn the rows into messages with role and content")
        teller.refuse("data.path", why, how_to_fix=fix)
    files = files_of(teller.job)
    data: dict[str, Any] = {
        "datasets": [{"path": loader_of(files[0]), "data_files": list(files), "split": "train"}]
    }
    if rows.shape == "text" and rows.column not in (None, "text"):
        data["dataset_text_field"] = rows.column
    if teller.job.data.eval_fraction:
        data["test_split_size"] = teller.job.data.eval_fraction
    return {**data, **_lengths(teller)}


def _lengths(teller: Teller) -> dict[str, Any]:
    language = teller.peek("objective") in (None, "sft")
    packing = teller.take("training.packing")
    if packing and not language:
        why = message("packs_sft_only", "TRL packs samples for objective sft only")
        teller.refuse("training.packing", why)
    grouped = trainer_writing.sampling(teller)
    padding = teller.take("training.padding")
    free = padding == "none" and not packing
    if (free and not language) or padding == "max_length":
        teller.refuse("training.padding", near=("longest", "grouped"))
    return kept(
        {
            "max_length": teller.take("training.max_length"),
            "packing": packing if language else None,
            "padding_free": True if free else None,
            **grouped,
        }
    )


def _loss(teller: Teller) -> dict[str, Any]:
    """``loss_type`` from 1.7 to 1.14; one fused head of its own from 1.15 on.

    Liger's fused loss is refused from 1.15 (``sft_trainer.py``).
    """
    loss = teller.peek("training.loss")
    one_head = at_least(teller.job, "trl", "1.15") and teller.peek("objective") in (None, "sft")
    chunks = at_least(teller.job, "trl", "1.7") and teller.peek("objective") in (None, "sft")
    if loss in (None, "auto"):
        teller.take("training.loss")
        return {}
    if one_head:
        teller.take("training.loss")
        if loss != "chunked":
            why = message("one_head", "TRL 1.15 and newer has one head and loss of its own")
            teller.refuse("training.loss", why, near=("auto",))
        return {}
    if chunks and loss in ("chunked", "full") and not teller.peek("training.use_liger_kernel"):
        teller.take("training.loss")
        return {"loss_type": "chunked_nll" if loss == "chunked" else "nll"}
    trainer_writing.loss_without_word(teller)
    return {}
