"""Chips by the names that people and drivers give them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneplan.catalog.accelerator_facts import accelerator_facts
from tuneplan.catalog.accelerators import AcceleratorCatalog, load_accelerators
from tuneplan.catalog.tables import read_table
from tuneplan.errors import InvalidRequest, UnknownName, UnreadableFile
from tuneplan.units import GB, GIB, MIB

CATALOG = load_accelerators()
NAMES = [chip.name for chip in CATALOG.accelerators]

ALIASES = {
    "H100": "NVIDIA H100 SXM",
    "h100": "NVIDIA H100 SXM",
    "NVIDIA H100 80GB HBM3": "NVIDIA H100 SXM",
    "H100-SXM5-80GB": "NVIDIA H100 SXM",
    "h100sxm": "NVIDIA H100 SXM",
    "H100 PCIe": "NVIDIA H100 PCIe",
    "NVIDIA H100 NVL": "NVIDIA H100 NVL",
    "H100 NVL 94GB": "NVIDIA H100 NVL",
    "H200": "NVIDIA H200 SXM",
    "NVIDIA H200": "NVIDIA H200 SXM",
    "H200 NVL": "NVIDIA H200 NVL",
    "H20": "NVIDIA H20",
    "GH200": "NVIDIA GH200 96GB",
    "NVIDIA GH200 480GB": "NVIDIA GH200 96GB",
    "GB200": "NVIDIA GB200",
    "GB200 NVL72": "NVIDIA GB200",
    "B200": "NVIDIA B200 SXM",
    "B200 192GB": "NVIDIA B200 SXM",
    "B200 180GB": "NVIDIA B200 SXM",
    "NVIDIA B300 SXM6 AC": "NVIDIA B300 SXM",
    "A100": "NVIDIA A100 SXM 80GB",
    "A100-80GB": "NVIDIA A100 SXM 80GB",
    "A100 (80 GB)": "NVIDIA A100 SXM 80GB",
    "nvidia-a100-80gb": "NVIDIA A100 SXM 80GB",
    "A100-SXM4-40GB": "NVIDIA A100 SXM 40GB",
    "A100 40GB": "NVIDIA A100 SXM 40GB",
    "NVIDIA A100 80GB PCIe": "NVIDIA A100 PCIe 80GB",
    "A100 PCIe": "NVIDIA A100 PCIe 80GB",
    "NVIDIA A100-PCIE-40GB": "NVIDIA A100 PCIe 40GB",
    "A6000 Ada": "NVIDIA RTX 6000 Ada",
    "RTX 6000 Ada": "NVIDIA RTX 6000 Ada",
    "A6000": "NVIDIA RTX A6000",
    "RTX A6000": "NVIDIA RTX A6000",
    "RTX PRO 6000": "NVIDIA RTX PRO 6000 Blackwell",
    "RTX 4090": "NVIDIA GeForce RTX 4090",
    "4090": "NVIDIA GeForce RTX 4090",
    "4090D": "NVIDIA GeForce RTX 4090 D",
    "RTX 3090": "NVIDIA GeForce RTX 3090",
    "3090 Ti": "NVIDIA GeForce RTX 3090 Ti",
    "Tesla T4": "NVIDIA T4",
    "T4": "NVIDIA T4",
    "A10": "NVIDIA A10",
    "A10G": "NVIDIA A10G",
    "L4": "NVIDIA L4",
    "L40": "NVIDIA L40",
    "L40S": "NVIDIA L40S",
    "NVIDIA L40S": "NVIDIA L40S",
    "V100": "NVIDIA V100 SXM2 16GB",
    "V100 32GB": "NVIDIA V100 SXM2 32GB",
    "Tesla V100-SXM2-16GB": "NVIDIA V100 SXM2 16GB",
    "MI300X": "AMD Instinct MI300X",
    "AMD Instinct MI300X OAM": "AMD Instinct MI300X",
    "TPU v5e": "Google TPU v5e",
}


@pytest.mark.parametrize(("written", "name"), ALIASES.items())
def test_a_name_as_written_means_one_chip(written: str, name: str) -> None:
    assert CATALOG.resolve(written).accelerator.name == name


@pytest.mark.parametrize("name", NAMES)
def test_every_catalogue_name_and_alias_means_its_own_chip(name: str) -> None:
    chip = CATALOG.entry(name).accelerator
    found = CATALOG.resolve(name).accelerator
    assert found.name == chip.name
    for alias in chip.aliases:
        assert CATALOG.resolve(alias).accelerator.name == chip.name


@pytest.mark.parametrize("name", NAMES)
def test_every_chip_has_sane_figures(name: str) -> None:
    chip = CATALOG.entry(name).accelerator
    assert 0 < chip.capacity_bytes <= chip.memory_bytes
    assert chip.context_bytes < chip.capacity_bytes
    assert 100e9 < chip.memory_bandwidth_bytes_per_s < 10e12
    assert chip.dense_flop_per_s
    assert all(rate > 0 for rate in chip.dense_flop_per_s.values())
    assert chip.link_bytes_per_s <= 900e9
    assert chip.source
    assert chip.as_of
    for dtype, rate in chip.measured_flop_per_s.items():
        # Consumer cards run above their datasheet clock: the RTX 4090 by 4 %.
        assert rate <= 1.05 * chip.dense_flop_per_s[dtype]
    if chip.supports_bf16:
        assert "bfloat16" in chip.dense_flop_per_s


def test_a_choice_among_variants_is_an_assumption_that_names_the_others() -> None:
    resolved = CATALOG.resolve("A100")
    choice = next(a for a in resolved.assumptions if a.name == "hardware.accelerator")
    assert choice.value == "NVIDIA A100 SXM 80GB"
    assert "NVIDIA A100 SXM 40GB" in str(choice.reason)
    exact = CATALOG.resolve("A100-SXM4-40GB")
    assert not [a for a in exact.assumptions if a.name == "hardware.accelerator"]


@pytest.mark.parametrize(
    ("written", "memory_bytes", "name"),
    [
        ("A100", 40 * GIB, "NVIDIA A100 SXM 40GB"),
        ("A100", 40_536 * MIB, "NVIDIA A100 SXM 40GB"),
        ("A100", round(79.15 * GIB), "NVIDIA A100 SXM 80GB"),
        ("Tesla V100", 32 * GB, "NVIDIA V100 SXM2 32GB"),
        ("H100", 95_830 * MIB, "NVIDIA H100 NVL"),
        ("NVIDIA A10G", 23_028 * MIB, "NVIDIA A10G"),
    ],
)
def test_name_and_memory_together_pick_the_variant(
    written: str, memory_bytes: int, name: str
) -> None:
    assert CATALOG.resolve(written, memory_bytes).accelerator.name == name


def test_a_modified_card_is_not_taken_for_the_one_it_was() -> None:
    with pytest.raises(UnknownName) as caught:
        CATALOG.resolve("NVIDIA GeForce RTX 4090", 49_140 * MIB)
    assert caught.value.near == ("NVIDIA GeForce RTX 4090",)


@pytest.mark.parametrize(
    ("written", "near"),
    [
        ("H10", "NVIDIA H100 SXM"),
        ("RTX 6000", "NVIDIA RTX 6000 Ada"),
        ("A100 60GB", "NVIDIA A100 SXM 80GB"),
        ("RTX 4060 Ti 8GB", "NVIDIA GeForce RTX 4060 Ti 16GB"),
        ("RTX 4009", "NVIDIA GeForce RTX 4090"),
    ],
)
def test_an_unknown_name_comes_with_near_ones(written: str, near: str) -> None:
    with pytest.raises(UnknownName) as caught:
        CATALOG.resolve(written)
    assert near in caught.value.near
    assert written in str(caught.value)


@pytest.mark.parametrize("written", ["", " ", "GPU", "80GB", "NVIDIA"])
def test_a_name_without_a_model_is_unknown(written: str) -> None:
    with pytest.raises(UnknownName):
        CATALOG.resolve(written)


@given(st.text(max_size=30))
@settings(max_examples=200)
def test_any_text_is_a_chip_or_an_unknown_name(written: str) -> None:
    try:
        found = CATALOG.resolve(written).accelerator.name
    except UnknownName as error:
        found = error.name
    assert found in (*NAMES, written)


@given(st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_the_order_of_entries_does_not_matter(rng: random.Random) -> None:
    entries = list(CATALOG.entries)
    rng.shuffle(entries)
    shuffled = AcceleratorCatalog(tuple(entries))
    assert [chip.name for chip in shuffled.accelerators] == NAMES
    for written in ("A100", "H100", "V100", "A100 40GB", "H200", "A6000 Ada", "P100"):
        assert shuffled.resolve(written) == CATALOG.resolve(written)


@pytest.mark.parametrize(
    ("name", "tflop_s"),
    [
        # Dense figures where popular tables print the sparse, the pair's or the shader's one.
        ("H200", 989.4),
        ("H200 NVL", 835.5),
        ("H100 NVL", 835.0),
        ("RTX 3090", 71.0),
        ("RTX 4090", 165.2),
        ("RTX A6000", 154.8),
        ("A40", 149.7),
        ("A10G", 70.0),
        ("L4", 121.0),
        ("RTX 6000 Ada", 364.2),
        ("H800", 989.4),
        ("MI300X", 1307.4),
    ],
)
def test_rates_are_the_dense_ones(name: str, tflop_s: float) -> None:
    chip = CATALOG.resolve(name).accelerator
    assert chip.peak_flop_per_s("bfloat16") == pytest.approx(tflop_s * 1e12)


def test_memory_and_bandwidth_are_those_of_the_whole_package() -> None:
    assert CATALOG.resolve("MI325X").accelerator.memory_bytes == 256 * GIB
    assert CATALOG.resolve("MI300X").accelerator.memory_bandwidth_bytes_per_s == 5.3e12
    assert CATALOG.resolve("A10").accelerator.memory_bytes == 24 * GIB
    assert CATALOG.resolve("B300").accelerator.compute_capability == 10.3


def test_links_are_one_direction() -> None:
    # H100: NVLink 900 GB/s both ways = 450 each way; H800 400 / 2; PCIe 4.0 x16 = 31.5.
    assert CATALOG.resolve("H100").accelerator.link_bytes_per_s == 450e9
    assert CATALOG.resolve("H800").accelerator.link_bytes_per_s == 200e9
    assert CATALOG.resolve("L40S").accelerator.link_bytes_per_s == 31.51e9
    assert CATALOG.resolve("RTX 4060 Ti").accelerator.pcie_bytes_per_s == 31.51e9 / 2


def test_chips_without_bf16_are_known() -> None:
    for name in ("T4", "V100", "RTX 2080 Ti", "P100"):
        chip = CATALOG.resolve(name).accelerator
        assert not chip.supports_bf16
        assert chip.peak_flop_per_s("bfloat16") is None


def test_capacity_is_below_what_the_driver_prints() -> None:
    # A30: 24,576 MiB = 24.0 GiB, less 0.45 GiB by rule. T4: 14.56 GiB is what torch prints.
    a30 = CATALOG.resolve("A30")
    assert a30.accelerator.capacity_bytes == 24 * GIB - round(0.45 * GIB)
    assert any(a.name == "hardware.accelerator.capacity_bytes" for a in a30.assumptions)
    t4 = CATALOG.resolve("T4")
    assert t4.accelerator.capacity_bytes == round(14.56 * GIB)
    assert t4.accelerator.context_bytes == 141 * MIB
    assert not t4.assumptions


def test_shared_memory_follows_the_size_in_the_name() -> None:
    # torch may use three quarters of 64 GB.
    chip = CATALOG.resolve("Apple M3 Max 64GB").accelerator
    assert chip.capacity_bytes == round(0.75 * chip.memory_bytes)
    assert chip.memory_bytes == 64 * GIB
    largest = CATALOG.resolve("Apple M3 Max")
    assert largest.accelerator.memory_bytes == 128 * GIB
    assert largest.assumptions[0].name == "hardware.accelerator"


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_a_users_chip_wins_over_the_bundled_one_and_says_so(tmp_path) -> None:
    file = write(
        tmp_path / "chips.yaml",
        """
