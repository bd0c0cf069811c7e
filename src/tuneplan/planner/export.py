"""Use-case: a job as the configuration of a framework, with files that start it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tuneplan.errors import CannotExport, InputError, InvalidRequest, Mistake
from tuneplan.formats.data_writing import Rows
from tuneplan.formats.exports import ENGINES, WRITERS, engine_files, launch_files, writer_named
from tuneplan.formats.foreign import ExportedFile
from tuneplan.formats.launching import Launch
from tuneplan.formats.requirements import requirements_file
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.planner.dataset import Dataset
from tuneplan.planner.estimate import memory_by_formula, resolve_job
from tuneplan.planner.filling import FOLLOWS, filled
from tuneplan.planner.resolving import Resolved, told_by_line
from tuneplan.planner.rows import rows_of
from tuneplan.planner.sources import Sources
from tuneplan.spec.answer import Assumption, Estimate, Notice
from tuneplan.spec.stated import StatedJob
from tuneplan.units import format_gib

# Blanks that a framework may lack a key for without training something else.
_MAY_BE_LEFT_OUT: Final = frozenset(
    f"training.{name}"
    for name in (
        *("per_device_eval_batch_size", "eval_strategy", "eval_steps"),
        *("save_strategy", "save_steps", "save_total_limit", "use_reentrant"),
    )
)
_OTHER_MACHINES: Final = frozenset({"skypilot", "dstack", "kubernetes", "pytorchjob"})
_SAME_PEAK: Final = 0.005  # share of it


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExport:
    """The files of an exported job.

    Attributes:
        framework, framework_version: That they are written for.
        job: As it is written: every blank filled.
        assumptions: What filled the blanks.
        peak_bytes: Allocated memory at the peak as the job was planned, rows at full length, or of
            an ordinary one where nothing is cut.
        exported_peak_bytes: The same, with rows as long, of what the framework makes of the files;
            None for an engine.
    """

    framework: str
    framework_version: str | None
    job: StatedJob
    files: tuple[ExportedFile, ...]
    assumptions: tuple[Assumption, ...]
    notices: tuple[Notice, ...]
    peak_bytes: Estimate
    exported_peak_bytes: Estimate | None


@told_by_line
def export_job(
    job: StatedJob,
    sources: Sources,
    *,
    to: str,
    launchers: Sequence[str] = (),
    folder: Path | None = None,
) -> JobExport:
    """Write a job for a framework, with its blanks filled so that the files do what was planned.

    Args:
        job: One configuration; a choice is refused.
        sources: Catalogues.
        to: Framework (``trl``, ``llamafactory``, ...) or engine (``deepspeed``, ``accelerate``).
        launchers: Kinds of launch file.
        folder: Where the files will lie, which paths are made relative to; None for the working
            directory.

    Raises:
        CannotExport: The framework has no way to say a setting; all of them, with reasons.
        InputError: As ``estimate_job``.
    """
    if to not in ENGINES:
        writer_named(to)
    _refuse_choices(job)
    rows = rows_of(job)
    own = job.recipe.framework or (to if to in WRITERS else None)
    planned = replace(job, recipe=replace(job.recipe, framework=own))
    resolved = resolve_job(planned, sources, dataset=Dataset(statistics=None))
    written = _for_framework(filled(resolved), resolved, to=to, folder=folder)
    files, written, notices = _written(written, job, own=own, to=to, rows=rows)
    if launchers:
        files = (*files, *_launch(written, resolved, files, to=to, kinds=launchers))
    peak = memory_by_formula(resolved).ranges.peak_bytes
    exported = _exported_peak(written, resolved, sources, to=to)
    notices += _peaks_differ(peak, exported, resolved, own=own, to=to)
    if to in WRITERS:
        notices.append(Notice(message=_NO_LEARNING_RATE))
    if to in WRITERS and not job.data.path:
        notices.append(Notice(message=_NO_FILES))
    notices += _data_elsewhere(written, launchers)
    assumptions, told = _of_plan(resolved, job)
    return JobExport(
        framework=to,
        framework_version=written.recipe.framework_version,
        job=written,
        files=files,
        assumptions=assumptions,
        notices=(*told, *notices),
        peak_bytes=peak,
        exported_peak_bytes=exported,
    )


def _of_plan(
    resolved: Resolved, job: StatedJob
) -> tuple[tuple[Assumption, ...], tuple[Notice, ...]]:
    """What to tell of the plan; its data are not read, so no word of missing ones if stated."""
    kept = tuple(one for one in resolved.assumptions if one.name not in FOLLOWS)
    if not job.data.given:
        return kept, resolved.notices
    return (
        tuple(one for one in kept if not _is_ordinary_length(one)),
        tuple(one for one in resolved.notices if one.message.code != "no_data_no_length"),
    )


def _is_ordinary_length(assumption: Assumption) -> bool:
    return assumption.reason.code == "ordinary_length"


_NO_LEARNING_RATE: Final = message(
    "no_learning_rate",
    "a job says no learning rate, schedule, warm-up or weight decay: the framework's own count, or "
    "a usual learning rate where it demands one; write yours into the files",
)
_NO_FILES: Final = message(
    "no_data_files",
    "the job names no files of samples: put yours in the place of train.jsonl",
)


def _data_elsewhere(job: StatedJob, kinds: Sequence[str]) -> list[Notice]:
    """Machines that are not this one see the folder of the files, or a volume, and no other."""
    paths = [path for path in job.data.path if path.startswith("..") or Path(path).is_absolute()]
    if not paths or not set(kinds) & _OTHER_MACHINES:
        return []
    text = message(
        "data_elsewhere",
        "{paths} lies outside of the folder that the machines see: copy it there, and name it so",
        paths=", ".join(paths),
    )
    return [Notice(message=text, path="data.path")]


def _refuse_choices(job: StatedJob) -> None:
    """Every list that is a choice, named at once."""
    choices: dict[str, tuple[Any, ...]] = dict(job.choices)
    for name in ("accelerator", "accelerators_per_node"):
        values = getattr(job.hardware, name)
        if len(values) > 1:
            choices[f"hardware.{name}"] = values
    mistakes = [
        Mistake(
            message=message(
                "choice_in_export", "a file says one value; {key} is a choice", key=key
            ),
            path=key,
            value=list(values),
            near=tuple(str(value) for value in values[:3]),
            how_to_fix=message("choice_in_export_fix", "name one, e.g. that of `tuneplan plan`"),
        )
        for key, values in choices.items()
    ]
    if mistakes:
        raise CannotExport(mistakes)


def _for_framework(
    job: StatedJob, resolved: Resolved, *, to: str, folder: Path | None
) -> StatedJob:
    """The filled job under the framework it is written for, paths as its folder sees them."""
    recipe = job.recipe
    if to in WRITERS and recipe.framework != to:
        software = {k: v for k, v in recipe.software.items() if k in resolved.job.recipe.software}
        training = recipe.training
        if training.max_length is None:  # nothing was cut; the other framework may cut
            training = replace(training, max_length=resolved.recipe.max_length)
        recipe = replace(
            recipe, framework=to, framework_version=None, software=software, training=training
        )
    base = Path(job.base_path)
    paths = tuple(_beside(base / name, folder) for name in job.data.path)
    return replace(
        job,
        model=_model(job, resolved, folder),
        recipe=recipe,
        data=replace(job.data, path=paths),
    )


def _model(job: StatedJob, resolved: Resolved, folder: Path | None) -> str:
    """A folder relative to the files, or the name on the hub.

    Raises:
        CannotExport: The model is only a size.
    """
    path = Path(job.base_path) / Path(job.model).expanduser()
    if path.exists():
        return _beside(path.parent if path.is_file() else path, folder)
    if resolved.model.assumed_fields and not resolved.model.hf_id:
        text = message("size_is_no_model", "a size has no weights that can be trained")
        fix = message("name_model", "name a model: Qwen/Qwen2.5-7B-Instruct")
        raise CannotExport([Mistake(message=text, path="model", value=job.model, how_to_fix=fix)])
    return resolved.model.hf_id or job.model


def _beside(path: Path, folder: Path | None) -> str:
    """A path as the folder of the files sees it."""
    return os.path.relpath(path, folder or Path())


def _written(
    job: StatedJob, stated: StatedJob, *, own: str | None, to: str, rows: Rows
) -> tuple[tuple[ExportedFile, ...], StatedJob, list[Notice]]:
    """The configuration; blanks that the framework has no key for are left out and told.

    Raises:
        CannotExport: What is stated, or decides what is trained, has no key.
    """
    try:
        return _dump(job, stated, to=to, rows=rows), job, []
    except CannotExport as error:
        mistakes = _roots(error.mistakes, stated)
    left = [one for one in mistakes if _is_blank(one, stated) and one.path in _MAY_BE_LEFT_OUT]
    if len(left) < len(mistakes):
        others = [one for one in mistakes if one not in left]
        raise CannotExport([_explained(one, stated, own) for one in others])
    training = job.recipe.training
    for one in left:
        training = replace(training, **{(one.path or "").removeprefix("training."): None})
    job = replace(job, recipe=replace(job.recipe, training=training))
    notices = [_left_out(one, to) for one in left]
    files, job, more = _written(job, stated, own=own, to=to, rows=rows)
    return files, job, [*notices, *more]


def _roots(mistakes: Sequence[Mistake], stated: StatedJob) -> list[Mistake]:
    """The mistakes less those of blanks that follow from a strategy which is refused itself."""
    refused = any(one.path == "parallelism.strategy" for one in mistakes)
    return [
        one
        for one in mistakes
        if one.path == "parallelism.strategy"
        or not (refused and (one.path or "").startswith("parallelism.") and _is_blank(one, stated))
    ]


def _dump(job: StatedJob, stated: StatedJob, *, to: str, rows: Rows) -> tuple[ExportedFile, ...]:
    if to in ENGINES:
        return engine_files(to, job)
    return (*writer_named(to).dump(job, rows=rows), requirements_file(job, stated=stated))


def _is_blank(mistake: Mistake, stated: StatedJob) -> bool:
    return mistake.path not in stated.stated


def _explained(mistake: Mistake, stated: StatedJob, own: str | None) -> Mistake:
    """For a blank: that the value is nobody's wish, and how to change it."""
    if not _is_blank(mistake, stated) or mistake.how_to_fix is not None or mistake.value is None:
        return mistake
    fix = message(
        "value_was_blank",
        "the job leaves it blank, and {own} takes {value}: state another",
        own=own or "trl",
        value=mistake.value,
    )
    return replace(mistake, how_to_fix=fix)


