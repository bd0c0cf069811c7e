"""The JSON twin of every view: the same answers, and the same mistakes, as ``--json``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse
from starlette.routing import Route

from tuneplan.language import speaking
from tuneplan.report.errors import errors_document
from tuneplan.web.answering import Answered, answered, failed
from tuneplan.web.reading import asked_by_program, language_of
from tuneplan.web.safety import encoded
from tuneplan.web.views import views

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from tuneplan.web.views.view import View
    from tuneplan.web.working import Workers
    from tuneplan.web.world import World


def api_routes(world: World, workers: Workers) -> Iterator[Route]:
    """``/api/NAME`` of every view, and what describes them."""
    yield Route("/openapi.json", _described)
    for view in views():
        yield _route(view, world, workers)


async def _described(_request: Request) -> Response:
    from tuneplan.web.openapi import document

    return JSONResponse(document())


def _route(view: View, world: World, workers: Workers) -> Route:
    async def answer(request: Request) -> Response:
        with speaking(language_of(request)):
            try:
                form = await asked_by_program(request, view, world.settings)

                def work() -> tuple[Any, int]:
                    found = answered(view, form, world, to_read=False)
                    return _document(found), found.status

                document, status = await workers.run(request, work)
            except Exception as error:
                found = failed(error)
                document, status = _document(found), found.status
            return _Json(document, status_code=status)

    return Route(f"/api/{view.name}", answer, methods=["GET", "POST"])


class _Json(JSONResponse):
    """JSON of whatever texts a request can name."""

    def render(self, content: Any) -> bytes:
        """As Starlette does, for halves of surrogate pairs too."""
        return encoded(json.dumps(content, ensure_ascii=False, allow_nan=False))


def _document(found: Answered) -> Any:
    if found.mistakes:
        return errors_document(found.mistakes)
    return found.answer.model_dump(mode="json")
