"""Who may ask, how much, and what a browser may do with the answer."""

from __future__ import annotations

import pytest

from tuneplan.web.safety import HEADERS
from web.asking import JOB, client

FIT = f"/api/fit?{JOB}"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8765", "localhost:1", "[::1]:8765"])
def test_names_of_this_machine_are_answered(host: str) -> None:
    assert client().get("/fit", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "localhost.evil.example", ""],
)
def test_other_names_are_somebody_s_trick(host: str) -> None:
    answered = client().get("/fit", headers={"Host": host})
    assert answered.status_code == 421
    assert "form" not in answered.text


def test_another_site_cannot_send_a_form() -> None:
    asking = client()
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://["},
        {"Origin": "http://[::1%"},
        {"Origin": "//127.0.0.1"},
        {"Origin": "ftp://127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"},
    ):
        answered = asking.post("/api/fit", json={"job": {"model": "7B"}}, headers=headers)
        assert answered.status_code == 403, headers
    ours = {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}
    assert asking.post("/api/fit", json={"job": {"model": "7B"}}, headers=ours).status_code == 200


def test_another_site_may_link_to_us_and_no_more() -> None:
    asking = client()
    followed = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    assert asking.get("/fit", headers=followed).status_code == 200
    for change in ({"Sec-Fetch-Mode": "no-cors"}, {"Sec-Fetch-Dest": "iframe"}):
        assert asking.get("/fit", headers={**followed, **change}).status_code == 403


@pytest.mark.parametrize("address", ["/fit", FIT, "/nowhere", "/static/page.css", "/openapi.json"])
def test_every_answer_carries_our_headers(address: str) -> None:
    answered = client().get(address)
    for name, value in HEADERS.items():
        assert answered.headers[name] == value
    policy = answered.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_an_address_may_be_so_long_and_no_longer() -> None:
    assert client().get("/fit?model=" + "a" * 40_000).status_code == 414
    told = client().get("/api/fit?model=" + "a" * 5_000)
    assert told.status_code == 400
    assert {one["code"] for one in told.json()["errors"]} >= {"field_too_long"}


def test_fields_are_counted() -> None:
    told = client().get("/api/fit?model=7B&" + "&".join("set=a=1" for _ in range(300)))
    assert told.status_code == 400
    assert "too_many_fields" in {one["code"] for one in told.json()["errors"]}


def test_what_is_sent_is_weighed_whether_or_not_its_length_is_told() -> None:
    asking = client(upload_limit_bytes=1000)
    assert asking.post("/api/fit", content=b"x" * 2000).status_code == 413

    def pieces():
        for _ in range(20):
            yield b"x" * 100

    told = {"Content-Type": "application/json"}
    assert asking.post("/api/fit", content=pieces(), headers=told).status_code == 413


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
def test_other_methods_are_refused(method: str) -> None:
    assert client().request(method, "/api/fit").status_code == 405


HOSTILE = "<script>alert(1)</script>{{1234*4321}}{%raw%}\"'><img src=x onerror=alert(1)>"


def test_nothing_that_is_asked_becomes_part_of_the_page() -> None:
    asking = client()
    for name in ("model", "gpu", "set", "framework", "no_such_field", "lang", "theme"):
        for headers in ({}, {"HX-Request": "true"}):
            query = {"model": "7B", name: HOSTILE}
            text = asking.get("/fit", params=query, headers=headers).text
            assert "<script>alert" not in text
            assert "<img" not in text
            assert "5332114" not in text


def test_nothing_that_is_asked_becomes_a_header() -> None:
    split = "en\r\nSet-Cookie: a=b"
    answered = client().get("/fit", params={"model": split, "lang": split, "theme": split})
    assert "a=b" not in str(answered.headers.get_list("set-cookie"))


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"job": 1}', b'{"model": {}}', b"[" * 100_000, b"\xff\xfe"],
)
def test_a_body_that_does_not_read_is_a_mistake(body: bytes) -> None:
    told = {"Content-Type": "application/json"}
    answered = client().post("/api/fit", content=body, headers=told)
    assert answered.status_code == 400
    assert answered.json()["errors"]


@pytest.mark.parametrize("name", ["lang", "theme"])
def test_only_a_choice_that_there_is_stays_chosen(name: str) -> None:
    for said in ("\u7e41\u9ad4", "\u00ff", "\x00", "nonsense"):
        answered = client().get("/fit", params={name: said})
        assert answered.status_code == 200
        assert "set-cookie" not in answered.headers
    assert "set-cookie" in client().get("/fit?lang=zh-TW&theme=dark").headers


HALF_A_PAIR = "\\ud800"


def test_half_a_surrogate_pair_is_answered_like_any_other_text() -> None:
    asking = client()
    for body in (
        f'{{"model": "{HALF_A_PAIR}"}}',
        f'{{"{HALF_A_PAIR}": 1}}',
        f'{{"job": {{"{HALF_A_PAIR}": "{HALF_A_PAIR}"}}}}',
    ):
        told = {"Content-Type": "application/json"}
        answered = asking.post("/api/compare", content=body.encode(), headers=told)
        assert answered.status_code == 400
        assert answered.json()["errors"]
    for address in ("/api/fit", "/fit"):
        answered = asking.get(address, params={"set": f'model="{HALF_A_PAIR}"'})
        assert answered.status_code == 400


def test_lists_in_lists_are_no_values_of_a_field() -> None:
    told = {"Content-Type": "application/json"}
    body = b'{"model": ' + b"[" * 900 + b"]" * 900 + b"}"
    answered = client().post("/api/fit", content=body, headers=told)
    assert answered.status_code == 400
    assert answered.json()["errors"][0]["code"] == "field_is_no_value"


def test_a_length_that_is_no_number_is_refused() -> None:
    answered = client().post("/api/fit", content=b"", headers={"Content-Length": b"\xb2"})
    assert answered.status_code == 413


@pytest.mark.parametrize("charset", ["undefined", "punycode", "unicode_escape", "no-such"])
def test_a_charset_that_a_form_names_breaks_nothing(charset: str) -> None:
    told = {"Content-Type": f"multipart/form-data; boundary=B; charset={charset}"}
    body = b'--B\r\nContent-Disposition: form-data; name="text"\r\n\r\n\\ud800 \xff\r\n--B--\r\n'
    assert client().post("/api/check", content=body, headers=told).status_code in (200, 400)
