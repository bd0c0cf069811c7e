"""Bundled offers and the user's price sheets."""

from __future__ import annotations

import random
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneplan.catalog.accelerators import load_accelerators
from tuneplan.catalog.offers import (
    age_days,
    bundled_offers,
    current_offers,
    is_stale,
    load_offers,
    offer_notices,
)
from tuneplan.catalog.regions import carbon_intensity
from tuneplan.catalog.tables import read_table
from tuneplan.errors import InvalidRequest, UnreadableFile
from tuneplan.spec.offer import Money

CHIPS = load_accelerators()
BUNDLED = bundled_offers()


def sheet(tmp_path, text, name="prices.yaml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def mistakes_of(path):
    with pytest.raises(InvalidRequest) as caught:
        load_offers(CHIPS, [path])
    return caught.value.mistakes


def own(path):
    return [offer for offer in load_offers(CHIPS, [path]).offers if offer.from_user]


def test_every_row_of_the_snapshot_is_kept_and_every_offer_is_whole() -> None:
    rows = read_table("offers.csv")
    assert len(rows) == 434
    names = {chip.name for chip in CHIPS.accelerators}
    for offer in BUNDLED:
        assert offer.accelerator in names
        assert offer.price.amount > 0
        assert offer.source
        assert offer.region != "global"
        assert offer.name
    known = {row["source"] for row in read_table("offer_sources.csv")}
    assert {row["source"] for row in rows} == known


def test_the_price_is_for_the_whole_instance() -> None:
    aws = next(o for o in BUNDLED if o.name == "p5.48xlarge")
    assert aws.num_accelerators == 8
    assert aws.price == Money(amount=Decimal("55.04"), currency="USD")
    assert aws.price_per_accelerator_hour.amount == Decimal("6.88")
    assert aws.region == "us-east-1"


def test_only_current_prices_count() -> None:
    offers = load_offers(CHIPS).offers
    h100 = [o for o in offers if o.accelerator == "NVIDIA H100 SXM"]
    assert h100
    assert min(o.as_of for o in h100) == date(2026, 8, 23)
    # The T4 has no newer price than the one of 2025: it stays, and is flagged as stale.
    t4 = [o for o in offers if o.accelerator == "NVIDIA T4"]
    assert {o.as_of for o in t4} == {date(2025, 3, 7)}


@given(st.randoms(use_true_random=False))
@settings(max_examples=10)
def test_which_offers_are_current_does_not_depend_on_their_order(rng: random.Random) -> None:
    shuffled = list(BUNDLED)
    rng.shuffle(shuffled)
    assert set(current_offers(shuffled)) == set(current_offers(BUNDLED))


def test_a_price_is_stale_after_ninety_days() -> None:
    offer = next(o for o in BUNDLED if o.as_of == date(2026, 10, 5))
    assert age_days(offer, date(2027, 1, 3)) == 90
    assert not is_stale(offer, date(2027, 1, 3))
    assert is_stale(offer, date(2027, 1, 4))
    codes = [n.message.code for n in offer_notices(offer, date(2027, 1, 4))]
    assert codes[0] == "stale_price"
    assert age_days(offer, date(2026, 1, 1)) == 0


def test_doubtful_prices_say_so() -> None:
    cheap = next(o for o in BUNDLED if o.accelerator == "AMD Instinct MI300X"
                 and o.price.amount == Decimal("0.5"))  # fmt: skip
    codes = {n.message.code for n in offer_notices(cheap, cheap.as_of)}
    assert codes == {"suspicious_price", "sold_by_card"}
    assert cheap.accelerators_per_node == 8


SHEET = """
rates:
  - {from: TWD, to: USD, rate: 0.0313, as_of: 2026-11-02, source: Bank of Taiwan}
offers:
  - provider: Our colocation
    name: h100-node
    accelerator: H100 SXM
    num_accelerators: 8
    price: 350000 TWD
    per: month
    region: TW
    as_of: 2026-11-02
    host_memory: 1 TiB
  - provider: Campus
    accelerator: RTX 4090
    num_accelerators: 4
    on_hand: true
    as_of: 2026-11-02
  - provider: Cloud X
    accelerator: A100-80GB
    num_accelerators: 2
    per_accelerator: yes
    price: NT$120/h
    as_of: 2026-11-02
"""


def test_a_price_sheet_comes_first(tmp_path) -> None:
    catalog = load_offers(CHIPS, [sheet(tmp_path, SHEET)])
    assert [o.from_user for o in catalog.offers[:3]] == [True] * 3
    by_provider = {o.provider: o for o in catalog.offers[:3]}
    month = by_provider["Our colocation"]
    assert month.term_price == Money(amount=Decimal(350_000), currency="TWD")
    assert month.term_hours == 720
    # NT$350,000 / (30 x 24 h) = NT$486 an hour
    assert round(month.price.amount) == 486
    assert month.host_memory_bytes == 2**40
    campus = by_provider["Campus"]
    assert campus.on_hand
    assert campus.price.amount == 0
    assert campus.cautions == ("no_internal_price",)
    cloud = by_provider["Cloud X"]
    assert cloud.price == Money(amount=Decimal(240), currency="TWD")
    assert catalog.rates[0].rate == Decimal("0.0313")
    # "A100-80GB" leaves SXM or PCIe open, and the sheet says how it was taken.
    assert "offer_chip_taken_as" in [n.message.code for n in catalog.notices]


def test_a_sheet_takes_the_place_of_the_providers_bundled_prices(tmp_path) -> None:
    path = sheet(
        tmp_path,
        """offers:
  - {provider: aws, accelerator: H100 SXM, num_accelerators: 8, price: 40 USD, per: hour,
     as_of: 2026-11-02}
""",
    )
    catalog = load_offers(CHIPS, [path])
    aws = [o for o in catalog.of("NVIDIA H100 SXM") if o.provider.lower() == "aws"]
    assert [o.price.amount for o in aws] == [Decimal(40)]
    assert "offers_overridden" in [n.message.code for n in catalog.notices]


def test_csv_and_yaml_say_the_same(tmp_path) -> None:
    yaml = sheet(
        tmp_path,
        """offers:
  - {provider: X, name: n, accelerator: L40S, num_accelerators: 4, price: 1200.50 EUR, per: week,
     region: DE, interruptible: true, as_of: 2026-11-02, source: s, vcpus: 32}
""",
    )
    csv = sheet(
        tmp_path,
        """# our prices
provider,name,accelerator,num_accelerators,price,per,region,interruptible,as_of,source,vcpus,on_hand

X,n,L40S,4,"1,200.50 EUR",week,DE,true,2026-11-02,s,32,
""",
        "prices.csv",
    )
    assert own(yaml) == own(csv)


@pytest.mark.parametrize(
    ("written", "amount", "currency"),
    [
        ("120 TWD", "120", "TWD"),
        ("NT$120", "120", "TWD"),
        ("NT$ 1,200", "1200", "TWD"),
        ("12.5 USD", "12.5", "USD"),
        ("US$3", "3", "USD"),
        ("2.50 eur per hour", "2.50", "EUR"),
    ],
)
def test_money_has_a_currency(tmp_path, written, amount, currency) -> None:
    period = "" if "hour" in written else ", per: hour"
    path = sheet(
        tmp_path,
        f"offers: [{{provider: X, accelerator: T4, num_accelerators: 1, price: '{written}'"
        f"{period}, as_of: 2026-11-02}}]",
    )
    (offer,) = own(path)
    assert offer.price == Money(amount=Decimal(amount), currency=currency)


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("12.5", "money_without_currency"),
        ("'12.5'", "money_without_currency"),
        ("12.5 ZZZ", "unknown_currency"),
        ("$12", "unknown_currency"),
        ("-3 USD", "negative_price"),
        ("3 USD/fortnight", "unknown_period"),
        ("true", "money_without_currency"),
    ],
)
def test_a_price_that_does_not_read_is_a_mistake(tmp_path, written, code) -> None:
    path = sheet(
        tmp_path,
        "offers:\n  - provider: X\n    accelerator: T4\n    num_accelerators: 1\n"
        f"    price: {written}\n    per: hour\n    as_of: 2026-11-02\n",
    )
    (mistake,) = mistakes_of(path)
    assert mistake.message.code == code
    assert mistake.line == 5
    assert mistake.path is not None
    assert mistake.path.endswith("offers[0].price")