def _left_out(mistake: Mistake, to: str) -> Notice:
    text = message(
        "blank_left_out",
        "{key} stays as {framework} has it: {reason}",
        key=mistake.path,
        framework=to,
        reason=str(mistake.message),
    )
    return Notice(message=text, path=mistake.path)


def _launch(
    job: StatedJob,
    resolved: Resolved,
    files: Sequence[ExportedFile],
    *,
    to: str,
    kinds: Sequence[str],
) -> tuple[ExportedFile, ...]:
    """The launch files, all kinds; every reason why one cannot be written.

    Raises:
        CannotExport: One kind or more cannot say what the job runs on.
    """
    if to in ENGINES:
        text = message(
            "engine_without_program",
            "{engine} has no training program of its own to start",
            engine=to,
        )
        raise CannotExport([Mistake(message=text, path="--launch", near=tuple(WRITERS))])
    cluster = resolved.cluster
    launch = Launch(
        program=writer_named(to).program(job),
        job=job,
        num_nodes=cluster.num_nodes if cluster else 1,
        accelerators_per_node=cluster.accelerators_per_node if cluster else 1,
        accelerator=cluster.accelerator.name if cluster else None,
        vendor=cluster.accelerator.vendor if cluster else "NVIDIA",
        files=tuple((one.name, one.text) for one in files),
        deadline_s=job.limits.deadline_s,
    )
    found: list[ExportedFile] = []
    mistakes: list[Mistake] = []
    for kind in dict.fromkeys(kinds):
        try:
            found += launch_files(kind, launch)
        except InputError as error:
            mistakes += error.mistakes
    if mistakes:
        raise CannotExport(mistakes)
    return tuple(found)


