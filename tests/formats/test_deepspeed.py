"""DeepSpeed's JSON says sharding, precision and batches; every key of it has a fate."""

import pytest

from tuneplan.errors import InvalidRequest
from tuneplan.formats import deepspeed
from tuneplan.formats.foreign import Fate, ForeignDocument
from tuneplan.formats.reading import no_companions, parse_foreign

FULL = """{
  "bf16": {"enabled": true},
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "gradient_clipping": 0.5,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "offload_param": {"device": "cpu"},
    "overlap_comm": true,
    "reduce_bucket_size": 5e7,
    "stage3_prefetch_bucket_size": 1000,
    "stage3_max_live_parameters": 1e9,
    "stage3_param_persistence_threshold": 100000
  },
  "wall_clock_breakdown": false,
  "flops": 1
}"""


def load(text, name="ds.json"):
    document = parse_foreign(text, name=name)
    assert deepspeed.recognise(document) > 0.5
    return deepspeed.load(document, companion=no_companions, version=None)


def test_what_a_full_file_says():
    found = load(FULL)
    assert found.job == {
        "training": {
            "precision": "bf16",
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 4,
            "max_grad_norm": 0.5,
            "optim": "adamw_torch_fused",
        },
        "parallelism": {
            "strategy": "zero3",
            "offload": "params",
            "overlap_communication": True,
            "reduce_bucket_elements": 50_000_000,
            "max_live_parameters": 1_000_000_000,
            "persistence_threshold": 100_000,
        },
    }
    fates = {key.path: key.fate for key in found.keys}
    assert fates["flops"] is Fate.NOT_UNDERSTOOD
    assert fates["zero_optimization.stage3_prefetch_bucket_size"] is Fate.NOT_CARRIED
    assert fates["wall_clock_breakdown"] is Fate.IRRELEVANT
    assert found.places["parallelism.strategy"] == ("ds.json", 8)


def test_auto_is_left_to_the_program():
    found = load(
        '{"bf16": {"enabled": "auto"}, "train_batch_size": "auto", "gradient_clipping": "auto",'
        ' "train_micro_batch_size_per_gpu": "auto", "optimizer": {"type": "auto"},'
        ' "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto", "overlap_comm": "auto"}}'
    )
    assert found.job == {"parallelism": {"strategy": "zero2"}}
    assert not found.with_fate(Fate.NOT_UNDERSTOOD)


@pytest.mark.parametrize(
    ("text", "path", "near"),
    [
        ('{"zero_optimization": {"stage": 4}}', "zero_optimization.stage", ("3",)),
        (
            '{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpuu"}}}',
            "zero_optimization.offload_optimizer.device",
            ("cpu",),
        ),
        (
            '{"zero_optimization": {"stage": 2, "overlap_comm": "maybe"}}',
            "zero_optimization.overlap_comm",
            (),
        ),
        (
            '{"bf16": {"enabled": true}, "fp16": {"enabled": true}, "zero_optimization": {}}',
            "fp16.enabled",
            (),
        ),
        ('{"zero_optimization": {}, "zero_optimization": {"stage": 1}}', "zero_optimization", ()),
        ('{"zero_optimization": {"stage": 1}, "train_batch_size": 0}', "train_batch_size", ()),
    ],
)
def test_what_deepspeed_refuses_is_told_with_key_and_line(text, path, near):
    with pytest.raises(InvalidRequest) as raised:
        load(text)
    mistake = raised.value.mistakes[0]
    assert (mistake.path, mistake.line, mistake.near[:1]) == (path, 1, near)


def test_weights_off_loaded_without_their_optimizer_are_counted_as_if_they_stayed():
    found = load('{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}')
    assert "offload" not in found.job["parallelism"]
    assert [notice.message.code for notice in found.notices] == ["params_offloaded_alone"]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (
            '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}}',
            "zero_optimization.offload_optimizer.device",
        ),
        ('{"zero_optimization": {"stage": 1}, "optimizer": {"type": "Lamb"}}', "optimizer.type"),
        (
            '{"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}}',
            "zero_optimization.zero_hpz_partition_size",
        ),
    ],
)
def test_what_has_no_formula_is_refused_by_name(text, path):
    assert [mistake.path for mistake in load(text).refusals] == [path]


def test_without_zero_the_engine_keeps_fp32_masters():
    found = load('{"bf16": {"enabled": true}, "zero_optimization": {"stage": 0}}')
    assert found.job == {
        "training": {"precision": "bf16", "master_weights": True},
        "parallelism": {"strategy": "ddp"},
    }


def test_other_configurations_are_not_taken_for_it():
    for tree in ({"model": "x"}, {"fp16": True, "bf16": False}, {"optimizer": "adamw"}):
        document = ForeignDocument(tree=tree, file="a.json", form="json")
        assert deepspeed.recognise(document) < 0.2
