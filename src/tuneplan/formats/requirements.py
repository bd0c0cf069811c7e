"""What has to be installed for an exported job, as pip's ``requirements.txt``."""

from __future__ import annotations

from typing import Final

from tuneplan.formats.foreign import ExportedFile
from tuneplan.formats.trainer_writing import ENGINES
from tuneplan.language import message
from tuneplan.spec.stated import StatedJob

FILE: Final = "requirements.txt"
_FRAMEWORKS: Final = {"ms-swift": "ms-swift", "torchtune": "torchtune torchao"}
_BITSANDBYTES: Final = ("bnb", "paged", "adamw_8bit", "lion")


def requirements_file(job: StatedJob, *, stated: StatedJob) -> ExportedFile:
    """The framework and what the settings need besides.

    Args:
        job: As written, without blanks.
        stated: As its user states it: only these versions are fixed.
    """
    recipe = job.recipe
    framework = recipe.framework or "trl"
    names = [*_FRAMEWORKS.get(framework, framework).split(), *_needed(job)]
    versions = dict(stated.recipe.software)
    if stated.recipe.framework_version and stated.recipe.framework == framework:
        versions[framework] = stated.recipe.framework_version
    lines = [
        f"{name}=={versions[name]}" if name in versions else name
        for name in dict.fromkeys([*names, *versions])
        if name not in ("python", "cuda", "date")
    ]
    purpose = message("purpose_requirements", "for pip install -r: the framework and what it needs")
    return ExportedFile(name=FILE, text="\n".join(lines) + "\n", purpose=purpose)


def _needed(job: StatedJob) -> list[str]:
    recipe, training = job.recipe, job.recipe.training
    needed = []
    if recipe.method in ("lora", "dora", "qlora") and recipe.framework != "torchtune":
        needed.append("peft")
    optim = training.optim or ""
    quantized = recipe.method == "qlora" and recipe.framework != "torchtune"
    if quantized or any(word in optim for word in _BITSANDBYTES):
        needed.append("bitsandbytes")
    if recipe.parallelism.strategy in ENGINES:
        needed.append("deepspeed")
    if training.use_liger_kernel or training.loss == "fused":
        needed.append("liger-kernel")
    if training.attn_implementation == "flash_attention_2":
        needed.append("flash-attn")
    return needed
