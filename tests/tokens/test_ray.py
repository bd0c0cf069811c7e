"""The same counts and shards from a real Ray cluster, one of whose workers is killed on the way."""

import gzip
import json
import os
import sys

import numpy as np
import pytest
import ray

from killed_workers import KilledOnce
from tuneplan.errors import InputError
from tuneplan.planner.tokenise_data import tokenise_data
from tuneplan.tokens import ray_cluster
from tuneplan.tokens.counting import RowCounter
from tuneplan.tokens.profiling import count_units, profile_files
from tuneplan.tokens.ray_cluster import RayCluster
from tuneplan.tokens.tokenizers import find_tokenizer
from tuneplan.tokens.work import DataSet

# Ray warns of its own settings.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def cluster():
    """A cluster on this machine with three worker processes."""
    # Workers find what this process finds, the modules beside the tests among it.
    found = {"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}}
    ray.init(
        num_cpus=3,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env=found,
    )
    yield RayCluster()
    ray.shutdown()


@pytest.fixture
def corpus(tmp_path):
    draw = np.random.default_rng(3)
    lines = [
        json.dumps({"text": " ".join(["plan"] * int(size))})
        for size in 1 + draw.lognormal(3, 1, 2000)
    ]
    lines[700] = "{broken"
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress("\n".join(lines[:500]).encode()))
    return [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl.gz")]


class Murderous(RayCluster):
    def __init__(self, marker):
        super().__init__()
        self.marker = marker

    def run(self, function, units):
        return super().run(KilledOnce(function, self.marker), units)


def test_a_profile_is_the_same_from_a_cluster_whose_worker_is_killed(cluster, corpus, tmp_path):
    tokenizer = find_tokenizer(tokenizer="approximate")
    marker = tmp_path / "killed"
    data = DataSet(paths=tuple(corpus), part_bytes=9000, whole_files=True)
    totals = count_units(data, RowCounter(tokenizer), Murderous(marker))
    assert marker.exists()
    assert cluster.address == "local"
    wanted = profile_files(corpus, tokenizer=tokenizer, skip_bad_rows=True)
    assert tuple(tally.facts() for tally in data.tallies) == wanted.files
    assert tuple(sorted(totals.lengths.items())) == wanted.length_counts
    assert [(row.path, row.line) for row in totals.bad_rows] == [(path, 701) for path in corpus[:1]]


@pytest.mark.usefixtures("cluster")
def test_shards_have_the_same_bytes_when_a_worker_is_killed(corpus, tmp_path, monkeypatch):
    options = {
        "tokenizer": "qwen3", "skip_bad_rows": True, "shard_bytes": 2**14,
        "max_length": 512, "packing": "bfd",
    }  # fmt: skip
    tokenise_data(corpus, tmp_path / "here", workers=1, **options)
    marker = tmp_path / "killed"
    monkeypatch.setattr(ray_cluster, "RayCluster", lambda _address: Murderous(marker))
    made = tokenise_data(corpus, tmp_path / "there", ray_address="local", **options)
    assert marker.exists()
    assert made.num_resumed == 0
    names = sorted(path.name for path in (tmp_path / "here").iterdir())
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == names
    for name in names:
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


def test_what_a_unit_raises_on_the_cluster_is_raised_here(cluster):
    with pytest.raises(ValueError, match="invalid literal"):
        list(cluster.run(int, ["1", "x"]))


def test_no_cluster_at_an_address_is_told():
    ray.shutdown()
    with pytest.raises(InputError, match="no Ray cluster at nosuchscheme://x"):
        list(RayCluster("nosuchscheme://x").run(abs, [1]))
