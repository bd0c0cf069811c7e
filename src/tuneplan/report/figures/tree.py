"""What every explained figure is built from: values of the answer, settings with their basis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Final, TypeAlias

from tuneplan.contract.answers import EstimateBody, ExplainedInput, ExplainedNode
from tuneplan.contract.plain_json import json_value
from tuneplan.frozen import dataclass
from tuneplan.language import sentence
from tuneplan.planner.estimate import JobEstimate
from tuneplan.planner.sources import Sources
from tuneplan.report.estimate_answer import estimate_body
from tuneplan.spec.answer import Assumption, Basis

_UNITS: Final = (
    ("_bytes", "bytes"),
    ("_kwh", "kWh"),
    ("_kg", "kg"),
    ("_hours", "h"),
    ("tokens_per_s_per_accelerator", "tokens/s"),
    ("samples_per_s", "samples/s"),
    ("_bytes_per_s", "bytes/s"),
    ("tokens_per_s", "tokens/s"),
    ("_s", "s"),
    ("_tokens", "tokens"),
    ("_parameters", "parameters"),
    ("tokens_per_step", "tokens"),
    ("num_samples", "samples"),
)


@dataclass(frozen=True)
class Context:
    """One estimate and what its figures are explained with."""

    estimate: JobEstimate
    sources: Sources | None = None

    @cached_property
    def body(self) -> EstimateBody:
        """The answer that the figures stand in."""
        return estimate_body(self.estimate)

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """The answer as plain JSON."""
        return self.body.model_dump(mode="json")

    @cached_property
    def assumptions(self) -> Mapping[str, Assumption]:
        """By name."""
        return {one.name: one for one in self.estimate.assumptions}

    def value(self, figure: str) -> Any:
        """What the answer says at a path; None where it is unknown."""
        found: Any = self.document
        for name in figure.split("."):
            if not isinstance(found, Mapping):
                return None
            found = found.get(name)
        return found

    def setting(self, path: str) -> ExplainedInput | None:
        """A key of the job with where its value comes from; None where it does not apply."""
        assumed = self.assumptions.get(path)
        if assumed is not None:
            return ExplainedInput(
                name=path,
                value=json_value(assumed.value),
                basis=Basis.ASSUMED.value,
                source=assumed.source or None,
                how_to_set=assumed.how_to_set or None,
            )
        value: Any = self.document["job"]
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is None or value == []:
            return None
        stated = path in self.estimate.resolved.job.stated
        return ExplainedInput(
            name=path,
            value=value,
            basis="stated" if stated else Basis.ASSUMED.value,
            source=sentence("the job") if stated else None,
            how_to_set=f"--set {path}=VALUE",
        )

    def settings(self, *paths: str) -> list[ExplainedInput]:
        """Those of the keys that apply."""
        found = (self.setting(path) for path in paths)
        return [one for one in found if one is not None]

    def figure(
        self,
        figure: str,
        formula: str,
        *,
        inputs: Iterable[ExplainedInput] = (),
        children: Iterable[ExplainedNode | None] = (),
        source: str | None = None,
        basis: str | None = None,
    ) -> ExplainedNode:
        """A node for a figure of the answer, with its value from there."""
        value = self.value(figure)
        if isinstance(value, Mapping):
            basis = value.get("basis", basis)
        return ExplainedNode(
            name=figure,
            value=value,
            unit=unit_of(figure),
            formula=formula,
            basis=basis or Basis.ANALYTIC.value,
            source=source,
            inputs=list(inputs),
            children=[child for child in children if child is not None],
        )


Explain: TypeAlias = Callable[[Context], ExplainedNode | None]


def known(
    name: str,
    value: Any,
    unit: str | None = None,
    *,
    basis: Basis = Basis.ANALYTIC,
    source: str | None = None,
    how_to_set: str | None = None,
) -> ExplainedInput:
    """A symbol of a formula with its value."""
    return ExplainedInput(
        name=name,
        value=json_value(value),
        unit=unit,
        basis=basis.value,
        source=source,
        how_to_set=how_to_set,
    )


def unit_of(figure: str) -> str | None:
    """The unit that the name of a figure ends in."""
    if figure.startswith("storage.") and figure.endswith("_bytes"):
        return "bytes on disk"
    return next((unit for end, unit in _UNITS if figure.endswith(end)), None)
