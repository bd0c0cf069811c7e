"""Scripts, styles and pictures of the page; their address changes with the version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.staticfiles import StaticFiles

if TYPE_CHECKING:
    from starlette.responses import Response


class Kept(StaticFiles):
    """Static files that a browser may keep."""

    def file_response(self, *positional: Any, **named: Any) -> Response:
        """The file, with leave to keep it for a day where the address has a version."""
        response = super().file_response(*positional, **named)
        response.headers["Cache-Control"] = "private, max-age=86400"
        return response
