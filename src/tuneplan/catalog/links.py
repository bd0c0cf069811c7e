"""Links between cards and between nodes; the words of ``hardware`` made into a ``Cluster``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Final

from tuneplan.catalog.tables import number, read_table
from tuneplan.errors import InputError, InvalidRequest, Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.spec.answer import Assumption
from tuneplan.spec.hardware import Accelerator, Cluster
from tuneplan.units import GB, parse_bytes_per_s

_NETWORK: Final = re.compile(r"^(infiniband|ib|roce|ethernet|eth)[-_ ]?(\d+)g?$")
_NETWORK_WORDS: Final = {"ib": "infiniband", "eth": "ethernet"}
_INTERCONNECTS: Final = ("auto", "nvlink", "pcie", "none")
# The slots of one machine where they are narrower than the card: pcie3x8.
_SLOTS: Final = re.compile(r"^(pcie[3-6])x(1|2|4|8|16)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One kind of link.

    Attributes:
        kind: ``nvlink``, ``pcie``, ``xgmi``, ``infiniband``, ``roce``, ``ethernet``, ...
        scope: ``card`` (per accelerator, within a node) or ``node`` (per node, between nodes).
        bytes_per_s: One direction; 0 where no figure is known.
    """

    name: str
    kind: str
    scope: str
    bytes_per_s: float
    source: str
    as_of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedCluster:
    """A cluster and what was taken where nothing was stated."""

    cluster: Cluster
    assumptions: tuple[Assumption, ...]


@cache
def load_links() -> Mapping[str, Link]:
    """Every bundled link by name."""
    return {
        row["name"]: Link(
            name=row["name"],
            kind=row["kind"],
            scope=row["scope"],
            bytes_per_s=(number(row["one_direction_gb_s"]) or 0.0) * GB,
            source=row["source"],
            as_of=row["as_of"],
        )
        for row in read_table("links.csv")
    }


def resolve_cluster(
    accelerator: Accelerator,
    *,
    num_nodes: int = 1,
    accelerators_per_node: int = 1,
    interconnect: str | None = None,
    inter_node: str | None = None,
    host_memory_bytes: int | None = None,
    disk_bytes_per_s: float | None = None,
    disk_bytes: int | None = None,
) -> ResolvedCluster:
    """The cluster of ``num_nodes`` x ``accelerators_per_node`` cards with its links.

    Args:
        accelerator: The card.
        num_nodes: Nodes.
        accelerators_per_node: Cards in each.
        interconnect: ``auto`` (or None), ``nvlink``, ``pcie``, ``none``, the card's own link, or
            the slots of the machine: ``pcie3x8`` (generation and lanes of each card).
        inter_node: A word such as ``infiniband-400`` (Gbit/s per node) or a rate: ``50 GB/s``.
        host_memory_bytes: Of one node.
        disk_bytes_per_s: Of the disk that holds checkpoints.
        disk_bytes: Its size.

    Returns:
        The cluster; each link that was not stated is an assumption.

    Raises:
        InvalidRequest: A link that these cards do not have, an unreadable word; all at once.
    """
    assumptions: list[Assumption] = []
    mistakes: list[Mistake] = []
    kind, bytes_per_s = "none", 0.0
    slots = _SLOTS.match((interconnect or "").strip().lower())
    if slots is not None:
        lanes = load_links()[slots[1]].bytes_per_s * int(slots[2]) / 16
        accelerator, interconnect = replace(accelerator, pcie_bytes_per_s=lanes), "pcie"
    if accelerators_per_node > 1 or interconnect not in (None, "auto", "none"):
        try:
            kind, bytes_per_s = _inside(accelerator, accelerators_per_node, interconnect)
        except InputError as error:
            mistakes.extend(error.mistakes)
        if interconnect in (None, "auto"):
            assumptions.append(_inside_assumption(accelerator, kind, bytes_per_s))
    between, between_bytes_per_s = None, 0.0
    if num_nodes > 1 or inter_node is not None:
        if inter_node is None:
            between = _usual_network(accelerator, accelerators_per_node)
            assumptions.append(_network_assumption(between))
        else:
            between = inter_node
        try:
            between_bytes_per_s = network_bytes_per_s(between)
        except InputError as error:
            mistakes.extend(error.mistakes)
    if mistakes:
        raise InvalidRequest(mistakes)
    cluster = Cluster(
        accelerator=accelerator,
        num_nodes=num_nodes,
        accelerators_per_node=accelerators_per_node,
        interconnect=kind,
        intra_node_bytes_per_s=bytes_per_s,
        inter_node=between,
        inter_node_bytes_per_s=between_bytes_per_s,
        host_memory_bytes=host_memory_bytes,
        disk_bytes_per_s=disk_bytes_per_s,
        disk_bytes=disk_bytes,
    )
    return ResolvedCluster(cluster=cluster, assumptions=tuple(assumptions))


