"""What a run leaves on disk, by framework and layout, and what it asks of disk and network."""

from datetime import date
from typing import Any

import pytest

from tuneplan.contract.reading import load_job
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.sources import sources_for

LORA: dict[str, Any] = {
    "model": "Llama-2-7B",
    "method": "lora",
    "data": {"num_samples": 20000, "mean_tokens": 500},
    "training": {"save_steps": 100, "max_length": 2048, "dtype": "bfloat16"},
    "hardware": {"accelerator": "NVIDIA H100 SXM"},
}
FULL: dict[str, Any] = {
    **LORA,
    "method": "full",
    "training": {"save_steps": 100, "save_total_limit": 4, "dtype": "bfloat16"},
    "hardware": {
        "accelerator": "NVIDIA H100 SXM",
        "accelerators_per_node": 8,
        "num_nodes": 2,
        "disk": {"bandwidth": "2 GB/s", "size": "200 GB"},
    },
    "parallelism": "zero3",
}


def estimated(document: dict[str, Any]) -> JobEstimate:
    job = load_job(document)
    return estimate_job(job, sources_for(job, today=date(2026, 11, 30)))


def test_frameworks_write_other_things_for_the_same_adapter() -> None:
    sizes = {
        name: estimated({**LORA, "framework": name}).storage.checkpoint_bytes
        for name in ("trl", "torchtune", "litgpt")
    }
    # torchtune writes the merged model too: 6.7e9 x 2 B; LitGPT no optimizer states.
    assert sizes["torchtune"] > 13.4e9 > 100 * sizes["litgpt"] / 10
    assert sizes["litgpt"] < sizes["trl"] < 2e9


def test_a_split_model_is_written_gathered_sharded_or_beside_the_training() -> None:
    path = estimated(FULL).storage.path
    assert path is not None
    stalls = {(one.disk, one.how): one.stall_s for one in path.writings if one.disk == "stated"}
    gathered, sharded, hidden = (
        stalls["stated", how] for how in ("gathered", "sharded", "asynchronous")
    )
    assert gathered > sharded > hidden > 0
    one = estimated(FULL).storage.checkpoint_bytes
    assert sharded == pytest.approx(one / 2 / 2e9)  # two machines, 2 GB/s each
    shares = [one.lost_fraction for one in path.writings]
    assert all(0 <= share < 1 for share in shares)


def test_room_on_disk_is_checkpoints_tokens_and_the_model() -> None:
    estimate = estimated(FULL)
    path = estimate.storage.path
    assert path is not None
    assert path.num_kept == min(path.num_saves, 5)
    assert path.checkpoints_bytes == estimate.storage.kept_bytes
    assert path.needed_bytes == pytest.approx(
        path.checkpoints_bytes + 20000 * 500 * 9 + 2 * estimate.resolved.model.total_parameters
    )


def test_a_disk_that_is_too_small_is_told_with_its_key() -> None:
    notice = next(n for n in estimated(FULL).notices if n.message.code == "disk_too_small")
    assert notice.path == "hardware.disk.size"
    assert "save_total_limit" in str(notice.message)
    roomy = {**FULL, "hardware": {**FULL["hardware"], "disk": {"size": "9 TB"}}}
    assert all(n.message.code != "disk_too_small" for n in estimated(roomy).notices)


def test_nothing_is_said_of_a_run_that_is_not_known() -> None:
    assert estimated({**LORA, "data": {}}).storage.path is None
    assert estimated({**LORA, "hardware": {}}).storage.path is None
