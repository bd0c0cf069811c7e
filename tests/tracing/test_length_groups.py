"""``group_by_length`` against the sampler of transformers, on the same random order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers.trainer_pt_utils import get_length_grouped_indices

from tuneplan.estimation.packing import length_grouped


@pytest.mark.parametrize("count", [1, 3, 17, 400, 5_000])
@pytest.mark.parametrize("batch", [1, 2, 8, 32])
def test_samples_are_arranged_as_transformers_arranges_them(count: int, batch: int):
    lengths = np.random.default_rng(count).geometric(0.01, count)
    drawn = torch.randperm(count, generator=torch.Generator().manual_seed(3)).numpy()
    theirs = get_length_grouped_indices(
        lengths.tolist(), batch, generator=torch.Generator().manual_seed(3)
    )
    assert length_grouped(lengths, drawn, batch).tolist() == theirs