def _exported_peak(
    job: StatedJob, planned: Resolved, sources: Sources, *, to: str
) -> Estimate | None:
    """The peak of what the framework makes of the files; None where it refuses the job.

    A limit that is stated for another framework fills no row where an ordinary length is planned.
    """
    if to in ENGINES:
        return None
    try:
        resolved = resolve_job(job, sources, dataset=Dataset(statistics=None))
    except InputError:
        return None
    if any(_is_ordinary_length(one) for one in planned.assumptions):
        length = planned.batch.worst_length
        batch = replace(
            resolved.batch,
            mean_length=length,
            worst_length=length,
            limit_length=length,
            sequence_length=length,
            real_tokens=resolved.batch.sequences * length,
        )
        resolved = replace(resolved, batch=batch)
    return memory_by_formula(resolved).ranges.peak_bytes


def _peaks_differ(
    planned: Estimate, exported: Estimate | None, plan: Resolved, *, own: str | None, to: str
) -> list[Notice]:
    if exported is None or abs(exported.likely - planned.likely) <= _SAME_PEAK * planned.likely:
        return []
    text = message(
        "peak_of_export_differs",
        "memory is not that of the plan: {planned} allocated at the peak in {own}, {exported} in "
        "{framework}, with rows of {length:,.0f} tokens",
        planned=format_gib(planned.likely),
        exported=format_gib(exported.likely),
        own=own or "trl",
        framework=to,
        length=plan.batch.worst_length,
    )
    return [Notice(message=text)]


def existing(files: Sequence[ExportedFile], folder: Path) -> tuple[str, ...]:
    """Which of the files are there already; a link that leads nowhere is there too."""
    return tuple(one.name for one in files if os.path.lexists(folder / one.name))


def refuse_existing(files: Sequence[ExportedFile], folder: Path) -> None:
    """Refuse to write over a file.

    Raises:
        InvalidRequest: Some are there; all of them named.
    """
    mistakes = [
        Mistake(
            message=message("file_is_there", "the file is there already"),
            path=str(folder / name),
            how_to_fix=message(
                "force_or_folder", "give --force to write over it, or another --output"
            ),
        )
        for name in existing(files, folder)
    ]
    if mistakes:
        raise InvalidRequest(mistakes)