accelerators:
  - name: NVIDIA H100 SXM
    like: H100
    capacity: 78.9 GiB
    measured_rate: {bfloat16: 640 TFLOP/s}
    source: our own rack
    as_of: 2026-11-01
  - name: Acme X1 64GB
    aliases: [X1]
    memory: 64 GiB
    memory_bandwidth: 2 TB/s
    dense_rate: {bfloat16: 300 TFLOP/s, float16: 300 TFLOP/s}
    power: 450 W
    supports_bf16: true
    link: acmelink
    link_bandwidth: 200 GB/s
    pcie_bandwidth: 31.5 GB/s
""",
    )
    catalog = load_accelerators([file])
    resolved = catalog.resolve("H100")
    assert resolved.accelerator.capacity_bytes == round(78.9 * GIB)
    assert resolved.accelerator.measured_flop_per_s["bfloat16"] == 640e12
    assert resolved.accelerator.memory_bandwidth_bytes_per_s == 3.35e12
    assert [note.message.code for note in resolved.notes] == ["overrides_bundled"]
    assert [entry.accelerator.name for entry in catalog.overridden] == ["NVIDIA H100 SXM"]
    own = catalog.resolve("x1").accelerator
    assert own.link == "acmelink"
    assert own.capacity_bytes == 64 * GIB - round(0.6 * GIB)


def test_every_mistake_of_a_chip_file_is_reported_with_its_line(tmp_path) -> None:
    file = write(
        tmp_path / "chips.yaml",
        """accelerators:
  - name: X1
    memory: 64
    memory_bandwith: 2 TB/s
    dense_rate: {bfloat61: 300 TFLOP/s}
    supports_bf16: perhaps
    as_of: 2026-02-30
  - like: H1000
    power: -5 W
