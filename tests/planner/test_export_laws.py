"""What is exported reads as the job that was planned, whatever the job says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from exported_jobs import meaning, reread, stated_trees, without_contradictions
from tuneplan.errors import CannotExport, InputError, Mistake
from tuneplan.formats.exports import WRITERS
from tuneplan.formats.registry import FORMATS
from tuneplan.planner.export import JobExport, export_job
from tuneplan.planner.sources import Sources

SOURCES = Sources()
READ_AGAIN = [name for name in WRITERS if name in FORMATS]
_WORDS = {"true": True, "false": False}


def exported(name: str, tree: dict[str, Any]) -> JobExport | None:
    """The export, once what the framework cannot say is put as it suggests; None for no job."""
    for _ in range(12):
        try:
            return export_job(without_contradictions(tree), SOURCES, to=name)
        except CannotExport as error:
            for mistake in error.mistakes:
                _amend(tree, mistake)
        except InputError:
            return None
    raise AssertionError(tree)


def _amend(tree: dict[str, Any], mistake: Mistake) -> None:
    """Take the nearest choice, or leave the key out where none is named."""
    section, _, key = (mistake.path or "").partition(".")
    near = mistake.near[0] if mistake.near else None
    value = _WORDS.get(near, near) if near is not None else None
    if not key:
        tree[section] = value
    elif isinstance(tree.get(section), dict) or value is not None:
        tree.setdefault(section, {})[key] = value
    if section == "method":
        tree["training"].pop("trained_layers", None)


@pytest.mark.parametrize("name", READ_AGAIN)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_an_exported_job_reads_as_the_planned_one(name: str, data: st.DataObject) -> None:
    export = exported(name, data.draw(stated_trees(name)))
    assume(export is not None)
    again = reread(name, export.files)
    assert again.model == export.job.model
    planned = export.job.recipe
    assert meaning(again.recipe, with_software_of=planned) == meaning(
        planned, with_software_of=planned
    ), export.files[0].text
