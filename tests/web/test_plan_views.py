"""Plan, Levers, Compare and Why: as pages, as JSON, and where their links lead."""

import json
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from starlette.testclient import TestClient

import tuneplan
from tuneplan.contract.reading import load_job
from tuneplan.contract.schema import json_schema
from tuneplan.planner.lever_table import levers_job
from tuneplan.planner.sources import sources_for
from tuneplan.report.levers_answer import levers_answer
from tuneplan.report.plan_answer import plan_answer
from web.asking import DAY, Elements, client

MODEL = "model=Qwen/Qwen2.5-0.5B&method=lora&samples=21000&mean_tokens=850"
ON_L4 = f"{MODEL}&gpu=NVIDIA+L4&count=1"
CARDS = f"{MODEL}&gpu=NVIDIA+L4,NVIDIA+L40S,NVIDIA+GeForce+RTX+4090"
JOB = {
    "model": "Qwen/Qwen2.5-0.5B",
    "method": "lora",
    "data": {"num_samples": 21_000, "mean_tokens": 850},
}


@pytest.fixture(name="page", scope="module")
def of_page() -> TestClient:
    return client()


def links(page: TestClient, address: str, start: str) -> list[str]:
    """Addresses of the links in the answer, its navigation left out."""
    answered = page.get(address, headers={"HX-Request": "true"})
    assert answered.status_code == 200
    found = (one.get("href") or "" for one in Elements(answered.text).all("a"))
    return [one for one in found if one.startswith(start)]


def asked_of(address: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(address).query)


@pytest.mark.parametrize(
    ("view", "query"), [("plan", CARDS), ("levers", ON_L4), ("compare", ON_L4), ("why", ON_L4)]
)
def test_each_view_answers_as_a_page_and_as_a_fragment(
    page: TestClient, view: str, query: str
) -> None:
    whole = page.get(f"/{view}?{query}")
    assert whole.status_code == 200
    part = page.get(f"/{view}?{query}", headers={"HX-Request": "true"})
    assert part.status_code == 200
    assert Elements(whole.text).all("section")
    assert Elements(part.text).all("section") == Elements(whole.text).all("section")
    assert not Elements(part.text).all("form", id="form")


@pytest.mark.parametrize("view", ["plan", "levers", "compare", "why"])
def test_without_a_model_each_view_says_what_it_is_for(page: TestClient, view: str) -> None:
    answered = page.get(f"/{view}")
    assert answered.status_code == 200
    assert not Elements(answered.text).all("section")


def test_the_json_of_a_plan_is_that_of_the_command_but_for_the_time_it_took(
    page: TestClient,
) -> None:
    told = page.get(f"/api/plan?{CARDS}").json()
    cards = ["NVIDIA L4", "NVIDIA L40S", "NVIDIA GeForce RTX 4090"]
    plan = tuneplan.plan({**JOB, "hardware": {"accelerator": cards}}, today=DAY)
    wanted = plan_answer(plan, as_of=DAY.isoformat()).model_dump(mode="json")
    del told["search"]["elapsed_s"], wanted["search"]["elapsed_s"]
    assert told == wanted


def test_the_json_of_the_levers_is_that_of_the_use_case(page: TestClient) -> None:
    told = page.get(f"/api/levers?{ON_L4}").json()
    hardware = {"accelerator": "NVIDIA L4", "accelerators_per_node": 1}
    job = load_job({**JOB, "hardware": hardware})
    wanted = levers_answer(
        levers_job(job, sources_for(job, today=DAY), replays=True), as_of=DAY.isoformat()
    )
    assert told == wanted.model_dump(mode="json")


def test_a_click_on_a_lever_is_the_job_with_that_change(page: TestClient) -> None:
    answer = page.get(f"/api/levers?{ON_L4}").json()
    packing = next(one for one in answer["levers"] if one["id"] == "packing")
    after = packing["after"]["peak_bytes"]["likely"]
    found = [
        one for one in links(page, f"/levers?{ON_L4}", "/levers") if "packing" in asked_of(one)
    ]
    assert found
    then = page.get(f"/api{found[0]}").json()
    assert then["now"]["peak_bytes"]["likely"] == after
    assert then["job"]["training"]["packing"] is True


def test_a_row_of_the_plan_opens_that_very_candidate(page: TestClient) -> None:
    answer = page.get(f"/api/plan?{CARDS}").json()
    first = answer["entries"][0]
    addresses = links(page, f"/plan?{CARDS}", "/fit")
    opened = page.get(f"/api{addresses[0]}")
    assert opened.status_code == 200
    hardware = opened.json()["hardware"]
    assert hardware == first["estimate"]["hardware"]
    likely = opened.json()["memory"]["peak_bytes"]["likely"]
    assert likely == first["estimate"]["memory"]["peak_bytes"]["likely"]


def test_every_link_of_a_plan_can_be_followed(page: TestClient) -> None:
    addresses = links(page, f"/plan?{CARDS}", "/")
    followed = [
        one
        for one in dict.fromkeys(addresses)
        if one.startswith(("/fit?", "/levers?", "/compare?"))
    ]
    assert len(followed) > 6
    for address in followed[:12]:
        answered = page.get(f"/api{address}")
        assert answered.status_code == 200, (address, answered.text)


def test_a_link_of_a_plan_keeps_what_other_views_are_told(page: TestClient) -> None:
    told = "experiments=3&sort=cost&order=descending"
    first = links(page, f"/plan?{CARDS}&{told}", "/fit")[0]
    assert asked_of(first)["experiments"] == ["3"]
    assert "sort" not in asked_of(first)


