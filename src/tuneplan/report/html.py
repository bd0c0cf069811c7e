"""A document as one HTML page: nothing is loaded, light and dark, for a screen and for paper."""

from __future__ import annotations

from importlib import resources

from tuneplan.errors import MissingExtra
from tuneplan.language import message, say
from tuneplan.report.drawing import svg
from tuneplan.report.markdown import under_title
from tuneplan.report.theme import (
    ALARM,
    DARK,
    FITS,
    FONTS,
    GRID,
    INK,
    MUTED,
    SERIES,
    SIMPLIFIED_FONTS,
    TIGHT,
    dark_rules,
)
from tuneplan.report.view import Block, Chart, Document, Facts, Paragraph, Points, Table

_NAMES = {
    "ink": INK,
    "muted": MUTED,
    "grid": GRID,
    "does_not_fit": ALARM,
    "fits": FITS,
    "tight": TIGHT,
    "accent": SERIES[0],
}


def html(document: Document) -> str:
    """The page.

    Raises:
        MissingExtra: The ``report`` extra is not installed.
    """
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        purpose = str(message("writing_html", "writing HTML"))
        raise MissingExtra(extra="report", purpose=purpose) from None
    folder = resources.files("tuneplan.report") / "templates"
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string((folder / "report.html").read_text(encoding="utf-8"))
    return template.render(
        document=document,
        kind=kind,
        style=style((folder / "report.css").read_text(encoding="utf-8")),
        pictures={
            block.name: (
                svg(block.specification, label=block.caption),
                svg(block.narrow, label=block.caption),
            )
            for section in document.sections
            for block in section.blocks
            if isinstance(block, Chart)
        },
        under_title=under_title(document),
        contents=say("Contents"),
    )


def kind(block: Block) -> str:
    """Which part of the template shows a block."""
    kinds = {
        Paragraph: "paragraph",
        Points: "points",
        Facts: "facts",
        Table: "table",
        Chart: "chart",
    }
    return kinds[type(block)]


def style(sheet: str) -> str:
    """The style sheet with the theme's colours in front of it."""
    light = "\n".join(f"  --{name}: {color};" for name, color in _NAMES.items())
    dark = "\n".join(f"    --{name}: {DARK[color]};" for name, color in _NAMES.items())
    return (
        f":root {{\n{light}\n  --fonts: {FONTS};\n}}\n"
        f":root:lang(zh-CN) {{ --fonts: {SIMPLIFIED_FONTS}; }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{\n  :root {{\n{dark}\n  }}\n"
        f"{dark_rules()}\n}}\n{sheet}"
    )
