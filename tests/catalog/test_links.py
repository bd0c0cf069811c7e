"""Links between cards and nodes."""

from __future__ import annotations

import pytest

from tuneplan.catalog.accelerators import load_accelerators
from tuneplan.catalog.links import load_links, network_bytes_per_s, resolve_cluster
from tuneplan.errors import InvalidRequest

CATALOG = load_accelerators()


def chip(name: str):
    return CATALOG.resolve(name).accelerator


def test_one_card_needs_no_link_and_no_assumption() -> None:
    resolved = resolve_cluster(chip("H100"))
    assert resolved.cluster.interconnect == "none"
    assert resolved.cluster.num_accelerators == 1
    assert resolved.assumptions == ()


@pytest.mark.parametrize(
    ("name", "count", "stated", "kind", "gb_s"),
    [
        ("H100", 8, None, "nvlink", 450),
        ("H100", 8, "auto", "nvlink", 450),
        ("H100", 8, "pcie", "pcie", 63.02),
        ("RTX 3090", 2, "pcie3x8", "pcie", 7.875),
        ("A100", 4, "nvlink", "nvlink", 300),
        ("MI300X", 8, None, "xgmi", 448),
        ("L40S", 8, None, "pcie", 31.51),
        ("H100 NVL", 2, None, "nvlink", 300),
        ("H100 NVL", 8, None, "pcie", 63.02),  # the bridge joins two
        ("A100 PCIe", 2, "nvlink", "nvlink", 300),  # by bridge
        ("RTX 3090", 2, "nvlink", "nvlink", 56.25),  # 112.5 both ways
        ("T4", 4, None, "pcie", 15.75),
    ],
)
def test_the_link_inside_a_node(name, count, stated, kind, gb_s) -> None:
    resolved = resolve_cluster(chip(name), accelerators_per_node=count, interconnect=stated)
    assert resolved.cluster.interconnect == kind
    assert resolved.cluster.intra_node_bytes_per_s == pytest.approx(gb_s * 1e9)
    assert len(resolved.assumptions) == (stated in (None, "auto"))


@pytest.mark.parametrize(
    ("name", "count", "stated", "code"),
    [
        ("RTX 4090", 2, "nvlink", "link_not_there"),
        ("RTX 3090", 4, "nvlink", "link_not_there"),
        ("H100 NVL", 8, "nvlink", "link_not_there"),
        ("H100", 8, "none", "cards_without_link"),
        ("H100", 8, "nvlinc", "unknown_interconnect"),
        ("Apple M3 Max", 2, None, "no_link"),
    ],
)
def test_a_link_that_is_not_there_is_a_mistake(name, count, stated, code) -> None:
    with pytest.raises(InvalidRequest) as caught:
        resolve_cluster(chip(name), accelerators_per_node=count, interconnect=stated)
    (mistake,) = caught.value.mistakes
    assert mistake.message.code == code
    assert mistake.path == "hardware.interconnect"
    if code == "unknown_interconnect":
        assert mistake.near[0] == "nvlink"


def test_both_links_may_be_wrong_at_once() -> None:
    with pytest.raises(InvalidRequest) as caught:
        resolve_cluster(
            chip("RTX 4090"),
            num_nodes=2,
            accelerators_per_node=4,
            interconnect="nvlink",
            inter_node="infinibandd-400",
        )
    assert [m.path for m in caught.value.mistakes] == [
        "hardware.interconnect",
        "hardware.inter_node",
    ]
    assert caught.value.mistakes[1].near[0] == "infiniband-400"


@pytest.mark.parametrize(
    ("text", "gb_s"),
    [
        ("infiniband-400", 50.0),  # 400 Gbit/s / 8
        ("InfiniBand-200", 25.0),
        ("ib-3200", 400.0),
        ("roce-1600", 200.0),
        ("ethernet-10", 1.25),
        ("ethernet-25", 3.125),
        ("50 GB/s", 50.0),
        ("400 Gbit/s", 50.0),
    ],
)
def test_network_words_are_gigabits_per_node(text, gb_s) -> None:
    assert network_bytes_per_s(text) == pytest.approx(gb_s * 1e9)


@pytest.mark.parametrize("text", ["50", "fast", "", "roce-0", "-5 GB/s"])
def test_a_network_without_unit_or_kind_is_a_mistake(text) -> None:
    with pytest.raises(InvalidRequest):
        network_bytes_per_s(text)


def test_bundled_network_names_say_their_own_rate() -> None:
    for link in load_links().values():
        if link.scope == "node":
            assert network_bytes_per_s(link.name) == pytest.approx(link.bytes_per_s)


def test_several_nodes_without_a_network_take_the_usual_one_as_an_assumption() -> None:
    # A100 SXM, 2020: 8 x 200 Gbit/s; H100 SXM: 8 x 400 Gbit/s; PCIe cards: 100 Gbit/s Ethernet.
    for name, network in (
        ("A100", "infiniband-1600"),
        ("H100", "infiniband-3200"),
        ("L40S", "ethernet-100"),
    ):
        resolved = resolve_cluster(chip(name), num_nodes=2, accelerators_per_node=8)
        assert resolved.cluster.inter_node == network
        assert "hardware.inter_node" in [a.name for a in resolved.assumptions]


@pytest.mark.parametrize("name", [c.name for c in CATALOG.accelerators])
def test_every_chip_resolves_in_its_usual_node(name) -> None:
    accelerator = CATALOG.get(name)
    count = accelerator.accelerators_per_node
    cluster = resolve_cluster(accelerator, accelerators_per_node=count).cluster
    assert (cluster.intra_node_bytes_per_s > 0) == (count > 1)
