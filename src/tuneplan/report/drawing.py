"""Vega-Lite specifications drawn as SVG, without a browser and without a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneplan.errors import MissingExtra
from tuneplan.language import message
from tuneplan.report.theme import vega_config


def svg(specification: Mapping[str, Any], *, label: str) -> str:
    """A drawing as inline SVG; ``label`` is read to those who do not see it.

    Raises:
        MissingExtra: The ``report`` extra is not installed.
    """
    import html

    try:
        import vl_convert
    except ImportError:
        raise MissingExtra(
            extra="report", purpose=str(message("drawing_charts", "drawing charts"))
        ) from None
    drawn = str(
        vl_convert.vegalite_to_svg(dict(specification), config=vega_config(), allowed_base_urls=[])
    )
    named = f'<svg role="img" aria-label="{html.escape(label, quote=True)}" '
    return drawn.replace("<svg ", named, 1)
