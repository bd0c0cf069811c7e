"""The answer of ``import``: the job file, and what of the configuration it does not say."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from tuneplan.contract.answers import ErrorEntry, header
from tuneplan.contract.checked import ImportAnswer, Key
from tuneplan.contract.job_yaml import job_yaml
from tuneplan.contract.plain_json import json_value
from tuneplan.language import say
from tuneplan.planner.importing import ImportedJob
from tuneplan.report.check import key_blocks, read_sentence
from tuneplan.report.check_answer import fate_fields
from tuneplan.report.errors import errors_document
from tuneplan.report.estimate_answer import notice_models
from tuneplan.report.page import Page
from tuneplan.report.tables import heading, paragraph, points, render, value_text

if TYPE_CHECKING:
    from rich.console import RenderableType

_REMARK_WIDTH: Final = 78  # with its sign a line of 80 columns


def import_answer(found: ImportedJob, *, as_of: str, output: str | None) -> ImportAnswer:
    """The answer of ``import``; ``output`` is the file that is written, None for stdout."""
    imported = found.imported
    return ImportAnswer(
        **header("import", as_of=as_of),
        **fate_fields(imported),
        format=imported.format,
        format_version=imported.format_version,
        files=list(imported.files),
        job=json_value(dict(found.job)),
        output=output,
        refused=[
            ErrorEntry.model_validate(entry)
            for entry in errors_document(imported.refusals)["errors"]
        ],
        warnings=notice_models(found.notices),
    )


def job_file_text(answer: ImportAnswer) -> str:
    """The job file: each key with the key that it comes from, and at its end what is missing."""
    remarks = {job_key: place_of(key, answer) for key in answer.carried for job_key in key.job_keys}
    text = job_yaml(answer.job, remarks, head=say("From {files}", files=", ".join(answer.files)))
    return text + "".join(f"# {line}".rstrip() + "\n" for line in _wrapped(_missing(answer)))


def _wrapped(lines: Iterable[str]) -> Iterator[str]:
    """Remarks that stand alone, at most 80 columns wide with their sign; keys stay whole."""
    for line in lines:
        yield from textwrap.wrap(
            line,
            _REMARK_WIDTH,
            subsequent_indent="    " if line.startswith("  ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]


def place_of(key: Key, answer: ImportAnswer) -> str:
    """``cutoff_len, line 12``; the file too where there are several."""
    if key.line is None:
        return key.key
    if len(answer.files) == 1:
        return say("{key}, line {line}", key=key.key, line=key.line)
    return say("{key}, {file}:{line}", key=key.key, file=key.file or "", line=key.line)


def _missing(answer: ImportAnswer) -> Iterator[str]:
    for name, keys in (
        (say("Not carried over"), answer.not_carried),
        (say("Not understood"), answer.not_understood),
    ):
        if keys:
            yield ""
            yield f"{name}:"
            yield from (
                f"  {key.key}: {_one_line(value_text(key.value))}  {_one_line(key.why or '')}"
                for key in keys
            )
    if answer.refused:
        yield ""
        yield say("No estimate can be made of:")
        yield from (f"  {one.path or ''}: {_one_line(one.message)}" for one in answer.refused)
    if answer.warnings:
        yield ""
        yield say("Warnings:")
        yield from (f"  {_one_line(warning.message, 1_000)}" for warning in answer.warnings)


def _one_line(text: str, most: int = 200) -> str:
    return " ".join(text.split())[:most]


def import_text(answer: ImportAnswer, page: Page, *, full: bool = False) -> str:
    """The job file on stdout, or what was written and what it does not say."""
    if answer.output is None:
        return job_file_text(answer)
    return render(list(_blocks(answer, full=full)), page)


def _blocks(answer: ImportAnswer, *, full: bool) -> Iterator[RenderableType]:
    yield paragraph(read_sentence(answer))
    yield paragraph(say("Wrote {file}.", file=answer.output))
    yield from key_blocks(answer, full=full)
    if answer.refused:
        yield heading(say("No estimate can be made of"))
        yield points([f"{one.path or ''}: {one.message}" for one in answer.refused])
    if answer.warnings:
        yield heading(say("Warnings"))
        yield points([warning.message for warning in answer.warnings], mark="!")
