"""Compare the catalogue's parameter counts with a table of published ones.

    python tools/compare_models.py MODELS.csv

The table has the columns ``name``, ``total_params`` and, where known, ``active_params`` and
``vision_audio_params``. Every row that differs is listed with what both sides say.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from tuneplan.catalog.models import load_models
from tuneplan.errors import InputError
from tuneplan.spec.architecture import ModelArchitecture


def counts(model: ModelArchitecture) -> dict[str, int]:
    """What the description of a model adds up to."""
    return {
        "total_params": model.total_parameters,
        "active_params": model.active_parameters,
        "vision_audio_params": model.vision.num_parameters if model.vision else 0,
    }


def main(path: str) -> int:
    """Print the comparison; the number of rows that differ is the exit status."""
    models = load_models()
    equal = compared = 0
    differing: list[str] = []
    with Path(path).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if not row["total_params"]:
                continue
            compared += 1
            try:
                ours = counts(models.resolve(row["name"]).architecture)
            except InputError as error:
                differing.append(f"{row['name']}: {error}")
                continue
            wrong = [
                f"{key} {ours[key]:,} here, {int(row[key]):,} there"
                for key in ours
                if row.get(key) and int(row[key]) != ours[key]
            ]
            equal += not wrong
            differing += [f"{row['name']}: {one}" for one in wrong]
    print(f"{equal} of {compared} rows equal to the unit")
    print("\n".join(differing))
    return min(len(differing), 100)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
