"""Our own evidence as the answer that the contract describes."""

from __future__ import annotations

from tuneplan.catalog.accuracy import load_accuracy
from tuneplan.contract.answers import header
from tuneplan.contract.evidenced import (
    AccuracyAnswer,
    AccuracyFigure,
    AccuracyPoint,
    AccuracySource,
)


def accuracy_answer(*, as_of: str) -> AccuracyAnswer:
    """What ``make accuracy`` measured for this release."""
    known = load_accuracy()
    columns = known["points"]["columns"]
    return AccuracyAnswer(
        **header("accuracy", as_of=as_of),
        measured_on=known["as_of"],
        num_runs=known["num_runs"],
        num_predicted=known["num_predicted"],
        figures=[AccuracyFigure(**one) for one in known["figures"]],
        points=[
            AccuracyPoint(**dict(zip(columns, row, strict=True))) for row in known["points"]["rows"]
        ],
        sources=[AccuracySource(**one) for one in known["sources"]],
    )
