"""Prices of today: fetched from a server of our own, checked, and put in the place of the old."""

from __future__ import annotations

import csv
import io
import json
import sys
import threading
import zipfile
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tuneplan.catalog.accelerators import load_accelerators
from tuneplan.catalog.gpu_hunt import ListedOffer, PricesUnreachable, listed_offers
from tuneplan.catalog.offers import is_stale, load_offers
from tuneplan.catalog.refreshing import check_snapshot, replace_snapshot, snapshot_of
from tuneplan.cli.main import run
from tuneplan.contract.schema import json_schema
from tuneplan.errors import InvalidRequest, MissingExtra

CHIPS = load_accelerators()
DAY = date(2026, 11, 30)
PROVIDERS = ["aws", "azure", "verda", "gcp", "lambdalabs", "nebius", "oci", "runpod", "cloudrift"]
CARDS = (("H100", 80, 2.5), ("A100", 80, 1.5), ("L40S", 48, 0.9), ("T4", 16, 0.3), ("L4", 24, 0.6))


def listed(scale: float = 1.0, **changes) -> list[ListedOffer]:
    return [
        ListedOffer(
            **{
                "provider": "AWS", "name": f"{card}-x{count}", "region": region,
                "price": price * count * scale * (0.4 if spot else 1), "gpu_name": card,
                "gpu_memory_gb": float(memory), "gpu_count": count, "spot": spot, "vcpus": 8,
                "host_memory_gb": 64.0, **changes,
            }
        )
        for card, memory, price in CARDS
        for count in (1, 8)
        for region in ("us-east-1", "eu-west-1")
        for spot in (False, True)
    ]  # fmt: skip


def catalogue(provider: str) -> bytes:
    """A provider's catalogue as gpuhunt publishes it."""
    text = io.StringIO()
    names = (
        *("instance_name", "location", "price", "cpu", "memory", "gpu_count", "gpu_name"),
        *("gpu_memory", "spot", "disk_size", "gpu_vendor", "flags", "cpu_arch", "provider_data"),
    )
    writer = csv.DictWriter(text, fieldnames=names)
    writer.writeheader()
    for offer in listed():
        writer.writerow(
            {
                "instance_name": offer.name, "location": offer.region, "price": offer.price,
                "cpu": 8, "memory": 64, "gpu_count": offer.gpu_count, "gpu_name": offer.gpu_name,
                "gpu_memory": offer.gpu_memory_gb, "spot": offer.spot, "disk_size": "",
                "gpu_vendor": "nvidia", "flags": "", "cpu_arch": "x86", "provider_data": "{}",
            }
        )  # fmt: skip
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        packed.writestr(f"{provider}.csv", text.getvalue())
    return content.getvalue()


class _Catalogues(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        _, provider, *rest = self.path.split("/")
        body = b"20261130-1" if rest == ["version"] else catalogue(provider)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Catalogues) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{found.server_port}"
        monkeypatch.setenv("GPUHUNT_CATALOG_URL", url)
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.delenv(name, raising=False)
        try:
            yield url
        finally:
            found.shutdown()
            thread.join()


@pytest.fixture
def nobody(monkeypatch) -> None:
    monkeypatch.setenv("GPUHUNT_CATALOG_URL", "http://127.0.0.1:9")


