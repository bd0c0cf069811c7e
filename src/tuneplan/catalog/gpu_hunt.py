"""Today's public prices, by the library gpuhunt; the only place that asks the network for them."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tuneplan.errors import InputError, MissingExtra
from tuneplan.frozen import dataclass
from tuneplan.language import message, phrase
from tuneplan.units import format_duration

# gpuhunt's names of providers, and those of the bundled snapshot.
_PROVIDERS: Final = {
    "aws": "AWS",
    "azure": "Azure",
    "gcp": "GCP",
    "verda": "DataCrunch",
    "lambdalabs": "Lambda",
    "nebius": "Nebius",
    "oci": "Oracle Cloud",
    "runpod": "RunPod",
    "cloudrift": "CloudRift",
    "vastai": "Vast.ai",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffer:
    """An offer as gpuhunt lists it: USD an hour for the instance, memory in GB as named."""

    provider: str
    name: str
    region: str
    price: float
    gpu_name: str
    gpu_memory_gb: float
    gpu_count: int
    spot: bool
    vcpus: int
    host_memory_gb: float


class PricesUnreachable(InputError):
    """No price service answered; what is there stays as it is."""


def listed_offers(timeout_s: float) -> list[ListedOffer]:
    """Every offer with accelerators that gpuhunt's catalogues hold today.

    Args:
        timeout_s: For each connection.

    Raises:
        MissingExtra: gpuhunt is not installed.
        PricesUnreachable: No catalogue came in time.
    """
    try:
        from gpuhunt import Catalog
    except ImportError:
        raise MissingExtra(extra="prices", purpose=phrase("refreshing prices")) from None

    catalog = Catalog(balance_resources=False, auto_reload=False)
    try:
        with _quiet(), _timeout(timeout_s):
            catalog.load()
            items: Sequence[Any] = catalog.query(min_gpu_count=1)
    except Exception as error:
        text = message(
            "prices_unreachable",
            "no price service answered (each had {timeout}): the prices that are there stay. {why}",
            timeout=format_duration(timeout_s),
            why=_reason(error),
        )
        raise PricesUnreachable(text) from error
    return [
        ListedOffer(
            provider=_PROVIDERS.get(item.provider, item.provider),
            name=item.instance_name,
            region=item.location,
            price=item.price,
            gpu_name=item.gpu_name or "",
            gpu_memory_gb=item.gpu_memory or 0.0,
            gpu_count=item.gpu_count,
            spot=item.spot,
            vcpus=item.cpu,
            host_memory_gb=item.memory,
        )
        for item in items
        if item.gpu_name
    ]


def _reason(error: BaseException) -> str:
    """The innermost cause, on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())


@contextmanager
def _timeout(seconds: float) -> Iterator[None]:
    """Within the block a connection that names no timeout of its own has this one."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


@contextmanager
def _quiet() -> Iterator[None]:
    """The library logs a traceback for each provider that does not answer; we tell it once."""
    logger = logging.getLogger("gpuhunt")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