def test_every_mistake_of_every_sheet_is_reported_at_once(tmp_path) -> None:
    first = sheet(
        tmp_path,
        """offers:
  - provider: X
    accelerator: H1000
    num_accelerators: 0
    price: 5
    per: hour
    as_of: soon
    regoin: DE
rates:
  - {from: TWD, to: dollars, rate: -1, as_of: 2026-11-02}
""",
    )
    second = sheet(
        tmp_path,
        "provider,accelerator,num_accelerators,price,per,as_of\n"
        "X,T4,1,5 USD,,2026-11-02\nY,T4,1,5 USD,hour\n",
        "prices.csv",
    )
    with pytest.raises(InvalidRequest) as caught:
        load_offers(CHIPS, [first, second])
    found = {(m.message.code, m.line) for m in caught.value.mistakes}
    assert found == {
        ("unknown_accelerator", 3),
        ("not_a_count", 4),
        ("money_without_currency", 5),
        ("not_a_date", 7),
        ("unknown_key", 8),
        ("unknown_currency", 10),
        ("not_a_number", 10),
        ("price_without_period", 2),
        ("wrong_cell_count", 3),
    }
    near = {m.message.code: m.near for m in caught.value.mistakes}
    assert near["unknown_key"] == ("region",)


def test_the_same_offer_twice_is_a_mistake(tmp_path) -> None:
    line = (
        "  - {provider: X, accelerator: T4, num_accelerators: 1, price: 1 USD/h, "
        "as_of: 2026-11-02}\n"
    )
    (mistake,) = mistakes_of(sheet(tmp_path, "offers:\n" + line + line))
    assert mistake.message.code == "offer_twice"
    assert mistake.line == 3


