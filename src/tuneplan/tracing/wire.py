"""What passes between the two processes, and into the cache: JSON values."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final

from tuneplan.frozen import dataclass
from tuneplan.spec import architecture as architectures
from tuneplan.spec import blocks, weights
from tuneplan.spec import parallelism as parallelisms
from tuneplan.spec import recipe as recipes
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import TrainingRecipe
from tuneplan.tracing.images import ImageSize
from tuneplan.tracing.recording import Block, Recording

_CLASS = "class"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """What is to be traced.

    Attributes:
        sequences, length: Of the micro-batch.
        shorter: A second length that is recorded too, for histories of lengths; None for none.
        compute_capability: Of the card; None for an unknown one.
        evaluation_sequences: Rows of an evaluation batch; 0 where nothing is evaluated.
        images: Of every row; none for text alone.
        peft: A configuration of PEFT's own (``peft_methods.peft_settings``), in place of the
            recipe's adapter; empty for that.
    """

    architecture: ModelArchitecture
    recipe: TrainingRecipe
    parallelism: Parallelism
    sequences: int
    length: int
    shorter: int | None = None
    compute_capability: float | None = None
    evaluation_sequences: int = 0
    images: tuple[ImageSize, ...] = ()
    peft: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What came back from the child.

    Attributes:
        recordings: At ``length``, and at ``shorter`` where that was asked for.
        versions: Library to version, as imported.
        import_s, trace_s: Seconds for importing the libraries, and for all recordings.
        host_peak_bytes: Most main memory that the child held at once.
        slow_paths: What libraries said of kernels that they lack, and run other code for.
        from_cache: No child ran.
    """

    recordings: tuple[Recording, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    import_s: float = 0.0
    trace_s: float = 0.0
    host_peak_bytes: int = 0
    slow_paths: tuple[str, ...] = ()
    from_cache: bool = False


def request_document(request: TraceRequest) -> dict[str, Any]:
    """A request as JSON values."""
    found = encoded(request)
    assert isinstance(found, dict)  # noqa: S101 - what a dataclass becomes
    return found


def read_request(document: Mapping[str, Any]) -> TraceRequest:
    """A request from its document."""
    found = decoded(document)
    assert isinstance(found, TraceRequest)  # noqa: S101 - our own document
    return found


def encoded(value: Any) -> Any:
    """Frozen values, enums and tuples as JSON values that say what they were."""
    kind: type = type(value)
    if value is None or kind in _PLAIN:
        return value
    names = _names(kind)
    if names is not None:
        inner = {name: encoded(getattr(value, name)) for name in names}
        return {_CLASS: kind.__name__, **inner}
    if isinstance(value, Enum):
        return {_CLASS: type(value).__name__, "value": value.value}
    if isinstance(value, tuple):
        return {_CLASS: "tuple", "items": [encoded(item) for item in value]}
    if isinstance(value, Mapping):
        return {str(key): encoded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [encoded(item) for item in value]
    return value


_PLAIN: Final = frozenset({str, int, float, bool})


@cache
def _names(kind: type) -> tuple[str, ...] | None:
    """The fields of a dataclass; None for another type."""
    return tuple(one.name for one in fields(kind)) if is_dataclass(kind) else None


def decoded(value: Any) -> Any:
    """The values of ``encoded``."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    name = value.get(_CLASS)
    if name == "tuple":
        return tuple(decoded(item) for item in value["items"])
    kind = _classes().get(name) if isinstance(name, str) else None
    if kind is None:
        return {key: decoded(item) for key, item in value.items()}
    if issubclass(kind, Enum):
        return kind(value["value"])
    return kind(**{key: decoded(item) for key, item in value.items() if key != _CLASS})


def _classes() -> dict[str, type]:
    if not _found:
        for module in (architectures, blocks, weights, recipes, parallelisms):
            _found.update(
                (name, one)
                for name, one in vars(module).items()
                if isinstance(one, type) and (is_dataclass(one) or issubclass(one, Enum))
            )
        _found["TraceRequest"] = TraceRequest
        _found["ImageSize"] = ImageSize
    return _found


_found: dict[str, type] = {}


def traced_document(traced: Traced) -> dict[str, Any]:
    """A result as JSON values."""
    return {
        "recordings": [_recording_document(one) for one in traced.recordings],
        "versions": dict(traced.versions),
        "import_s": traced.import_s,
        "trace_s": traced.trace_s,
        "host_peak_bytes": traced.host_peak_bytes,
        "slow_paths": list(traced.slow_paths),
    }


def read_traced(document: Mapping[str, Any], *, from_cache: bool = False) -> Traced:
    """A result from its document.

    Raises:
        KeyError, TypeError, ValueError, IndexError: It is not one.
    """
    return Traced(
        recordings=tuple(_read_recording(one) for one in document["recordings"]),
        versions=document["versions"],
        import_s=document["import_s"],
        trace_s=document["trace_s"],
        host_peak_bytes=document["host_peak_bytes"],
        slow_paths=tuple(document["slow_paths"]),
        from_cache=from_cache,
    )


def _recording_document(recording: Recording) -> dict[str, Any]:
    """Columns, with what repeats from layer to layer written once; without the teardown."""
    end = recording.end
    kinds: dict[tuple[Any, ...], int] = {}
    described, sizes, born, died = [], [], [], []
    for block in recording.blocks:
        key = (
            *(block.operation, block.module, block.dtype, block.shape),
            *(block.phase, block.step, block.kind, block.stream),
        )
        described.append(kinds.setdefault(key, len(kinds)))
        sizes.append(block.size)
        born.append(block.born)
        died.append(block.died if block.died < end else -1)
    return {
        "kinds": [list(key) for key in kinds],
        "described": described,
        "sizes": sizes,
        "born": born,
        "died": died,
        "events": list(recording.events[:end]),
        "marks": recording.marks,
        "operations": {name: list(value) for name, value in recording.operations.items()},
        "notes": dict(recording.notes),
        "stand_ins": dict(recording.stand_ins),
        "emptied": list(recording.emptied),
    }


def _read_recording(document: Mapping[str, Any]) -> Recording:
    kinds = [
        (operation, module, dtype, tuple(shape), phase, step, kind, stream)
        for operation, module, dtype, shape, phase, step, kind, stream in document["kinds"]
    ]
    blocks, found = [], document["operations"]
    columns = zip(*(document[name] for name in ("described", "sizes", "born", "died")), strict=True)
    for described, size, born, died in columns:
        operation, module, dtype, shape, phase, step, kind, stream = kinds[described]
        blocks.append(
            Block(size, operation, module, dtype, shape, phase, born, step, kind, died, stream)
        )
    return Recording(
        blocks=blocks,
        events=array("q", document["events"]),
        marks=[(at, phase, step) for at, phase, step in document["marks"]],
        operations={name: (n, flop, moved) for name, (n, flop, moved) in found.items()},
        notes=document["notes"],
        stand_ins=document["stand_ins"],
        emptied=document["emptied"],
    )
