"""How the figures of disks, networks and loaders come about."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tuneplan.contract.answers import ExplainedNode
from tuneplan.economics.data_path import (
    COURIER_S,
    PORTABLE_DISK_BYTES_PER_S,
    TOKENISED_BYTES_PER_TOKEN,
    TOKENISED_PER_CORE_S,
)
from tuneplan.economics.storage import TRANSFER_EFFICIENCY
from tuneplan.language import sentence
from tuneplan.report.figures.tree import Context, Explain, known
from tuneplan.spec.answer import Basis

_SAVES: Final = ("training.save_steps", "training.save_strategy", "training.save_total_limit")
_RATES: Final = (
    known("efficiency of a network", TRANSFER_EFFICIENCY, basis=Basis.ASSUMED),
    known("courier", COURIER_S, "s", basis=Basis.ASSUMED),
    known("portable disk", PORTABLE_DISK_BYTES_PER_S, "bytes/s", basis=Basis.ASSUMED),
)


def _of(figure: str, formula: str, *settings: str, source: str = "economics/storage.py") -> Explain:
    """A figure that follows from the job by one formula; None where it is unknown."""

    def explain(context: Context) -> ExplainedNode | None:
        if context.value(figure) in (None, []):
            return None
        return context.figure(figure, formula, inputs=context.settings(*settings), source=source)

    return explain


def _uploads(context: Context) -> ExplainedNode | None:
    if not context.value("storage.uploads"):
        return None
    return context.figure(
        "storage.uploads",
        "bytes / (rate x efficiency); by courier: days + 2 x bytes / rate of a portable disk",
        inputs=_RATES,
        source="economics/data_path.py",
    )


def _loader(figure: str, formula: str, *inputs: tuple[str, float]) -> Explain:
    def explain(context: Context) -> ExplainedNode | None:
        if context.value(figure) is None:
            return None
        return context.figure(
            figure,
            formula,
            inputs=[known(name, value, basis=Basis.ASSUMED) for name, value in inputs],
            source="economics/data_path.py",
        )

    return explain


DISK_FIGURES: Final[Mapping[str, Explain]] = MappingProxyType(
    {
        "storage.num_saves": _of(
            "storage.num_saves",
            sentence("saves of the run, the one at its end among them"),
            *_SAVES,
        ),
        "storage.num_kept": _of(
            "storage.num_kept",
            sentence(
                "min(saves, save_total_limit + 1): the new one is written before the oldest goes"
            ),
            *_SAVES,
        ),
        "storage.tokenised_bytes": _loader(
            "storage.tokenised_bytes",
            sentence("tokens x bytes each"),
            (sentence("int32 ids, int8 mask, int32 labels"), TOKENISED_BYTES_PER_TOKEN),
        ),
        "storage.model_bytes": _of(
            "storage.model_bytes", sentence("parameters x 2 bytes"), "model"
        ),
        "storage.needed_bytes": _of(
            "storage.needed_bytes",
            sentence("checkpoints kept + data as text + data as tokens + model"),
        ),
        "storage.writings": _of(
            "storage.writings",
            sentence(
                "gathered: bytes of others / link + bytes / disk; sharded: bytes / machines "
                "/ disk; asynchronous: bytes of a rank / copy to main memory + what is "
                "written longer than the training to the next save"
            ),
            "hardware.disk.bandwidth",
            *_SAVES,
        ),
        "storage.uploads": _uploads,
        "storage.loader.tokens_per_s": _loader(
            "storage.loader.tokens_per_s", sentence("real tokens/s of a card x cards")
        ),
        "storage.loader.disk_bytes_per_s": _loader(
            "storage.loader.disk_bytes_per_s",
            sentence("tokens/s x bytes each"),
            (sentence("bytes each"), TOKENISED_BYTES_PER_TOKEN),
        ),
        "storage.loader.raw_bytes_per_s": _loader(
            "storage.loader.raw_bytes_per_s", sentence("tokens/s x size of the files / tokens")
        ),
        "storage.loader.cores_on_the_fly": _loader(
            "storage.loader.cores_on_the_fly",
            sentence("tokens/s / tokens/s of a core"),
            (sentence("tokens/s of a core"), TOKENISED_PER_CORE_S),
        ),
    }
)
