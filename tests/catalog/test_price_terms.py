"""Price sheets beyond the price: terms, discounts, spot, certificates, own hardware."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tuneplan.catalog.accelerators import load_accelerators
from tuneplan.catalog.offers import load_offers
from tuneplan.economics.tariff import charge
from tuneplan.errors import InvalidRequest
from tuneplan.spec.offer import Billing, Interruptions, Money

CHIPS = load_accelerators()

SHEET = """offers:
  - provider: Cloud X
    name: month
    accelerator: H100 SXM
    num_accelerators: 1
    price: 50000 TWD
    per: month
    minimum_term: 2 month
    discounts: {6 month: 10 %, 1 year: 20 %}
    certifications: [ISO 27001, SOC 2]
    single_tenant: true
    as_of: 2026-11-02
  - provider: Cloud X
    name: spot
    accelerator: H100 SXM
    num_accelerators: 1
    price: 60 TWD/h
    interruptible: true
    interrupted_every: 12 h
    restart: 15 min
    wait: 30 min
    minimum_charge: 10 min
    charged_by: minute
    as_of: 2026-11-02
  - provider: Cloud Y
    name: reserved
    accelerator: H100 SXM
    num_accelerators: 8
    price: 16 USD
    per: hour
    minimum_term: 1 year
    upfront: 10000 USD
    as_of: 2026-11-02
  - provider: Our room
    name: bought
    accelerator: H100 SXM
    num_accelerators: 8
    as_of: 2026-11-02
    owned:
      purchase: 9500000 TWD
      resale: 500000 TWD
      lifetime: 4 year
      power: 10.2 kW
      idle_power: 2.5 kW
      pue: 1.5
      electricity: 4.5 TWD
      rack: 30000 TWD
      cooling: 7200 TWD
      staff: 120000 TWD
      staff_share: 20 %
      utilization: 50 %