""",
    )
    with pytest.raises(InvalidRequest) as caught:
        load_accelerators([file])
    found = {(m.line, m.message.code) for m in caught.value.mistakes}
    assert {
        (3, "quantity_without_unit"),
        (2, "missing_key"),
        (4, "unknown_key"),
        (5, "unknown_rate_dtype"),
        (6, "not_yes_or_no"),
        (7, "not_a_date"),
        (8, "unknown_accelerator"),
        (8, "missing_key"),
        (9, "not_a_number"),
    } <= found
    near = next(m.near for m in caught.value.mistakes if m.message.code == "unknown_key")
    assert near[0] == "memory_bandwidth"


@pytest.mark.parametrize(
    ("text", "line"), [("", None), ("  \n", None), ("a: [1,\n", 2), ("a: 1\na: 2\n", 2)]
)
def test_an_empty_or_broken_file_is_unreadable(tmp_path, text, line) -> None:
    file = write(tmp_path / "chips.yaml", text)
    with pytest.raises(UnreadableFile) as caught:
        load_accelerators([file])
    assert caught.value.path == str(file)
    assert caught.value.line == line


def test_a_missing_file_is_unreadable(tmp_path) -> None:
    with pytest.raises(UnreadableFile):
        load_accelerators([tmp_path / "none.yaml"])


@pytest.mark.parametrize(
    "text", ["- 1\n", "accelerators: 5\n", "accelerators: [5]\n", "chips: []\n"]
)
def test_a_file_of_another_shape_is_a_mistake(tmp_path, text) -> None:
    with pytest.raises(InvalidRequest):
        load_accelerators([write(tmp_path / "chips.yaml", text)])


@pytest.mark.parametrize("name", NAMES)
def test_every_fact_has_a_source_a_day_and_a_confidence(name: str) -> None:
    facts = accelerator_facts(CATALOG.entry(name))
    levels = {"sourced", "quoted", "stated", "rule", "assumed", "uncertain"}
    for fact in facts.values():
        assert fact.source
        assert fact.as_of
        assert fact.confidence in levels


def test_doubtful_facts_are_marked_as_such() -> None:
    facts = accelerator_facts(CATALOG.entry("NVIDIA A10G"))
    assert facts["dense_flop_per_s.bfloat16"].confidence == "uncertain"
    assert facts["memory_bandwidth_bytes_per_s"].confidence == "sourced"
    assert facts["capacity_bytes"].confidence == "quoted"
    rows = read_table("accelerators.csv")
    columns = set(rows[0])
    for row in rows:
        assert set(row["uncertain"].split()) <= columns
