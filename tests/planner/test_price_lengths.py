"""What each ``max_length`` costs on a job."""

from pathlib import Path

import pytest

from tuneplan.contract.reading import load_job
from tuneplan.errors import InputError
from tuneplan.planner.price_lengths import price_lengths
from tuneplan.planner.profile_data import profile_data
from tuneplan.planner.sources import sources_for

CHAT = Path(__file__).parents[2] / "examples" / "support_chat.jsonl"
JOB = {
    "model": "Qwen/Qwen2.5-7B",
    "method": "lora",
    "data.path": [str(CHAT)],
    "hardware.accelerator": "NVIDIA H100 80GB HBM3",
    "training.per_device_train_batch_size": 2,
    "training.packing": False,
}


@pytest.fixture(scope="module")
def profile():
    return profile_data([CHAT], tokenizer="approximate")


def priced(profile, lengths, today, **changes):
    job = load_job(overrides={**JOB, **changes})
    return price_lengths(job, profile, lengths, sources_for(job, today=today))


@pytest.fixture(scope="module")
def today():
    from datetime import date

    return date(2026, 11, 30)


def test_a_longer_max_length_takes_longer_and_costs_more(profile, today):
    found = priced(profile, [512, 4096, 512], today)
    assert [price.max_length for price in found] == [512, 4096]
    short, long = found
    assert short.total_s.likely < long.total_s.likely
    assert short.cost.total.likely.amount < long.cost.total.likely.amount
    assert short.cost.total.likely.currency == "USD"
    assert short.verdict is not None


def test_without_an_accelerator_nothing_has_a_price(profile, today):
    (price,) = priced(profile, [512], today, **{"hardware.accelerator": None})
    assert (price.total_s, price.cost, price.verdict, price.problem) == (None, None, None, None)


def test_a_job_that_is_wrong_at_every_length_is_refused(profile, today):
    with pytest.raises(InputError, match="no-such-model"):
        priced(profile, [512, 1024], today, model="no-such-model")
