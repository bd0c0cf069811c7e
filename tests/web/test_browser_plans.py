"""Plan, Levers, Compare and Why in a real browser."""

from urllib.parse import quote

import pytest

from web.browsing import LANGUAGES, NARROW, WIDE, Journeys, drawn

pytestmark = pytest.mark.browser

MODEL = "model=Qwen/Qwen2.5-0.5B&method=lora&samples=21000&mean_tokens=850"
ON_L4 = f"{MODEL}&gpu=NVIDIA+L4&count=1"
CARDS = f"{MODEL}&gpu=NVIDIA+L4,NVIDIA+L40S,NVIDIA+GeForce+RTX+4090"
ON_L40S = quote(f"{MODEL}&gpu=NVIDIA L40S&count=1")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_plan_is_drawn(journey: Journeys, language: str, theme: str, width: int) -> None:
    with journey(f"/plan?{CARDS}", language=language, theme=theme, width=width) as page:
        assert page.locator("html").get_attribute("lang") == language
        assert page.locator("figure[data-chart=cost_time] .drawing svg").is_visible()
        assert page.locator("#shortlist table tbody tr").count() >= 3
        assert page.locator("#why_not table tbody tr").count() >= 1


def test_a_row_of_the_shortlist_is_opened_in_fit(journey: Journeys) -> None:
    with journey(f"/plan?{CARDS}") as page:
        row = page.locator("#shortlist tbody tr").nth(1)
        card = row.locator("a").first.inner_text().rstrip("*").partition(" x ")[2]
        row.locator("a").first.click()
        page.wait_for_url("**/fit?**")
        drawn(page)
        assert card in page.locator("#gpu").input_value()
        assert page.locator("p.fits").is_visible()


def test_a_point_of_the_picture_is_opened_too(journey: Journeys) -> None:
    with journey(f"/plan?{CARDS}") as page:
        page.locator("figure[data-chart=cost_time] svg .mark-symbol path").last.click()
        page.wait_for_url("**/fit?**")
        drawn(page)


def test_the_shortlist_is_sorted_by_a_click_on_a_head(journey: Journeys) -> None:
    with journey(f"/plan?{CARDS}") as page:
        head = page.locator("#shortlist th a").nth(4)
        for order in ("ascending", "descending"):
            head.click()
            page.locator(f"#shortlist th[aria-sort={order}]").wait_for()
            drawn(page)
            costs = page.locator("#shortlist tbody tr td:nth-child(7)").evaluate_all(
                "cells => cells.map(cell => Number(cell.dataset.value))"
            )
            assert costs == sorted(costs, reverse=order == "descending")


def test_the_next_lever_is_applied_with_one_click(journey: Journeys) -> None:
    with journey(f"/plan?{CARDS}") as page:
        page.locator("#better nav.links a").first.click()
        page.wait_for_url("**/fit?**")
        drawn(page)


def test_plan_works_without_scripts(journey: Journeys) -> None:
    with journey("/plan", scripts=False) as page:
        page.fill("#model", "Qwen/Qwen2.5-0.5B")
        page.select_option("#method", "lora")
        page.fill("#gpu", "NVIDIA L4, NVIDIA L40S, RTX 4090")
        page.fill("#samples", "21000")
        page.fill("#mean_tokens", "850")
        page.locator("button.ask").click()
        page.wait_for_url("**/plan?**samples=21000**")
        rows = page.locator("#shortlist table tbody tr")
        assert rows.count() >= 3
        page.locator("#shortlist th a").nth(4).click()
        page.wait_for_url("**sort=cost**")
        assert page.locator("#shortlist th[aria-sort=ascending]").count() == 1
        page.locator("figure[data-chart=cost_time] summary").click()
        assert page.locator("figure[data-chart=cost_time] table").is_visible()
        rows.nth(1).locator("a").first.click()
        page.wait_for_url("**/fit?**")


def test_a_click_on_a_lever_changes_the_job_and_what_the_form_says(journey: Journeys) -> None:
    with journey(f"/levers?{ON_L4}") as page:
        before = page.locator("#levers .tiles").inner_text()
        page.locator("#levers tbody a[href*='packing=true']").first.click()
        page.wait_for_url("**packing=true**")
        drawn(page)
        assert page.locator("#packing").input_value() == "true"
        assert page.locator("#levers .tiles").inner_text() != before
        assert page.locator("#no_help tbody tr").count() >= 1


def test_a_slider_moves_the_levers(journey: Journeys) -> None:
    with journey(f"/levers?{ON_L4}") as page:
        before = page.locator("#levers .tiles").inner_text()
        slider = page.locator("[data-slides=micro_batch]")
        slider.focus()
        slider.press("Home")
        page.wait_for_url("**micro_batch=1**")
        drawn(page)
        assert page.locator("#levers .tiles").inner_text() != before


def test_plans_are_compared_changed_kept_and_taken_out(journey: Journeys) -> None:
    with journey(f"/compare?{ON_L4}&against={ON_L40S}") as page:
        heads = page.locator("#compare thead th")
        assert heads.count() == 3
        assert "hardware.accelerator" in page.locator("#differences tbody").inner_text()
        page.locator("#keep nav.links a").click()
        page.wait_for_load_state()
        drawn(page)
        assert heads.count() == 4
        slider = page.locator("[data-slides=max_length]")
        slider.focus()
        slider.press("End")
        page.wait_for_url("**max_length=**")
        drawn(page)
        assert "training.max_length" in page.locator("#differences tbody").inner_text()
        assert heads.count() == 4
        page.locator("#compare tbody tr").last.locator("a").last.click()
        page.wait_for_load_state()
        drawn(page)
        assert heads.count() == 3


def test_a_figure_opens_down_to_what_was_stated(journey: Journeys) -> None:
    with journey(f"/why?{ON_L4}&figure=time.total_s") as page:
        closed = page.locator("#why details.node:not([open])").first
        closed.locator("summary").first.click()
        assert (
            closed.locator(".formula").first.is_visible()
            or page.locator("#why .formula").first.is_visible()
        )
        page.locator("#figures tbody a", has_text="Cost").first.click()
        page.wait_for_url("**figure=cost.total**")
        drawn(page)
        assert page.locator("#figure").input_value() == "cost.total"
        assert "USD" in page.locator("#why .loud").inner_text()
