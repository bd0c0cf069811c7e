"""accelerate's YAML says processes, sharding and precision."""

import pytest

from tuneplan.errors import InvalidRequest
from tuneplan.formats import accelerate
from tuneplan.formats.foreign import Fate
from tuneplan.formats.reading import companions_of, no_companions, parse_foreign, read_foreign

BASE = "compute_environment: LOCAL_MACHINE\nmachine_rank: 0\nmain_training_function: main\n"


def load(text):
    document = parse_foreign(BASE + text, name="accelerate.yaml")
    assert accelerate.recognise(document) > 0.5
    return accelerate.load(document, companion=no_companions, version=None)


@pytest.mark.parametrize(
    ("text", "job"),
    [
        (
            (
                "distributed_type: MULTI_GPU\nnum_processes: 16\nnum_machines: 2\n"
                "mixed_precision: bf16"
            ),
            {
                "hardware": {"num_nodes": 2, "accelerators_per_node": 8},
                "training": {"precision": "bf16"},
                "parallelism": {"strategy": "ddp"},
            },
        ),
        (
            "distributed_type: 'NO'\nnum_processes: 8\nmixed_precision: 'no'",
            {"hardware": {"accelerators_per_node": 1}, "training": {"precision": "none"}},
        ),
        (
            (
                "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2, fsdp_offload_params: true,"
                " fsdp_reshard_after_forward: true, fsdp_activation_checkpointing: true}"
            ),
            {
                "parallelism": {"strategy": "fsdp2", "offload": "params"},
                "training": {"gradient_checkpointing": True},
            },
        ),
        (
            "distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: 4}",
            {"parallelism": {"strategy": "hsdp"}},
        ),
        (
            "distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: SHARD_GRAD_OP}",
            {"parallelism": {"strategy": "zero2"}},
        ),
        (
            (
                "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3,"
                " offload_optimizer_device: cpu, offload_param_device: cpu, gradient_clipping: 1.0}"
            ),
            {
                "parallelism": {"strategy": "zero3", "offload": "params"},
                "training": {"max_grad_norm": 1.0},
            },
        ),
        (
            (
                "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\nparallelism_config:"
                " {parallelism_config_dp_replicate_size: 2, parallelism_config_dp_shard_size: 2,"
                " parallelism_config_tp_size: 2, parallelism_config_cp_size: 1}"
            ),
            {"parallelism": {"strategy": "hsdp", "tensor": 2}},
        ),
    ],
)
def test_what_a_file_says(text, job):
    found = load(text)
    assert found.job == job
    assert not found.with_fate(Fate.NOT_UNDERSTOOD)


@pytest.mark.parametrize(
    ("text", "path", "near"),
    [
        ("distributed_type: MULTIGPU", "distributed_type", "MULTI_GPU"),
        ("distributed_type: FSDP\nmixed_precision: bf61", "mixed_precision", "bf16"),
        (
            "distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: FULL_SHART}",
            "fsdp_config.fsdp_sharding_strategy",
            "full_shard",
        ),
        ("distributed_type: MULTI_GPU\nnum_machines: 3\nnum_processes: 8", "num_processes", "24"),
    ],
)
def test_values_that_accelerate_refuses_name_the_nearest(text, path, near):
    with pytest.raises(InvalidRequest) as raised:
        load(text)
    (mistake,) = raised.value.mistakes
    assert (mistake.path, mistake.near[0]) == (path, near)
    assert mistake.line > 3


def test_what_has_no_formula_is_refused_by_name():
    assert [m.path for m in load("distributed_type: MEGATRON_LM").refusals] == ["distributed_type"]


def test_a_deepspeed_file_that_contradicts_it_is_named_with_both_places(tmp_path):
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    path = tmp_path / "accelerate.yaml"
    path.write_text(
        f"{BASE}distributed_type: DEEPSPEED\n"
        "deepspeed_config:\n  deepspeed_config_file: ds.json\n  zero_stage: 2\n"
    )
    with pytest.raises(InvalidRequest, match=r"zero_stage: 2 .*stage: 3 in .*ds.json \(line 1\)"):
        accelerate.load(read_foreign(path), companion=companions_of(path), version=None)


def test_a_deepspeed_file_that_is_absent_is_told_by_its_name():
    found = load(
        "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: x/zero3.json}"
    )
    assert found.job == {"parallelism": {"strategy": "zero3"}}
    assert [notice.message.code for notice in found.notices] == ["engine_by_name"]
