"""Keys that contradict each other: one function a question, each finding a mistake or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tuneplan.contract.data_questions import kinds_of_data
from tuneplan.contract.job import JobFile
from tuneplan.contract.layout_questions import engine_keys, global_batch, world
from tuneplan.contract.method_questions import (
    adapter_without_adapters,
    quantization_type,
    quantized_base,
    trained_layers,
)
from tuneplan.contract.questions import get, mistake_at
from tuneplan.contract.values import nearest
from tuneplan.diagnosis.registry import RULES
from tuneplan.errors import Mistake
from tuneplan.language import message


def contradictions(job: JobFile) -> list[Mistake]:
    """Every pair of keys that cannot both be meant."""
    return [mistake for question in _QUESTIONS for mistake in question(job)]


def is_about_absence(mistake: Mistake) -> bool:
    """Whether the mistake is that something is missing, not that two things disagree."""
    return mistake.message.code in ("samples_without_tokens", "tokens_without_samples")


def _padding(job: JobFile) -> Iterator[Mistake]:
    if get(job, "training.packing") is True and get(job, "training.padding") is not None:
        yield mistake_at(
            "training.padding",
            message("packed_and_padded", "packed sequences are not padded"),
            message("packing_or_padding", "write packing: false, or leave padding out"),
            job=job,
        )


def _loss(job: JobFile) -> Iterator[Mistake]:
    if get(job, "training.use_liger_kernel") and get(job, "training.loss") in ("full", "chunked"):
        yield mistake_at(
            "training.loss",
            message(
                "liger_loss",
                "use_liger_kernel fuses the loss with the output head, loss says {loss}",
                loss=get(job, "training.loss"),
            ),
            message("loss_auto", "write loss: auto, or use_liger_kernel: false"),
            job=job,
        )


def _silenced(job: JobFile) -> Iterator[Mistake]:
    for name in get(job, "lint.ignore") or ():
        if name not in RULES:
            yield Mistake(
                message=message("unknown_rule", "no rule is called {name!r}", name=name),
                path="lint.ignore",
                value=name,
                near=nearest(name, tuple(RULES)),
                how_to_fix=message("rule_names", "docs/reference/lint lists the rules"),
            )


def _user_files(job: JobFile) -> Iterator[Mistake]:
    for key, meant in (("accelerators", "hardware.accelerator"), ("models", "model")):
        for name in get(job, key) or ():
            if not name.lower().endswith((".yaml", ".yml", ".csv", ".toml", ".json")):
                yield Mistake(
                    message=message(
                        "not_a_fact_file",
                        "{key} lists your own fact files (.yaml, .csv), {name!r} is none",
                        key=key,
                        name=name,
                    ),
                    path=key,
                    value=name,
                    near=(meant,),
                )


_QUESTIONS: Final[tuple[Callable[[JobFile], Iterator[Mistake]], ...]] = (
    quantized_base,
    quantization_type,
    adapter_without_adapters,
    trained_layers,
    kinds_of_data,
    _padding,
    _loss,
    world,
    engine_keys,
    global_batch,
    _user_files,
    _silenced,
)
