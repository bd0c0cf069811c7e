"""What a request becomes to take along: the job file, a framework's configuration, a report.

Each is a download under an address of its own: ``/export/job.yaml?...``. Names of files are made
here; nothing of a request is part of one but letters, digits and dots.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response
from starlette.routing import Route

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import message, say, speaking
from tuneplan.web.answering import failed
from tuneplan.web.fields import Field
from tuneplan.web.offered import FRAMEWORKS, LAUNCHERS
from tuneplan.web.reading import asked
from tuneplan.web.rendering import page
from tuneplan.web.views import by_name, views
from tuneplan.web.views.project import budget_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from tuneplan.spec.stated import StatedJob
    from tuneplan.web.form import Form
    from tuneplan.web.working import Workers
    from tuneplan.web.world import World

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.]+")
_YAML: Final = "application/yaml"
_ZIP: Final = "application/zip"
_REPORTS: Final = {
    ".html": "text/html",
    ".md": "text/markdown",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
FIELDS: Final = (
    Field(
        name="to",
        label=lambda: say("Framework"),
        kind="choice",
        choices=lambda _world: [name for name, _ in FRAMEWORKS],
    ),
    Field(
        name="launch",
        label=lambda: say("Launch file"),
        kind="choice",
        choices=lambda _world: LAUNCHERS,
    ),
    Field(
        name="of",
        label=lambda: say("What is reported"),
        kind="choice",
        choices=lambda _world: ("plan", "estimate", "budget"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A download."""

    name: str
    media_type: str
    content: bytes


def export_routes(world: World, workers: Workers) -> Iterator[Route]:
    """The downloads."""
    makers: Mapping[str, Callable[[Form, World], File]] = {
        "job.yaml": job_file,
        "framework.zip": framework_files,
        **{f"report{ending}": _reporter(ending) for ending in _REPORTS},
    }
    for name, make in makers.items():
        yield Route(f"/export/{name}", _download(make, world, workers), name=f"export {name}")


def _download(
    make: Callable[[Form, World], File], world: World, workers: Workers
) -> Callable[[Request], Any]:
    project = by_name()["project"]
    view = replace(by_name()["fit"], fields=(*FIELDS, *project.fields))

    async def download(request: Request) -> Response:
        said = await asked(request, view, world.settings)
        with speaking(said.language):
            try:
                file = await workers.run(request, lambda: make(said.form, world))
            except Exception as error:
                found = failed(error)
                text = page(
                    view, said.form, world, views(), theme=said.theme, mistakes=found.mistakes
                )
                return Response(text, status_code=found.status, media_type="text/html")
        headers = {"Content-Disposition": f'attachment; filename="{file.name}"'}
        return Response(file.content, media_type=file.media_type, headers=headers)

    return download


# --- the files ------------------------------------------------------------------------------------


def job_file(form: Form, world: World) -> File:
    """What is stated, as a job file; blanks stay blank."""
    from tuneplan.contract.job_yaml import job_yaml

    job = form.job()
    day = world.today.isoformat()
    head = say("A job file of tuneplan, written on {day}; what is blank is assumed.", day=day)
    text = job_yaml(stated_tree(job), {}, head)
    return File(name=f"{_stem(job)}.job.yaml", media_type=_YAML, content=text.encode())


def stated_tree(job: StatedJob) -> dict[str, Any]:
    """The keys of the job file that somebody stated, as sections."""
    from tuneplan.contract.job_document import job_document

    def kept(tree: Mapping[str, Any], path: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in tree.items():
            inner = f"{path}.{name}".lstrip(".")
            if isinstance(value, Mapping) and inner not in job.stated:
                below = kept(value, inner)
                if below:
                    found[name] = below
            elif value is not None and (inner in job.stated or inner == "model"):
                found[name] = value
        return found

    return kept(job_document(job), "")


def framework_files(form: Form, world: World) -> File:
    """What ``tuneplan export`` writes, in one ZIP file."""
    from tuneplan.planner.export import export_job

    to = form.text("to")
    if not to:
        text = message("no_framework_named", "name the framework that the files are for")
        raise InvalidRequest([Mistake(message=text, path="to")])
    job = form.job()
    kinds = form.several("launch")
    export = export_job(job, world.sources(job), to=to, launchers=list(kinds), folder=None)
    written = io.BytesIO()
    folder = f"{_stem(job)}-{_safe(export.framework)}"
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for one in export.files:
            name = PurePosixPath(one.name).name
            entry = zipfile.ZipInfo(f"{folder}/{name}", (*world.today.timetuple()[:3], 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if name.endswith(".sh") else 0o644) << 16
            archive.writestr(entry, one.text)
    return File(name=f"{folder}.zip", media_type=_ZIP, content=written.getvalue())


def _reporter(ending: str) -> Callable[[Form, World], File]:
    def report(form: Form, world: World) -> File:
        from tuneplan.planner.importing import Configuration
        from tuneplan.planner.reporting import report_on
        from tuneplan.report.budget_document import budget_document
        from tuneplan.report.reported import report_document
        from tuneplan.report.writing import document_file

        job = form.job()
        of = form.text("of") or None
        if of not in (None, "plan", "estimate", "budget"):
            text = message("report_of_what", "a report is of a plan, an estimate or a budget")
            raise InvalidRequest([Mistake(message=text, path="of", value=of)])
        if of == "budget":
            document = budget_document(budget_of(form, world))
        else:
            configuration = Configuration(job=job, imported=None, files=())
            reported = report_on(configuration, world.sources(job), of=of)
            document = report_document(reported, as_of=world.today.isoformat())
        name = f"{_stem(job)}-{'budget' if of == 'budget' else 'report'}{ending}"
        return File(name=name, media_type=_REPORTS[ending], content=document_file(document, name))

    return report


def _stem(job: StatedJob) -> str:
    """``tuneplan-Qwen2.5-7B-Instruct-lora``."""
    parts = ["tuneplan", PurePosixPath(job.model).name, job.recipe.method or ""]
    return "-".join(_safe(part) for part in parts if _safe(part))[:100]


def _safe(text: str) -> str:
    """Letters, digits and single dots and hyphens; never the name of a folder above."""
    return _UNSAFE.sub("-", text).strip("-.")