"""

CSV = """provider,name,accelerator,num_accelerators,price,per,minimum_term,discounts,certifications,single_tenant,interruptible,interrupted_every,restart,wait,minimum_charge,charged_by,upfront,owned.purchase,owned.resale,owned.lifetime,owned.power,owned.idle_power,owned.pue,owned.electricity,owned.rack,owned.cooling,owned.staff,owned.staff_share,owned.utilization,as_of
Cloud X,month,H100 SXM,1,50000 TWD,month,2 month,6 month: 10 %; 1 year: 20 %,ISO 27001; SOC 2,true,,,,,,,,,,,,,,,,,,,,2026-11-02
Cloud X,spot,H100 SXM,1,60 TWD/h,,,,,,true,12 h,15 min,30 min,10 min,minute,,,,,,,,,,,,,,2026-11-02
Cloud Y,reserved,H100 SXM,8,16 USD,hour,1 year,,,,,,,,,,10000 USD,,,,,,,,,,,,,2026-11-02
Our room,bought,H100 SXM,8,,,,,,,,,,,,,,9500000 TWD,500000 TWD,4 year,10.2 kW,2.5 kW,1.5,4.5 TWD,30000 TWD,7200 TWD,120000 TWD,20 %,50 %,2026-11-02
"""  # noqa: E501 - a table has wide rows


def read(tmp_path, text, name="prices.yaml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return {o.name: o for o in load_offers(CHIPS, [path]).offers if o.from_user}


def mistakes_of(tmp_path, text, name="prices.yaml"):
    with pytest.raises(InvalidRequest) as caught:
        read(tmp_path, text, name)
    return {(m.message.code, m.line) for m in caught.value.mistakes}


def test_terms_and_discounts_of_a_sheet(tmp_path) -> None:
    offers = read(tmp_path, SHEET)
    month = offers["month"]
    assert month.billing == Billing(
        commitment_hours=1440, discounts=((4320, Decimal("0.1")), (8760, Decimal("0.2")))
    )
    assert month.certifications == ("ISO 27001", "SOC 2")
    assert month.single_tenant is True
    assert month.place == (str(tmp_path / "prices.yaml"), 2)
    # one month is charged as two; six months as 6 x 45,000
    assert charge(month, Decimal(1)).total == 100_000
    assert charge(month, Decimal(4320)).total == 270_000
    spot = offers["spot"]
    assert spot.interruptions == Interruptions(every_hours=12, restart_hours=0.25, wait_hours=0.5)
    assert (spot.billing.minimum_s, spot.billing.increment_s) == (600, 60)
    reserved = offers["reserved"]
    assert reserved.billing.upfront == Money(amount=Decimal(10_000), currency="USD")
    assert charge(reserved, Decimal(100)).total == 16 * 8760 + 10_000
    assert reserved.single_tenant is None


def test_own_hardware_has_a_price_of_items(tmp_path) -> None:
    bought = read(tmp_path, SHEET)["bought"]
    assert bought.on_hand
    items = {name: money.amount for name, money in bought.price_items}
    # 9,000,000 / (35,040 h x 0.5) + (10.2 + 2.5) x 1.5 x 4.5 + (7,200 + 30,000 + 24,000) / 360
    assert round(bought.price.amount, 2) == Decimal("769.42")
    assert sum(items.values()) == bought.price.amount
    assert bought.cautions == ()


def test_yaml_and_csv_say_the_same(tmp_path) -> None:
    from dataclasses import replace

    yaml, csv = read(tmp_path, SHEET), read(tmp_path, CSV, "prices.csv")
    assert {n: replace(o, source="") for n, o in yaml.items()} == {
        n: replace(o, source="") for n, o in csv.items()
    }


OWNED = "owned: {lifetime: 1 year, power: 1 kW, utilization: 50 %%, purchase: %s}"
SPOT = "price: 5 USD/h, interrupted_every: %s"
BASE = "offers:\n  - {provider: X, accelerator: T4, num_accelerators: 1, as_of: 2026-11-02, %s}\n"


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ("price: 5 USD/h, discounts: {6 month: 10}", "not_a_percentage"),
        ("price: 5 USD/h, discounts: {6: 10 %}", "quantity_without_unit"),
        ("price: 5 USD/h, discounts: {6 month: 100 %}", "free_of_charge"),
        ("price: 5 USD/h, discounts: {6 month: 120 %}", "out_of_range"),
        ("price: 5 USD/h, discounts: 3", "not_discounts"),
        ("price: 5 USD/h, minimum_term: 6", "quantity_without_unit"),
        ("price: 5 USD/h, minimum_term: 90 s", "not_whole_hours"),
        ("price: 5 USD/h, minimum_charge: 10", "quantity_without_unit"),
        ("price: 5 USD/h, charged_by: fortnight", "unknown_increment"),
        ("price: 5 USD/h, upfront: 100", "money_without_currency"),
        ("price: 5 USD/h, upfront: -100 USD", "negative_price"),
        ("price: 5 USD/h, upfront: 100 EUR", "currencies_mixed"),
        ("price: 5 USD/h, interruptible: true, interrupted_every: 5 h", "needs_restart"),
        (SPOT % "5 h, restart: 1 h, interruptible: false", "interrupted_but_not_interruptible"),
        ("price: 5 USD/h, interruptible: true, restart: 5 min", "needs_interrupted_every"),
        (SPOT % "-1 h, restart: 1 h, interruptible: true", "not_above_zero"),
        ("owned: 3", "owned_not_a_mapping"),
        (OWNED % "9 TWD, electricity: 3 EUR", "currencies_mixed"),
        (OWNED % "9 EUR, electricity: 3 EUR, resale: 10 EUR", "resale_above_purchase"),
        (OWNED % "9 EUR, electricity: 3 EUR, pue: 0.5", "not_a_pue"),
        (OWNED % "9 EUR, electricity: 3 EUR, staff_share: 120 %", "out_of_range"),
    ],
)  # fmt: skip
def test_a_term_that_does_not_read_is_a_mistake_with_its_line(tmp_path, keys, code) -> None:
    assert mistakes_of(tmp_path, BASE % keys) == {(code, 2)}


def test_every_mistake_of_own_hardware_is_told_at_once(tmp_path) -> None:
    text = """offers:
  - provider: Ours
    accelerator: T4
    num_accelerators: 1
    price: 1 USD/h
    as_of: 2026-11-02
    owned:
      purchase: 1000
      lifetime: 4
      power: 300
      electricity: 3 EUR
      staff: 100 USD
      utilisation: 50 %
"""
    assert mistakes_of(tmp_path, text) == {
        ("owned_and_price", 5),
        ("money_without_currency", 8),
        ("quantity_without_unit", 9),
        ("not_a_power", 10),
        ("staff_without_share", 12),
        ("unknown_key", 13),
        ("missing_key", 8),
    }
