"""Answers that the page shows, small but with every part."""

from __future__ import annotations

import sample_answers
from tuneplan.contract.answers import ErrorEntry, EstimateBody, header
from tuneplan.contract.compared import CompareAnswer, ComparedFigure, ComparedKey, ComparedPlan
from tuneplan.contract.levered import LeverEffect, LeverFigures, LeversAnswer
from tuneplan.units import GIB


def levered() -> LeversAnswer:
    body = EstimateBody(**sample_answers.estimate_fields())  # type: ignore[arg-type]
    assert body.cost is not None
    assert body.time is not None
    now = LeverFigures(
        fit=body.fit,
        peak_bytes=body.memory.peak_bytes,
        step_s=body.time.step_s,
        total_s=body.time.total_s,
        accelerator_hours=body.accelerator_hours,
        cost=body.cost.total,
    )
    return LeversAnswer(
        **header("levers", as_of=sample_answers.DAY),
        job=body.job,
        goal="cheapest",
        now=now,
        levers=[
            LeverEffect(
                id="packing",
                kind="packing",
                change="pack samples into rows of 1,024 tokens, 8 a micro-batch",
                settings={"training.packing": True},
                asks_for="nothing",
                after=now,
                saves_bytes=sample_answers.spread(2 * GIB, whole=True),
                saves_s=sample_answers.spread(900.0),
                time_fraction=sample_answers.spread(0.35),
                saves_money=sample_answers.usd("0.40", "0.55", "0.70"),
                keeps_headroom=True,
            ),
            LeverEffect(
                id="sharding",
                kind="sharding",
                change="ZeRO or FSDP",
                settings={},
                asks_for="nothing",
                cannot_help_because="there is one card: nothing to share with",
            ),
        ],
        assumptions=body.assumptions,
        warnings=body.warnings,
    )


def compared() -> CompareAnswer:
    body = EstimateBody(**sample_answers.estimate_fields())  # type: ignore[arg-type]
    return CompareAnswer(
        **header("compare", as_of=sample_answers.DAY),
        plans=[
            ComparedPlan(name="A: 1 x H100 80GB HBM3, LoRA", estimate=body),
            ComparedPlan(
                name="B", errors=[ErrorEntry(code="unknown_model", message="no model 'Nonesuch'")]
            ),
        ],
        differences=[ComparedKey(key="method", values=["lora", "qlora"])],
        best=[ComparedFigure(figure="cost.total", best=0, clearly=True)],
    )
