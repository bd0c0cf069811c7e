from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chips import A100, FULL, H100, LORA, RTX_3090, cluster, llama
from tuneplan.catalog.kernels import load_curves
from tuneplan.estimation.communication import (
    Collective,
    collective_time_s,
    collectives,
    communication_term,
)
from tuneplan.estimation.offload import offload_term
from tuneplan.estimation.sharded_units import communication_units
from tuneplan.spec.parallelism import Offload, Parallelism, Strategy
from tuneplan.spec.recipe import DType, Method, Quantization

MISTRAL = llama()
LAYER = 218_112_000  # 4096 x (4096 + 1024 + 1024 + 4096) + 3 x 4096 x 14336 + 2 x 4096
OUTER = 262_148_096  # 2 x 32000 x 4096 + 4096
CURVES = load_curves(A100)


def term(strategy, *, data=4, recipe=FULL, on=None, curves=CURVES, **facts):
    parallelism = Parallelism(strategy=strategy, data=data, **facts)
    where = on or cluster(A100, cards=data)
    return communication_term(
        communication_units(MISTRAL, recipe), recipe, parallelism, where, curves
    )


def list_of(strategy, *, data=4, recipe=FULL, **facts):
    parallelism = Parallelism(strategy=strategy, data=data, **facts)
    units = communication_units(MISTRAL, recipe)
    return collectives(units, recipe, parallelism, cluster(A100, cards=data))


def one(kind="all_gather", size=268_435_456.0, ranks=8, nodes=1):
    return Collective(name="x", kind=kind, size_bytes=size, count=1, ranks=ranks, nodes=nodes)


def bus_gb_per_s(seconds, size, ranks):
    return size * (ranks - 1) / ranks / seconds / 1e9


def test_units_hold_every_parameter_once():
    units = communication_units(MISTRAL, FULL)
    assert sum(unit.count * unit.gathered_bytes for unit in units) == 2 * 7_241_732_096
    assert [unit.gathered_bytes for unit in units] == [2 * LAYER, 2 * OUTER]
    assert sum(unit.count * unit.trained_parameters for unit in units) == 7_241_732_096


def test_adapters_alone_are_trained_under_lora():
    # 16 x (q 8192 + k 5120 + v 5120 + o 8192) = 425,984 a layer, 32 layers.
    units = communication_units(MISTRAL, LORA)
    assert sum(unit.count * unit.trained_parameters for unit in units) == 13_631_488


def test_four_bit_layers_travel_packed():
    recipe = replace(LORA, method=Method.QLORA, quantization=Quantization())
    layer, root = communication_units(MISTRAL, recipe)
    norms, adapters = 2 * 4096, 425_984
    assert layer.gathered_bytes == (LAYER - norms) / 2 + 2 * norms + 2 * adapters
    assert root.gathered_bytes == 2 * OUTER


def test_freezing_trains_the_last_layers_only():
    recipe = replace(FULL, method=Method.FREEZE, trained_layers=2)
    units = communication_units(MISTRAL, recipe)
    assert sum(unit.count * unit.trained_parameters for unit in units) == 2 * LAYER


# nccl-tests-like bus bandwidth of the source tables at 268 MB, in GB/s.
@pytest.mark.parametrize(
    ("chip", "kind", "ranks", "measured"),
    [
        (A100, "all_gather", 2, 143),
        (A100, "all_gather", 4, 182),
        (A100, "all_gather", 8, 193),
        (A100, "reduce_scatter", 8, 204),
        (H100, "all_gather", 2, 245),
        (H100, "all_gather", 8, 322),
    ],
)
def test_collectives_run_at_the_measured_bus_bandwidth(chip, kind, ranks, measured):
    seconds = collective_time_s(one(kind, ranks=ranks), cluster(chip, cards=8), load_curves(chip))
    assert bus_gb_per_s(seconds, 268_435_456, ranks) == pytest.approx(measured, rel=0.02)


@given(size=st.floats(1e3, 1e10), factor=st.floats(1.01, 10), ranks=st.integers(2, 8))
def test_larger_messages_take_longer(size, factor, ranks):
    where = cluster(A100, cards=8)
    small = collective_time_s(one(size=size, ranks=ranks), where, CURVES)
    assert collective_time_s(one(size=size * factor, ranks=ranks), where, CURVES) >= small


@given(factor=st.floats(1.05, 10), size=st.floats(1e6, 1e10))
def test_a_faster_link_is_never_slower(factor, size):
    slow = cluster(A100, cards=8, intra_node_bytes_per_s=100e9)
    fast = cluster(A100, cards=8, intra_node_bytes_per_s=100e9 * factor)
    assert collective_time_s(one(size=size), fast, CURVES) < collective_time_s(
        one(size=size), slow, CURVES
    )


def test_between_nodes_the_slower_of_ring_and_network_card_counts():
    # 1 GB over 16 ranks of 2 nodes: 15/16 GB through 50 GB/s = 18.75 ms, and 8 hops of 2.2 us.
    where = cluster(H100, cards=8, nodes=2)
    seconds = collective_time_s(one(size=1e9, ranks=16, nodes=2), where, load_curves(H100))
    assert seconds == pytest.approx(15 / 16 / 50 + 8 * 2.2e-6, rel=1e-6)


def test_cards_in_half_the_lanes_take_twice_as_long():
    where = cluster(RTX_3090, cards=2)
    half = replace(where, intra_node_bytes_per_s=where.intra_node_bytes_per_s / 2)
    curves = load_curves(RTX_3090)
    large = one(ranks=2, size=1e9)
    ratio = collective_time_s(large, half, curves) / collective_time_s(large, where, curves)
    assert ratio == pytest.approx(2, rel=0.01)


