"""Pages and fragments from templates; every text comes escaped and in the reader's language."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tuneplan._version import __version__
from tuneplan.language import LANGUAGES, current_language, say
from tuneplan.report.chart_values import chart_table
from tuneplan.report.theme import DARK, vega_config
from tuneplan.report.view import (
    Chart,
    Facts,
    Links,
    PageBlock,
    PageSection,
    Paragraph,
    Points,
    Section,
    Table,
    Tree,
)
from tuneplan.web.offered import FRAMEWORKS, LAUNCHERS
from tuneplan.web.showing import assumed_texts, mistake_texts, shown_groups

if TYPE_CHECKING:
    from tuneplan.errors import Mistake
    from tuneplan.web.form import Form
    from tuneplan.web.views.view import View
    from tuneplan.web.world import World

_FOLDER: Final = Path(__file__).parent
THEMES: Final = ("auto", "light", "dark")
_NAMES_OF_LANGUAGES: Final = {"en": "English", "zh-TW": "繁體中文", "zh-CN": "简体中文"}


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals |= {"kind": _kind, "values_of": chart_table, "say": say, "static": static}
    made.filters["data"] = _data
    return made


def static(name: str) -> str:
    """The address of a file of ours; it changes with the version, so it may be kept."""
    return f"/static/{name}?{__version__}"


def page(
    view: View,
    form: Form,
    world: World,
    views: Sequence[View],
    *,
    theme: str,
    answer: Any = None,
    sections: Sequence[Section | PageSection] = (),
    mistakes: Sequence[Mistake] = (),
) -> str:
    """A whole page: navigation, form, answer."""
    language = current_language()
    return (
        _environment()
        .get_template("page.html")
        .render(
            **_answered(view, form, answer, sections, mistakes),
            groups=shown_groups(view, form, world, answer=answer, mistakes=mistakes),
            asks_after=_asks_after(view),
            navigation=[
                (one.title(), form.address(one.name), one.name == view.name) for one in views
            ],
            language=language,
            languages=[(_NAMES_OF_LANGUAGES[name], name, name == language) for name in LANGUAGES],
            theme=theme,
            themes=[(name, _theme_label(name), name == theme) for name in THEMES],
            chart_theme={"config": vega_config(), "dark": DARK},
            version=__version__,
        )
    )


def _asks_after(view: View) -> str:
    """Name of the field that the button follows: the last that is sent; blank for the end."""
    sent = [one.name for one in view.fields if view.posts and one.kind in ("area", "file")]
    return sent[-1] if sent else ""


def fragment(
    view: View,
    form: Form,
    *,
    answer: Any = None,
    sections: Sequence[Section | PageSection] = (),
    mistakes: Sequence[Mistake] = (),
) -> str:
    """The answer alone, for a page that is there already."""
    context = _answered(view, form, answer, sections, mistakes)
    return _environment().get_template("answer.html").render(**context)


def _answered(
    view: View,
    form: Form,
    answer: Any,
    sections: Sequence[Section | PageSection],
    mistakes: Sequence[Mistake],
) -> dict[str, Any]:
    return {
        "view": view,
        "title": view.title(),
        "heading": view.heading(answer) if view.heading and answer is not None else view.title(),
        "purpose": view.purpose(),
        "form": form,
        "address": form.address(view.name),
        "sections": sections,
        "mistakes": mistakes,
        "answered": answer is not None,
        "beside": {"assumed": assumed_texts(answer, form), "mistakes": mistake_texts(mistakes)},
        **dict(zip(("summary", "tone"), _summary(sections, mistakes), strict=True)),
        "polled": view.polls(answer) if view.polls and answer is not None else "",
        "frameworks": FRAMEWORKS,
        "launchers": LAUNCHERS,
    }


def _summary(
    sections: Sequence[Section | PageSection], mistakes: Sequence[Mistake]
) -> tuple[str, str]:
    """What is read aloud when the answer has changed, and its tone."""
    if mistakes:
        text = say("{count} {count:~mistake/mistakes} in the request", count=len(mistakes))
        return text, "does_not_fit"
    for section in sections:
        for block in section.blocks:
            if isinstance(block, Paragraph):
                return block.text, block.tone
    return "", ""


def _kind(block: PageBlock) -> str:
    """Which macro draws a block."""
    kinds = {
        Paragraph: "paragraph",
        Points: "points",
        Facts: "facts",
        Table: "table",
        Chart: "chart",
        Links: "links",
        Tree: "tree",
    }
    return kinds[type(block)]


def _data(value: Mapping[str, Any]) -> Any:
    """JSON that can stand in a page: no sign in it ends an element."""
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)  # noqa: S704 - escaped above


def _theme_label(name: str) -> str:
    return {
        "auto": say("As the system"),
        "light": say("Light"),
        "dark": say("Dark"),
    }[name]