@pytest.mark.usefixtures("server")
def test_a_refresh_brings_prices_that_count_and_are_not_stale(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1796040000")
    assert run(["prices", "refresh", "--timeout", "20", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == set(json_schema("prices-refresh")["required"])
    assert answer["num_before"] == 0
    assert "NVIDIA T4" in answer["accelerators"]
    path = tmp_path / "tuneplan" / "prices" / "offers.csv"
    assert answer["file"] == str(path)
    catalog = load_offers(CHIPS, (), path)
    new = [offer for offer in catalog.offers if offer.source.startswith("gpuhunt")]
    # nine providers, 5 cards, 1 and 8 of them, 2 regions, on demand and spot
    assert len(new) == 9 * 5 * 2 * 2 * 2
    # the snapshot of 2025 has no newer price of the T4; the refreshed ones supersede it
    assert not any(is_stale(offer, DAY) for offer in catalog.of("NVIDIA T4"))
    assert {offer.as_of for offer in new} == {DAY}
    assert run(["prices", "refresh", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_before"] == len(new)


@pytest.mark.usefixtures("nobody")
def test_without_a_network_it_says_so_at_once_and_nothing_changes(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert run(["prices", "refresh", "--timeout", "2", "--json"]) == 2
    captured = capsys.readouterr()
    (error,) = json.loads(captured.out)["errors"]
    assert error["code"] == "prices_unreachable"
    assert "Traceback" not in captured.err
    assert not (tmp_path / "tuneplan").exists()
    with pytest.raises(PricesUnreachable):
        listed_offers(2.0)


def test_without_the_extra_the_install_command_is_told(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "gpuhunt", None)
    with pytest.raises(MissingExtra) as caught:
        listed_offers(1.0)
    assert "tuneplan[prices]" in str(caught.value)


def test_cards_are_named_as_the_catalogue_names_them_and_others_are_counted() -> None:
    snapshot = snapshot_of([*listed(), *listed(gpu_name="K80", gpu_memory_gb=12.0)], CHIPS, DAY)
    assert snapshot.chips == (
        "NVIDIA A100 SXM 80GB", "NVIDIA H100 SXM", "NVIDIA L4", "NVIDIA L40S", "NVIDIA T4",
    )  # fmt: skip
    assert snapshot.left_out == (("K80 12 GB", 40),)
    row = next(r for r in snapshot.rows if r["name"] == "H100-x8" and r["region"] == "us-east-1")
    # 2.50 x 8 on demand, 0.4 of it on spot; the form of an H100 is not named
    assert (row["on_demand_usd_hour"], row["spot_usd_hour"]) == ("20", "8")
    assert row["cautions"] == "form_usual"
    assert check_snapshot(snapshot) == ()


def test_of_several_prices_of_the_same_the_lowest_counts() -> None:
    snapshot = snapshot_of([*listed(), *listed(scale=0.9), *listed(scale=1.1)], CHIPS, DAY)
    row = next(r for r in snapshot.rows if r["name"] == "T4-x1")
    assert Decimal(row["on_demand_usd_hour"]) == Decimal("0.27")


@pytest.mark.parametrize(
    ("offers", "code"),
    [
        (listed()[:10], "too_few_offers"),
        (listed(gpu_name="T4", gpu_memory_gb=16.0, price=0.3), "too_few_cards"),
        (listed(scale=100.0), "price_out_of_reach"),
        (listed(scale=0.001), "price_out_of_reach"),
    ],
)
def test_a_snapshot_that_makes_no_sense_replaces_nothing(offers, code, tmp_path) -> None:
    path = tmp_path / "offers.csv"
    replace_snapshot(snapshot_of(listed(), CHIPS, DAY), path)
    old = path.read_bytes()
    with pytest.raises(InvalidRequest) as caught:
        replace_snapshot(snapshot_of(offers, CHIPS, DAY), path)
    assert code in {mistake.message.code for mistake in caught.value.mistakes}
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_a_snapshot_of_less_than_half_replaces_nothing(tmp_path) -> None:
    path = tmp_path / "offers.csv"
    twice = [*listed(), *listed(region="ap-east-1"), *listed(region="sa-east-1")]
    replace_snapshot(snapshot_of(twice, CHIPS, DAY), path)
    before = [o for o in load_offers(CHIPS, (), path).offers if o.source.startswith("gpuhunt")]
    with pytest.raises(InvalidRequest) as caught:
        replace_snapshot(snapshot_of(listed()[:36], CHIPS, DAY), path, before)
    assert "snapshot_shrank" in {mistake.message.code for mistake in caught.value.mistakes}


def test_a_price_far_below_the_others_is_kept_and_marked() -> None:
    cheap = listed(provider="Y", price=0.3)[:1]  # an H100 for 0.30 among those for 2.50
    snapshot = snapshot_of([*listed(), *cheap], CHIPS, DAY)
    (row,) = [one for one in snapshot.rows if one["provider"] == "Y"]
    assert row["cautions"] == "form_usual suspicious_price"
    assert check_snapshot(snapshot) == ()


@pytest.mark.parametrize("text", ["nonsense", "provider,name\nX,Y\n", ""])
def test_a_refreshed_file_that_does_not_read_is_told_and_left_aside(text, tmp_path) -> None:
    path = tmp_path / "offers.csv"
    path.write_text(text, encoding="utf-8")
    found = load_offers(CHIPS, (), path)
    assert [o for o in found.offers if o.source.startswith("gpuhunt")] == []
    assert len(found.offers) == len(load_offers(CHIPS).offers)


def test_a_file_that_cannot_be_written_is_an_error_for_people(tmp_path: Path) -> None:
    from tuneplan.errors import UnreadableFile

    (tmp_path / "blocked").write_text("a file where a folder should be")
    with pytest.raises(UnreadableFile):
        replace_snapshot(snapshot_of(listed(), CHIPS, DAY), tmp_path / "blocked" / "offers.csv")
