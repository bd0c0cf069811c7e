"""Every view by axe-core, in light and in dark: no serious finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuneplan.web.views import views
from web.asking import JOB
from web.browsing import NARROW, WIDE, Journeys

pytestmark = pytest.mark.browser
AXE = (Path(__file__).parent / "vendor" / "axe-4.14.1.min.js").read_text(encoding="utf-8")
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}


def serious(page, rules: dict[str, object] = RULES) -> list[str]:
    found = page.evaluate("(rules) => axe.run(document, rules)", rules)["violations"]
    return [
        f"{one['id']}: {node['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]


@pytest.mark.parametrize("view", views(), ids=lambda view: view.name)
def test_a_view_can_be_read_by_all(journey: Journeys, view) -> None:
    address = f"/{view.name}?{JOB}" if view.job else f"/{view.name}"
    with journey(address) as page:
        page.evaluate(AXE)
        assert serious(page) == []
        page.emulate_media(color_scheme="dark")
        page.set_viewport_size({"width": NARROW, "height": 900})
        assert serious(page, COLOURS) == []
        page.set_viewport_size({"width": WIDE, "height": 900})


def test_a_page_of_mistakes_can_be_read_by_all(journey: Journeys) -> None:
    with journey("/fit?model=7B") as page:
        page.fill("#max_length", "long")
        page.locator(".mistakes").wait_for()
        page.evaluate(AXE)
        assert serious(page) == []
