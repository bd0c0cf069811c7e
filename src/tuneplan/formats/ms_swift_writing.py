"""A job as a command of ms-swift (``swift sft``, ``swift pt``, ``swift rlhf``) in a script.

Arguments: ms-swift ``swift/arguments/*.py`` 4.6; ``cli/main.py`` starts torchrun where
``NPROC_PER_NODE`` is set.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, Final

from tuneplan.formats import deepspeed_writing, trainer_writing
from tuneplan.formats.data_writing import UNKNOWN, Rows, files_of
from tuneplan.formats.foreign import ExportedFile
from tuneplan.formats.launching import Program, script
from tuneplan.formats.telling import Teller, kept
from tuneplan.formats.trainer_writing import at_least
from tuneplan.language import message
from tuneplan.spec.stated import StatedJob

NAME: Final = "ms-swift"
FILE: Final = "train.sh"
OLDEST: Final = "3"
_BUCKET: Final = 200_000_000  # of its own ZeRO-2 file (swift/config/zero2.json)
_COMMANDS: Final = {
    "sft": ("sft", None),
    "pretrain": ("pt", None),
    **{name: ("rlhf", name) for name in ("dpo", "kto", "orpo", "simpo", "rm")},
}
_METHODS: Final = {"full": "full", "lora": "lora", "dora": "lora", "qlora": "lora"}
_ATTENTION: Final = {
    "eager": "eager",
    "sdpa": "sdpa",
    "flash_attention_2": "flash_attention_2",
    "flash_attention_3": "flash_attention_3",
    "flex_attention": "flex_attention",
}


def dump(job: StatedJob, *, rows: Rows = UNKNOWN) -> tuple[ExportedFile, ...]:  # noqa: ARG001
    """``train.sh``, and DeepSpeed's JSON where ZeRO shards the job.

    ms-swift finds out by itself how rows look, so ``rows`` changes nothing.

    Raises:
        CannotExport: ms-swift has no argument for some of the settings; all of them named.
    """
    command, options = _command(job)
    ranks = job.hardware.accelerators_per_node[:1]
    lines = [f"export NPROC_PER_NODE={ranks[0]}"] if ranks and ranks[0] > 1 else []
    words = [f"swift {command}", *(_argument(name, value) for name, value in options.items())]
    text = script(*lines, " \\\n  ".join(words))
    overlaps = not at_least(job, "ms-swift", "3.3")
    return (
        ExportedFile(name=FILE, text=text, purpose=message("purpose_swift", "the job for swift")),
        *deepspeed_writing.companion(job, overlap_comm=overlaps, bucket_elements=_BUCKET),
    )


def program(job: StatedJob) -> Program:
    """The module of the command, with every argument."""
    command, options = _command(job)
    words: list[str] = []
    for name, value in options.items():
        words += [f"--{name}", *_values(value)]
    return Program(module=f"swift.cli.{command}", arguments=tuple(words))


def _command(job: StatedJob) -> tuple[str, dict[str, Any]]:
    teller = Teller(job, framework="ms-swift")
    trainer_writing.refuse_old(teller, "ms-swift", OLDEST)
    command, kind = teller.word("objective", _COMMANDS) or ("sft", None)
    options = {
        "rlhf_type": kind,
        "model": job.model,
        **_weights(teller),
        **_tuner(teller),
        "dataset": files_of(job),
        "split_dataset_ratio": job.data.eval_fraction or 0,
        **_lengths(teller),
        "output_dir": "output",
        **trainer_writing.batches(teller),
        **trainer_writing.duration(teller),
        **trainer_writing.optimizer(teller),
        **trainer_writing.checkpointing(teller),
        **trainer_writing.switches(teller),
        **trainer_writing.saving(teller),
        **trainer_writing.sharding(teller, deepspeed_file=deepspeed_writing.FILE),
    }
    trainer_writing.loss_without_word(teller)
    teller.finish()
    return command, kept(options)


def _weights(teller: Teller) -> dict[str, Any]:
    precision, dtype = teller.take("training.precision"), teller.take("training.dtype")
    trainer_writing.masters(teller, fp32_weights=dtype == "float32")
    return {
        "torch_dtype": None if dtype == "auto" else dtype,
        **trainer_writing.precision_flags(teller, precision),
        "attn_impl": teller.word("training.attn_implementation", _ATTENTION),
    }


def _tuner(teller: Teller) -> dict[str, Any]:
    """``tuner_type`` since 4, ``train_type`` before."""
    method = teller.peek("method")
    tuner = teller.word("method", _METHODS)
    key = "tuner_type" if at_least(teller.job, "ms-swift", "4") else "train_type"
    if tuner != "lora":
        return {key: tuner}
    targets = teller.take("adapter.target_modules")
    dora = teller.take("adapter.use_dora")
    return {
        key: tuner,
        **(_quantization(teller) if method == "qlora" else {}),
        "lora_rank": teller.take("adapter.r"),
        "lora_alpha": teller.whole("adapter.lora_alpha"),
        "lora_dropout": teller.take("adapter.lora_dropout"),
        "target_modules": (targets,) if isinstance(targets, str) else targets,
        "modules_to_save": teller.take("adapter.modules_to_save") or None,
        "use_rslora": teller.take("adapter.use_rslora"),
        "use_dora": True if method == "dora" else dora,
    }


def _quantization(teller: Teller) -> dict[str, Any]:
    bits, kind = teller.take("quantization.bits"), teller.take("quantization.type")
    double = teller.take("quantization.double_quant")  # 8 bits have no scales of scales
    if bits == 8 or kind == "int8":
        return {"quant_method": "bnb", "quant_bits": 8}
    if bits not in (None, 4) or kind not in (None, "nf4", "fp4"):
        teller.refuse("quantization.type", near=("nf4", "fp4"))
    return {
        "quant_method": "bnb",
        "quant_bits": 4,
        "bnb_4bit_quant_type": kind,
        "bnb_4bit_use_double_quant": double,
    }


def _lengths(teller: Teller) -> dict[str, Any]:
    packing = teller.take("training.packing")
    grouped = trainer_writing.sampling(teller)
    padding = teller.take("training.padding")
    if padding == "max_length":
        teller.refuse("training.padding", near=("longest", "grouped", "none"))
    return {
        "max_length": teller.take("training.max_length"),
        "truncation_strategy": "right",
        "packing": packing,
        "padding_free": True if padding == "none" and not packing else None,
        **grouped,
    }


def _argument(name: str, value: Any) -> str:
    return " ".join([f"--{name}", *map(shlex.quote, _values(value))])


def _values(value: Any) -> list[str]:
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, Mapping):
        return [json.dumps(value)]
    if isinstance(value, tuple | list):
        return [str(one) for one in value]
    return [str(value)]
