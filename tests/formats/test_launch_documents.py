"""Launch files of SkyPilot and dstack hold a launch line, which is read."""

import pytest

from tuneplan.errors import UnreadableFile
from tuneplan.formats.foreign import Fate
from tuneplan.formats.reading import companions_of, parse_foreign, read_foreign
from tuneplan.formats.registry import format_named, recognised

SKY = """\
name: tune
num_nodes: 2
resources:
  accelerators: H100:8
setup: pip install trl
run: |
  HEAD=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)
  torchrun --nnodes 2 --nproc_per_node 8 --master_addr "$HEAD" \\
    -m trl.scripts.sft --config train.yaml --packing true
"""
DSTACK = """\
type: task
nodes: 1
commands:
  - pip install trl
  - accelerate launch -m trl.scripts.sft --config train.yaml
resources:
  gpu: {name: H100, count: 4}
"""
TRAIN = "model_name_or_path: a/b\ndataset_name: c/d\nbf16: true\nmax_length: 1024\n"


@pytest.mark.parametrize(
    ("text", "hardware", "line"),
    [
        (SKY, {"num_nodes": 2, "accelerators_per_node": 8}, 8),
        (DSTACK, {"num_nodes": 1, "accelerators_per_node": 4}, None),
    ],
)
def test_the_job_inside_a_launch_file(tmp_path, text, hardware, line):
    (tmp_path / "train.yaml").write_text(TRAIN)
    path = tmp_path / "launch.yaml"
    path.write_text(text)
    document = read_foreign(path)
    assert recognised(document)[0] == "trl"
    found = format_named("trl").load(document, companion=companions_of(path), version=None)
    assert found.job["model"] == "a/b"
    assert found.job["hardware"] == hardware
    assert not found.with_fate(Fate.NOT_UNDERSTOOD)
    assert found.places["training.max_length"] == (str(tmp_path / "train.yaml"), 4)
    if line is not None:
        assert found.places["hardware.num_nodes"] == (str(path), line)
    assert "card_asked_for" in [notice.message.code for notice in found.notices]


def test_a_launch_file_that_trains_nothing_is_refused():
    with pytest.raises(UnreadableFile, match="starts no training"):
        parse_foreign("resources: {cpus: 4}\nrun: echo hello\n", name="sky.yaml")


def test_other_configurations_with_such_keys_are_left_alone():
    document = parse_foreign("model_name_or_path: a/b\nrun: 3\nresources: x\n", name="a.yaml")
    assert document.form == "yaml"
    assert recognised(document) == ()