def test_ddp_reduces_once_a_step_in_buckets_of_25_mib():
    (reduce,) = list_of(Strategy.DDP, recipe=replace(FULL, gradient_accumulation_steps=8))
    assert reduce.kind == "all_reduce"
    assert reduce.count * reduce.size_bytes == pytest.approx(2 * 7_241_732_096)
    assert reduce.size_bytes <= 25 * 2**20


def test_zero_2_reduces_every_micro_batch_and_zero_1_once():
    recipe = replace(FULL, gradient_accumulation_steps=4)

    def reduced(strategy):
        return sum(
            c.count * c.size_bytes
            for c in list_of(strategy, recipe=recipe)
            if c.kind == "reduce_scatter"
        )

    assert reduced(Strategy.ZERO2) == pytest.approx(4 * reduced(Strategy.ZERO1))


def test_fsdp_gathers_layers_twice_and_three_times_around_checkpointing():
    def gathered(**facts):
        found = list_of(Strategy.FSDP, **facts)
        return next(c.count for c in found if c.name == "layer parameters")

    assert gathered() == 2 * 32
    assert gathered(activation_gather=True) == 3 * 32


def test_full_sharding_moves_three_times_the_weights_a_micro_batch():
    # Gathered for the forward and the backward, gradients scattered once: 3 x 2P bytes, of which
    # (N - 1) / N cross the link; at 300 GB/s and 4 cards 3 x 14.5 GB x 3/4 / 300 GB/s = 0.11 s.
    found = list_of(Strategy.ZERO3)
    moved = sum(c.count * c.size_bytes for c in found if c.kind != "all_reduce")
    assert moved == pytest.approx(3 * 2 * 7_241_732_096, rel=0.02)
    ideal_s = moved * 3 / 4 / 300e9
    assert ideal_s == pytest.approx(0.109, abs=0.002)
    assert ideal_s < sum(part.value for part in term(Strategy.ZERO3).parts) < 2 * ideal_s


def test_no_sync_scatters_gradients_once_a_step():
    recipe = replace(FULL, gradient_accumulation_steps=8)
    held = replace(recipe, gradients_unsharded_while_accumulating=True)

    def scatters(chosen):
        return sum(
            c.count for c in list_of(Strategy.FSDP, recipe=chosen) if c.kind == "reduce_scatter"
        )

    assert scatters(recipe) == 8 * scatters(held)


def test_one_rank_does_not_communicate():
    assert term(Strategy.SINGLE, data=1).value == 0
    assert term(Strategy.FSDP, data=1).value == 0


def test_parts_sum_to_the_term():
    found = term(Strategy.FSDP)
    assert found.value == pytest.approx(sum(part.value for part in found.parts))


def test_fsdp_of_mistral_on_four_a100_costs_its_isolated_collectives():
    # 2 x 6.98e9 parameters x 2 B x 3/4 at 182 GB/s gathered, the same once at 195 scattered, and
    # the outer 0.26e9 once each way: 0.115 + 0.054 + 0.004 s.
    assert term(Strategy.FSDP).value == pytest.approx(0.173, rel=0.05)


def test_sharded_adapters_cost_less_than_sharded_full_training():
    assert term(Strategy.FSDP2, recipe=LORA).value < term(Strategy.FSDP2).value


def test_adapter_matrices_are_handled_one_by_one_under_fsdp_1():
    # 32 layers x 4 adapted linears x 2 matrices x 0.6 ms = 0.154 s.
    wrapped = term(Strategy.FSDP, recipe=LORA).value
    assert wrapped - term(Strategy.FSDP2, recipe=LORA).value == pytest.approx(0.1536)


def test_hybrid_sharding_adds_an_all_reduce_between_the_groups():
    where = cluster(A100, cards=8, nodes=2)
    found = collectives(
        communication_units(MISTRAL, FULL),
        FULL,
        Parallelism(strategy=Strategy.HSDP, data=16, shard_group=8),
        where,
    )
    between = [c for c in found if c.kind == "all_reduce"]
    assert [(c.ranks, c.nodes) for c in between] == [(2, 2)]
    assert between[0].size_bytes == pytest.approx(2 * 7_241_732_096 / 8)
    assert all(c.nodes == 1 for c in found if c.kind != "all_reduce")


@given(data=st.sampled_from([2, 4, 8]), strategy=st.sampled_from(list(Strategy)))
def test_fp32_gradients_never_travel_faster(data, strategy):
    wide = replace(FULL, gradient_dtype=DType.FLOAT32)
    narrow = term(strategy, data=data).value
    assert term(strategy, data=data, recipe=wide).value >= narrow


def test_no_offload_is_no_term():
    units = communication_units(MISTRAL, FULL)
    assert offload_term(units, FULL, Parallelism(), cluster(A100)) is None


def test_offloaded_adam_is_bound_by_host_memory():
    # 7.24e9 x 30 B / 130 GB/s = 1.67 s, and 2 x 14.5 GB over 0.8 x 32 GB/s = 1.13 s.
    parallelism = Parallelism(strategy=Strategy.ZERO2, data=1, offload=Offload.OPTIMIZER)
    found = offload_term(communication_units(MISTRAL, FULL), FULL, parallelism, cluster(A100))
    assert found is not None
    assert found.value == pytest.approx(1.671 + 1.132, rel=0.01)


def test_weights_that_stay_gathered_travel_once():
    def gathered_times(**layout):
        found = list_of(Strategy.FSDP, **layout)
        return [one.count for one in found if one.name == "layer parameters"]

    assert gathered_times(keeps_gathered=True) == [n / 2 for n in gathered_times()]