def test_the_list_is_sorted_on_the_server_by_a_plain_link(page: TestClient) -> None:
    by_cost = next(
        one
        for one in links(page, f"/plan?{CARDS}", "/plan")
        if asked_of(one).get("sort") == ["cost"]
    )
    text = page.get(by_cost.replace("ascending", "descending")).text
    assert Elements(text).all("th", **{"aria-sort": "descending"})
    cells = [
        float(str(one["data-value"]))
        for one in Elements(text.partition('id="shortlist"')[2].partition("</table>")[0]).all("td")
        if one.get("data-value")
    ]
    costs = cells[4::6]
    assert costs == sorted(costs, reverse=True)


def test_an_order_that_there_is_none_of_is_refused_with_what_there_is(page: TestClient) -> None:
    answered = page.get(f"/api/plan?{CARDS}&sort=colour")
    assert answered.status_code == 400
    assert "duration" in answered.json()["errors"][0]["near"]


def test_plans_kept_beside_the_form_stand_side_by_side(page: TestClient) -> None:
    other = quote(f"{MODEL}&gpu=NVIDIA L40S&count=1&set=training.max_length=512")
    answer = page.get(f"/api/compare?{ON_L4}&against={other}").json()
    assert [one["estimate"]["hardware"]["accelerator"] for one in answer["plans"]] == [
        "NVIDIA L4",
        "NVIDIA L40S",
    ]
    keys = {one["key"]: one["values"] for one in answer["differences"]}
    assert keys["training.max_length"] == [1024, 512]


def test_a_plan_can_be_kept_and_taken_out_by_plain_links(page: TestClient) -> None:
    alone = links(page, f"/compare?{ON_L4}", "/compare?")
    kept = next(one for one in alone if len(asked_of(one).get("against", [])) == 1)
    two = page.get(f"/api{kept}").json()
    assert len(two["plans"]) == 2
    assert two["differences"] == []
    removed = [one for one in links(page, kept, "/compare?") if "against" not in asked_of(one)]
    assert len(page.get(f"/api{removed[0]}").json()["plans"]) == 1


def test_at_most_four_plans_stand_side_by_side(page: TestClient) -> None:
    against = "&".join(
        "against=" + quote(f"{MODEL}&gpu=NVIDIA L4&count=1&set=training.max_length={length}")
        for length in (256, 512, 768, 2048, 4096)
    )
    assert len(page.get(f"/api/compare?{ON_L4}&{against}").json()["plans"]) == 4


def test_a_kept_plan_that_is_wrong_does_not_stop_the_others(page: TestClient) -> None:
    other = quote("model=Nonesuch-9000B&method=lora&colour=red")
    answer = page.get(f"/api/compare?{ON_L4}&against={other}").json()
    assert answer["plans"][0]["estimate"] is not None
    assert answer["plans"][1]["errors"]
    shown = page.get(f"/compare?{ON_L4}&against={other}")
    assert shown.status_code == 200
    assert "Nonesuch-9000B" in shown.text


@pytest.mark.parametrize("figure", ["cost.total", "time.step_s", "memory.terms.frozen_weights"])
def test_a_figure_has_an_address_of_its_own(page: TestClient, figure: str) -> None:
    answer = page.get(f"/api/why?{ON_L4}&figure={figure}").json()
    assert answer["figure"] == figure
    text = page.get(f"/why?{ON_L4}&figure={figure}").text
    assert Elements(text).all("details", **{"class": "node"})
    assert answer["tree"][0]["formula"] in Elements(text).text


def test_every_figure_of_the_ledger_can_be_opened(page: TestClient) -> None:
    found = {
        asked_of(one)["figure"][0]
        for one in links(page, f"/why?{ON_L4}", "/why?")
        if "figure" in asked_of(one)
    }
    assert {"cost.total", "time.total_s", "fit.verdict", "energy_kwh"} <= found
    for figure in sorted(found)[::8]:
        assert page.get(f"/api/why?{ON_L4}&figure={figure}").status_code == 200


def test_a_figure_that_there_is_none_of_is_refused_with_the_nearest(page: TestClient) -> None:
    answered = page.get(f"/api/why?{ON_L4}&figure=memory.peek")
    assert answered.status_code == 400
    assert "memory.peak_bytes" in json.dumps(answered.json())


def test_answers_obey_their_schemas(page: TestClient) -> None:
    import jsonschema

    for view, query in (("levers", ON_L4), ("compare", ON_L4), ("plan", CARDS)):
        document = page.get(f"/api/{view}?{query}").json()
        jsonschema.Draft202012Validator(json_schema(view)).validate(document)


def test_a_plan_shows_what_to_heed_and_what_was_assumed(page: TestClient) -> None:
    query = f"{CARDS}&max_length=512&packing=true"
    answer = page.get(f"/api/plan?{query}").json()
    assert "samples_cut_packed" in {one["code"] for one in answer["warnings"]}
    shown = page.get(f"/plan?{query}", headers={"HX-Request": "true"}).text
    elements = Elements(shown)
    for name in ("remarks", "assumptions"):
        assert elements.one("section", id=name)
    text = " ".join(elements.text.split())
    for told in answer["warnings"]:
        assert told["message"] in text
    assert answer["assumptions"]
    for assumed in answer["assumptions"]:
        assert assumed["reason"] in text
