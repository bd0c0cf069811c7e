"""Fit in a real browser."""

import pytest
from playwright.sync_api import Route

from web.asking import JOB
from web.browsing import LANGUAGES, NARROW, WIDE, Journeys, drawn

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_fit_is_drawn(journey: Journeys, language: str, theme: str, width: int) -> None:
    with journey(f"/fit?{JOB}", language=language, theme=theme, width=width) as page:
        assert page.locator("html").get_attribute("lang") == language
        assert page.locator("figure .drawing svg").count() >= 2
        assert page.locator("p.fits").is_visible()


def test_a_slider_changes_the_answer_and_the_address(journey: Journeys) -> None:
    with journey(f"/fit?{JOB}") as page:
        before = page.locator("#summary").inner_text()
        slider = page.locator("[data-slides=micro_batch]")
        slider.focus()
        slider.press("End")
        page.wait_for_url("**micro_batch=128**")
        drawn(page)
        assert page.locator("#micro_batch").input_value() == "128"
        assert page.locator("#summary").inner_text() != before
        assert page.locator("#said").inner_text() == page.locator("#summary p").first.inner_text()


def test_what_takes_longer_is_said_to_be_on_its_way(journey: Journeys) -> None:
    with journey(f"/fit?{JOB}") as page:
        held: list[Route] = []
        page.route("**/fit?*", lambda route: held.append(route))
        page.locator("#method").select_option("full")
        working = page.locator("#working")
        working.wait_for()
        assert working.inner_text() == "Working …"
        held[0].continue_()
        working.wait_for(state="hidden")
        assert page.locator("#answer[aria-busy]").count() == 0


def test_a_mistake_is_told_beside_its_field_and_goes_again(journey: Journeys) -> None:
    with journey(f"/fit?{JOB}") as page:
        length = page.locator("#max_length")
        length.fill("long")
        page.locator("#max_length[aria-invalid=true]").wait_for()
        assert "whole number" in page.locator("#about-max_length").inner_text()
        length.fill("2048")
        page.locator("#max_length:not([aria-invalid])").wait_for()
        drawn(page)


def test_fit_works_without_scripts(journey: Journeys) -> None:
    with journey("/fit", scripts=False) as page:
        page.fill("#model", "7B")
        page.select_option("#method", "qlora")
        page.fill("#gpu", "NVIDIA L4")
        page.locator("button.ask").click()
        page.wait_for_url("**gpu=NVIDIA+L4**")
        assert page.locator("#summary").is_visible()
        page.locator("#memory .values summary").first.click()
        assert page.locator("#memory .values table").first.is_visible()