def network_bytes_per_s(text: str) -> float:
    """Bytes per second, one direction, of one node's network: ``roce-1600`` or ``50 GB/s``.

    Raises:
        InvalidRequest: Neither a known word nor a rate with its unit.
    """
    match = _NETWORK.match(text.strip().lower())
    if match and float(match[2]) > 0:
        return float(match[2]) * 1e9 / 8
    try:
        rate = parse_bytes_per_s(text)
    except InputError:
        rate = 0.0
    if rate <= 0:
        words = [link.name for link in load_links().values() if link.scope == "node"]
        raise InvalidRequest(
            [
                Mistake(
                    message=message(
                        "unknown_network",
                        "{text!r} is neither a network (a kind and Gbit/s per node) nor a rate",
                        text=text,
                    ),
                    path="hardware.inter_node",
                    value=text,
                    near=_nearest(text, words),
                    how_to_fix=message(
                        "network_example", "write e.g. infiniband-400, roce-1600 or '50 GB/s'"
                    ),
                )
            ]
        )
    return rate


def _inside(accelerator: Accelerator, count: int, interconnect: str | None) -> tuple[str, float]:
    word = (interconnect or "auto").strip().lower()
    fast = accelerator.link not in ("pcie", "none") and accelerator.link_bytes_per_s > 0
    if word == "auto":
        if fast and count <= accelerator.link_size:
            return accelerator.link, accelerator.link_bytes_per_s
        return _pcie(accelerator)
    if word == "pcie":
        return _pcie(accelerator)
    if fast and word == accelerator.link:
        if count <= accelerator.link_size:
            return accelerator.link, accelerator.link_bytes_per_s
        raise _no_link(accelerator, word, count, accelerator.link_size)
    if word == "nvlink" and accelerator.bridge_bytes_per_s:
        if count <= 2:
            return "nvlink", accelerator.bridge_bytes_per_s
        raise _no_link(accelerator, word, count, 2)
    if word == "none" and count > 1:
        text = message(
            "cards_without_link",
            "interconnect none contradicts {count} cards in one node: they share at least PCIe",
            count=count,
        )
        raise _mistake(text, word, ("pcie", "auto"))
    if word in _INTERCONNECTS:
        raise _no_link(accelerator, word, count, 1)
    text = message(
        "unknown_interconnect", "{word!r} is not a link inside a node of {name}",
        word=word, name=accelerator.name,
    )  # fmt: skip
    raise _mistake(text, word, _nearest(word, [*_INTERCONNECTS, accelerator.link]))


def _pcie(accelerator: Accelerator) -> tuple[str, float]:
    if accelerator.pcie_bytes_per_s:
        return "pcie", accelerator.pcie_bytes_per_s
    text = message(
        "no_link", "several {name} in one node have no link that is known", name=accelerator.name
    )
    raise _mistake(text, "pcie", ())


def _no_link(accelerator: Accelerator, word: str, count: int, size: int) -> InvalidRequest:
    text = message(
        "link_not_there",
        "{count} x {name} are not joined by {word}: it joins {size} at most",
        count=count,
        name=accelerator.name,
        word=word,
        size=size,
    )
    return _mistake(text, word, ("auto", "pcie"))


def _mistake(text: Message, value: str, near: tuple[str, ...]) -> InvalidRequest:
    mistake = Mistake(message=text, path="hardware.interconnect", value=value, near=near)
    return InvalidRequest([mistake])


def _nearest(text: str, words: list[str]) -> tuple[str, ...]:
    from difflib import get_close_matches

    return tuple(get_close_matches(text.lower(), words, n=3, cutoff=0.4))


def _inside_assumption(accelerator: Accelerator, kind: str, bytes_per_s: float) -> Assumption:
    if kind == "pcie" and not accelerator.peer_access:
        reason = message(
            "link_pcie_host",
            "{name} has no other link, and its cards read each other through the host",
            name=accelerator.name,
        )
    else:
        reason = message(
            "link_of_card",
            "what {name} has among that many cards: {rate:.4g} GB/s in one direction",
            name=accelerator.name,
            rate=bytes_per_s / GB,
        )
    return Assumption(
        name="hardware.interconnect",
        value=kind,
        reason=reason,
        source=accelerator.source,
        how_to_set="hardware.interconnect: nvlink | pcie",
    )


def _usual_network(accelerator: Accelerator, accelerators_per_node: int) -> str:
    """One adapter a card in NVLink-class nodes (200 Gbit/s until 2021, then 400); else 100."""
    if accelerator.link in ("pcie", "none") or accelerators_per_node < 4:
        return "ethernet-100"
    per_card = 200 if (accelerator.release_year or 0) <= 2021 else 400
    return f"infiniband-{per_card * accelerators_per_node}"


def _network_assumption(network: str) -> Assumption:
    return Assumption(
        name="hardware.inter_node",
        value=network,
        reason=message(
            "usual_network",
            "usual for such nodes: one adapter a card where cards share a fast link, "
            "else 100 Gbit/s Ethernet",
        ),
        source="assumed; cloud instances of one chip differ by a factor of eight",
        how_to_set="hardware.inter_node: infiniband-400 | roce-1600 | ethernet-100 | '50 GB/s'",
    )
