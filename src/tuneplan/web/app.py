"""The application: every view as a page, as a fragment of one, and as JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from tuneplan.language import LANGUAGES, speaking
from tuneplan.web.answering import ANSWERED, USER_INPUT, Answered, answered, failed
from tuneplan.web.api import api_routes
from tuneplan.web.exports import export_routes
from tuneplan.web.form import Form
from tuneplan.web.reading import Asked, asked, language_of, theme_of
from tuneplan.web.rendering import THEMES, fragment, page
from tuneplan.web.safety import Safety, cookie, encoded
from tuneplan.web.settings import Settings
from tuneplan.web.static_files import Kept
from tuneplan.web.views import views
from tuneplan.web.working import Workers
from tuneplan.web.world import World

if TYPE_CHECKING:
    from starlette.requests import Request

    from tuneplan.web.views.view import View

STATIC: Final = Path(__file__).parent / "static"


def application(settings: Settings | None = None) -> Starlette:
    """The page as an ASGI application."""
    chosen = settings or Settings()
    world, workers = World(chosen), Workers(chosen)

    @asynccontextmanager
    async def until_the_end(_app: Starlette) -> AsyncIterator[None]:
        if chosen.helper:
            world.start_helper()
        try:
            yield
        finally:
            workers.close()
            world.close()

    return Starlette(
        routes=[
            Route("/", _first),
            *(_route(view, world, workers) for view in views()),
            *api_routes(world, workers),
            *export_routes(world, workers),
            Mount("/static", Kept(directory=STATIC)),
        ],
        middleware=[Middleware(Safety, settings=chosen)],
        lifespan=until_the_end,
    )


async def _first(request: Request) -> Response:
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/{views()[0].name}{query}")


def _route(view: View, world: World, workers: Workers) -> Route:
    async def show(request: Request) -> Response:
        only_answer = request.headers.get("hx-request") == "true"
        said = Asked(form=Form(), language=language_of(request), theme=theme_of(request))

        def draw(found: Answered) -> str:
            shown: dict[str, Any] = {
                "answer": found.answer,
                "sections": found.sections,
                "mistakes": found.mistakes,
            }
            if only_answer:
                return fragment(view, said.form, **shown)
            return page(view, said.form, world, views(), theme=said.theme, **shown)

        def work() -> tuple[Answered, str]:
            found = answered(view, said.form, world, to_read=True)
            return found, draw(found)

        with speaking(said.language):
            try:
                said = await asked(request, view, world.settings)
                if request.method == "POST" and view.keeps is not None:
                    keep = view.keeps
                    kept = await workers.run(request, lambda: keep(said.form, world))
                    return RedirectResponse(kept.address(view.name), status_code=303)
                found, text = await workers.run(request, work)
            except Exception as error:
                found = failed(error)
                text = draw(found)
        # A mistake while one types is no failure of the request, which browsers would complain of.
        status = ANSWERED if only_answer and found.status == USER_INPUT else found.status
        response = Response(encoded(text), status_code=status, media_type="text/html")
        response.headers["Vary"] = "HX-Request, Cookie, Accept-Language"
        if only_answer and request.method == "GET":
            response.headers["HX-Replace-Url"] = said.form.address(view.name)
        _remember(request, response)
        return response

    methods = ["GET", "POST"] if view.posts or view.drops else ["GET"]
    return Route(f"/{view.name}", show, methods=methods)


def _remember(request: Request, response: Response) -> None:
    """What the reader has chosen in the address stays chosen."""
    for name, known in (("lang", LANGUAGES), ("theme", THEMES)):
        if request.query_params.get(name) in known:
            cookie(response, name, request.query_params[name])