@pytest.mark.parametrize(("text", "name"), [("", "a.yaml"), ("", "a.csv"), ("a: [", "a.yaml")])
def test_an_empty_or_broken_sheet_is_unreadable(tmp_path, text, name) -> None:
    with pytest.raises(UnreadableFile):
        load_offers(CHIPS, [sheet(tmp_path, text, name)])


def test_the_formats_in_the_reference_read(tmp_path) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/prices.md").read_text(encoding="utf-8")
    blocks = page.split("```")
    yaml = next(b for b in blocks if b.startswith("yaml"))
    csv = next(b for b in blocks if b.startswith("text"))
    assert len(own(sheet(tmp_path, yaml.removeprefix("yaml")))) == 3
    assert len(own(sheet(tmp_path, csv.removeprefix("text\n"), "p.csv"))) == 1
    chips = (Path(__file__).parents[2] / "docs/reference/accelerators.md").read_text(
        encoding="utf-8"
    )
    block = next(b for b in chips.split("```") if b.startswith("yaml"))
    catalog = load_accelerators([sheet(tmp_path, block.removeprefix("yaml"))])
    assert catalog.resolve("X1").accelerator.name == "Acme X1 64GB"


def test_carbon_follows_country_and_cloud_region() -> None:
    assert carbon_intensity("FR").grams_per_kwh.likely == 56.0
    assert carbon_intensity("us-east-1").region == "United States"
    assert carbon_intensity("eastus2").region == "United States"
    assert carbon_intensity("asia-east1").region == "Taiwan"
    world = carbon_intensity(None)
    assert not world.known
    assert world.grams_per_kwh.likely == 475
    assert world.grams_per_kwh.low < 100
    assert carbon_intensity("nowhere") == world


@pytest.mark.parametrize(
    ("region", "country"),
    [
        ("europe-west1", "Belgium"),
        ("europe-west12", "Italy"),
        ("europe-west10", "Germany"),
        ("eu-north1", "Finland"),
        ("eu-north-1", "Sweden"),
        ("ap-east-1", "Hong Kong"),
        ("ap-east-2", "Taiwan"),
        ("me-central-1", "United Arab Emirates"),
        ("me-central1", "Qatar"),
        ("centralindia", "India"),
        ("ap-southeast-1", "Singapore"),
        ("ap-southeast-2", "Australia"),
        ("eu-frankfurt-1", "Germany"),
        ("EUR-IS-1", "Iceland"),
        ("SA", "Saudi Arabia"),
        ("sa-east-1", "Brazil"),
        ("CH", "Switzerland"),
        ("cn-north-1", "China"),
    ],
)
def test_a_region_lies_where_its_longest_name_says(region, country) -> None:
    assert carbon_intensity(region).region == country


def test_every_country_has_a_yearly_mean_with_its_year_and_source() -> None:
    rows = read_table("regions.csv")
    codes = [row["country"] for row in rows]
    assert len(codes) == len(set(codes)) == 42
    for row in rows:
        assert 15 < float(row["gco2_kwh"]) < 1000
        assert int(row["year"]) >= 2019
        assert row["source"]
    prefixes = [prefix for row in rows for prefix in row["prefixes"].split("|") if prefix]
    assert len(prefixes) == len(set(prefixes))
