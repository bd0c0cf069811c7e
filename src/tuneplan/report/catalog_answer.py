"""Catalogues as the answer that the contract describes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tuneplan.catalog.accelerator_facts import accelerator_facts
from tuneplan.catalog.model_building import build_entry
from tuneplan.catalog.offers import age_days, is_stale
from tuneplan.contract.answers import CatalogAnswer, CatalogEntry, Fact, header
from tuneplan.contract.plain_json import json_value
from tuneplan.contract.values import nearest
from tuneplan.errors import UnknownName
from tuneplan.language import message

if TYPE_CHECKING:
    from datetime import date

    from tuneplan.catalog.accelerator_table import AcceleratorEntry
    from tuneplan.catalog.accelerators import AcceleratorCatalog
    from tuneplan.catalog.model_building import ResolvedModel
    from tuneplan.catalog.model_entries import ModelEntry
    from tuneplan.catalog.models import ModelCatalog
    from tuneplan.catalog.offers import OfferCatalog
    from tuneplan.planner.sources import Sources
    from tuneplan.spec.hardware import Accelerator
    from tuneplan.spec.offer import Offer


def catalog_answer(kind: str, name: str | None, sources: Sources, *, as_of: str) -> CatalogAnswer:
    """All entries of a kind (``models``, ``accelerators``, ``prices``), or those of one name.

    A name of ``prices`` is an accelerator or a provider.

    Raises:
        UnknownName: Nothing has that name; with near matches.
    """
    if kind == "models":
        entries = _models(sources.models, name)
    elif kind == "accelerators":
        entries = _accelerators(sources.accelerators, name)
    else:
        entries = _prices(sources.offers, sources.accelerators, name, sources.today)
    return CatalogAnswer(**header("catalog", as_of=as_of), kind=kind, entries=entries)


def _accelerators(catalog: AcceleratorCatalog, name: str | None) -> list[CatalogEntry]:
    chosen = [catalog.resolve(name).accelerator] if name else list(catalog.accelerators)
    replaced = {entry.accelerator.name for entry in catalog.overridden}
    entries = []
    for chip in chosen:
        entry = _entry_of(catalog, chip)
        fields = {
            key: Fact(
                value=fact.value,
                unit=fact.unit,
                source=fact.source or None,
                as_of=fact.as_of or None,
                confidence=fact.confidence,
            )
            for key, fact in accelerator_facts(entry).items()
        }
        entries.append(
            CatalogEntry(
                name=chip.name,
                aliases=list(chip.aliases),
                fields=fields,
                overridden_by=entry.file if chip.name in replaced else None,
            )
        )
    return entries


def _entry_of(catalog: AcceleratorCatalog, chip: Accelerator) -> AcceleratorEntry:
    """The entry of a chip; a size of a chip with shared memory bears the entry's name and more."""
    for entry in catalog.entries:
        if entry.accelerator.name == chip.name:
            return entry
    base = next(one for one in catalog.entries if chip.name.startswith(one.accelerator.name))
    return replace(base, accelerator=chip)


def _models(catalog: ModelCatalog, name: str | None) -> list[CatalogEntry]:
    if name is None:
        return [
            _model(entry, overridden=catalog.overridden(entry.name) is not None)
            for entry in catalog.entries()
        ]
    found = catalog.resolve(name)
    if found.entry is None:
        return [_described(found)]
    return [_model(found.entry, overridden=catalog.overridden(found.entry.name) is not None)]


def _described(found: ResolvedModel) -> CatalogEntry:
    """A model that is no entry: a folder, a ``config.json`` or a bare size."""
    architecture = found.architecture
    source = architecture.source or None
    fields = {
        key: Fact(value=json_value(getattr(architecture, key)), source=source)
        for key in ("model_type", "hidden_size", "num_layers", "vocab_size")
    }
    for one in found.assumptions:
        fields[one.name.removeprefix("model.")] = Fact(
            value=json_value(one.value), source=one.source, confidence="assumed"
        )
    return CatalogEntry(
        name=architecture.name,
        fields=fields,
        total_parameters=architecture.total_parameters,
        active_parameters=architecture.active_parameters,
    )


def _model(entry: ModelEntry, *, overridden: bool) -> CatalogEntry:
    architecture, _ = build_entry(entry)
    shown: Mapping[str, Any] = {
        "hf_id": entry.hf_id,
        "hidden_size": architecture.hidden_size,
        "num_layers": architecture.num_layers,
        "vocab_size": architecture.vocab_size,
        "max_position_embeddings": architecture.max_position_embeddings,
        "tie_word_embeddings": architecture.tie_word_embeddings,
        **entry.config,
        "note": entry.note or None,
    }
    fields = {
        key: Fact(
            value=json_value(value),
            source=entry.source or None,
            as_of=entry.as_of or None,
            confidence=entry.confidence or None,
        )
        for key, value in shown.items()
    }
    return CatalogEntry(
        name=entry.name,
        aliases=list(entry.aliases),
        fields=fields,
        overridden_by=entry.origin if overridden else None,
        total_parameters=architecture.total_parameters,
        active_parameters=architecture.active_parameters,
    )


def _prices(
    offers: OfferCatalog, accelerators: AcceleratorCatalog, name: str | None, today: date
) -> list[CatalogEntry]:
    chosen = list(offers.offers)
    if name is not None:
        providers = sorted({offer.provider for offer in chosen})
        chosen = [offer for offer in chosen if offer.provider.lower() == name.lower()]
        if not chosen:
            try:
                chosen = list(offers.of(accelerators.resolve(name).accelerator.name))
            except UnknownName as unknown:
                near = (*nearest(name, providers), *unknown.near)
                text = message(
                    "unknown_offer", "{name!r} is neither a provider nor an accelerator", name=name
                )
                raise UnknownName(text, name=name, near=near) from None
    return [_price(offer, today) for offer in chosen]


def _price(offer: Offer, today: date) -> CatalogEntry:
    price = f"{offer.price.amount:.2f} {offer.price.currency}"
    each = offer.price_per_accelerator_hour
    values: tuple[tuple[str, Any, str | None], ...] = (
        ("provider", offer.provider, None),
        ("accelerator", offer.accelerator, None),
        ("num_accelerators", offer.num_accelerators, None),
        ("price", price, "per hour"),
        ("price_per_accelerator", f"{each.amount:.2f} {each.currency}", "per hour"),
        ("interruptible", offer.interruptible, None),
        ("region", offer.region, None),
        ("as_of", offer.as_of.isoformat(), None),
        ("age", age_days(offer, today), "d"),
        ("stale", is_stale(offer, today), None),
        ("host_memory_bytes", offer.host_memory_bytes, "B"),
        ("vcpus", offer.vcpus, None),
        ("term_hours", offer.term_hours or None, "h"),
        ("cautions", list(offer.cautions), None),
    )
    return CatalogEntry(
        name=f"{offer.provider}: {offer.name}",
        fields={
            key: Fact(
                value=value,
                unit=unit if value is not None else None,
                source=offer.source,
                as_of=offer.as_of.isoformat(),
                confidence="stated" if offer.from_user else "sourced",
            )
            for key, value, unit in values
        },
    )
