"""Seconds of a step under tensor, pipeline, context and expert parallelism."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimation.test_split_memory import model_of, recipe_of
from tuneplan.catalog.accelerators import load_accelerators
from tuneplan.catalog.kernels import load_curves
from tuneplan.catalog.links import resolve_cluster
from tuneplan.estimation.groups import (
    cluster_of,
    data_group,
    expert_group,
    group_time_s,
    tensor_group,
    transfer_time_s,
)
from tuneplan.estimation.split_time import split_step_time
from tuneplan.spec.parallelism import Parallelism, Strategy

DENSE = "Llama-3.1-8B"


@cache
def chip():
    return load_accelerators().resolve("H100 SXM").accelerator


@cache
def curves():
    return load_curves(chip())


def cluster_with(cards: int, network: str | None = None):
    nodes = max(1, cards // 8)
    return resolve_cluster(
        chip(), num_nodes=nodes, accelerators_per_node=cards // nodes, inter_node=network
    ).cluster


def step(
    layout: Parallelism,
    *,
    micro_batches: int = 8,
    name: str = DENSE,
    length: float = 4096.0,
    network=None,
):
    recipe = replace(recipe_of(name), gradient_accumulation_steps=micro_batches)
    return split_step_time(
        model_of(name), recipe, layout, sequences=1.0, length=length,
        cluster=cluster_with(layout.world_size, network), curves=curves(),
    )[0]  # fmt: skip


def term(found, kind: str) -> float:
    return sum(one.value for one in found.terms if one.kind == kind)


LAYOUTS = st.builds(
    Parallelism,
    strategy=st.just(Strategy.ZERO1),
    tensor=st.sampled_from((1, 2, 4, 8)),
    pipeline=st.sampled_from((1, 2, 4)),
    context=st.sampled_from((1, 2)),
    data=st.sampled_from((1, 2)),
    sequence=st.booleans(),
    overlap_tensor=st.booleans(),
)


@given(layout=LAYOUTS)
def test_terms_sum_to_the_step(layout):
    found = step(layout)
    assert found.step_s.likely == pytest.approx(sum(one.value for one in found.terms))
    assert found.step_s.low <= found.step_s.likely <= found.step_s.high
    assert all(one.value > 0 for one in found.terms)


@given(pipeline=st.sampled_from((2, 4)), few=st.sampled_from((2, 4, 8)))
def test_more_micro_batches_make_the_bubble_a_smaller_share(pipeline, few):
    layout = Parallelism(strategy=Strategy.ZERO1, pipeline=pipeline)
    shares = [
        term(found, "pipeline_bubble") / found.step_s.likely
        for found in (step(layout, micro_batches=few), step(layout, micro_batches=4 * few))
    ]
    assert shares[1] < shares[0]


@given(pipeline=st.sampled_from((2, 4)), virtual=st.sampled_from((2, 4)))
def test_virtual_stages_divide_the_bubble(pipeline, virtual):
    layout = Parallelism(strategy=Strategy.ZERO1, pipeline=pipeline, overlap_transfers=True)
    plain = step(layout)
    interleaved = step(replace(layout, virtual_stages=virtual))
    bubble = term(plain, "pipeline_bubble")
    assert term(interleaved, "pipeline_bubble") == pytest.approx(bubble / virtual)


def test_the_bubble_is_about_stages_less_one_over_micro_batches():
    # 4 stages, 32 micro-batches: 3 / 32 of the compute where stages are even. The last one has the
    # head too and sets the pace, so the others' share is a little less.
    layout = Parallelism(strategy=Strategy.ZERO1, pipeline=4)
    found = step(layout, micro_batches=32, length=16384.0)
    compute = sum(term(found, kind) for kind in ("matmul", "attention", "elementwise"))
    assert 0.8 * 3 / 32 < term(found, "pipeline_bubble") / compute < 3 / 32


def test_tensor_ranks_without_overlap_wait_longer():
    layout = Parallelism(strategy=Strategy.ZERO1, tensor=4, sequence=True)
    waiting = [
        term(step(replace(layout, overlap_tensor=overlap)), "tensor_exchange")
        for overlap in (False, True)
    ]
    assert waiting[1] == pytest.approx(0.3 * waiting[0])


def test_tensor_ranks_across_slow_nodes_wait_much_longer():
    inside = step(Parallelism(tensor=8))
    across = step(Parallelism(tensor=16), network="ethernet-100")
    assert term(across, "tensor_exchange") > 10 * term(inside, "tensor_exchange")


def test_context_ranks_share_the_attention_evenly():
    # Half of the pairs are masked: 8 ranks of 1/8 of the positions each meet 8 blocks of keys.
    whole, split = step(Parallelism(), length=32768.0), step(Parallelism(context=8), length=32768.0)
    assert term(split, "attention") == pytest.approx(term(whole, "attention") / 8, rel=0.35)
    assert term(split, "context_exchange") > 0


def test_experts_on_other_ranks_cost_exchange_and_no_more_products():
    name = "Qwen3-30B-A3B"
    alone = step(Parallelism(strategy=Strategy.ZERO1, data=8), name=name)
    spread = step(Parallelism(strategy=Strategy.ZERO1, data=8, expert=8), name=name)
    assert term(alone, "expert_exchange") == 0
    assert term(spread, "expert_exchange") > 0
    assert term(spread, "matmul") <= term(alone, "matmul") * 1.001


def test_groups_see_their_share_of_the_network():
    # 32 cards in four nodes, tensor 4: two tensor groups a node; data ranks stand four apart, so
    # two of them in a node own a quarter of its network each way.
    layout = Parallelism(tensor=4, data=8)
    cluster = cluster_with(32)
    assert tensor_group(layout).per_domain(cluster) == 4
    own = cluster_of(data_group(layout), cluster)
    assert (own.num_nodes, own.accelerators_per_node) == (4, 2)
    assert own.inter_node_bytes_per_s == cluster.inter_node_bytes_per_s * 2 / 8
    assert expert_group(replace(layout, expert=2)).per_domain(cluster) == 2


@given(size=st.floats(1e5, 1e9), ranks=st.sampled_from((2, 4, 8, 16)))
def test_larger_exchanges_take_longer(size, ranks):
    group = tensor_group(Parallelism(tensor=ranks))
    cluster = cluster_with(max(ranks, 8))
    times = [
        group_time_s("all_reduce", bytes_of, group, cluster, curves())
        for bytes_of in (size, 2 * size)
    ]
    assert 0 < times[0] <= times[1]


def test_a_transfer_between_nodes_has_a_card_s_share_of_the_network():
    layout = Parallelism(pipeline=2, tensor=8)
    cluster = cluster_with(16)
    share = cluster.inter_node_bytes_per_s / 8
    assert transfer_time_s(1e9, layout, cluster) == pytest.approx(1e9 / share, rel=0.01)


def test_spread_layers_compute_in_turn_as_on_one_card():
    spread = step(Parallelism(strategy=Strategy.DEVICE_MAP, pipeline=4))
    alone = step(Parallelism())
    transfers = term(spread, "stage_transfers")
    assert transfers > 0
    assert spread.step_s.likely - transfers == pytest.approx(alone.step_s.likely)


def test_nvlink_ends_at_the_node_unless_a_rack_is_one_domain():
    layout = Parallelism(strategy=Strategy.ZERO1, tensor=4, data=2)
    seen = {}
    for name in ("V100 SXM2 32GB", "GB200"):
        card = load_accelerators().resolve(name).accelerator
        nodes = resolve_cluster(card, num_nodes=2, accelerators_per_node=4).cluster
        seen[name] = cluster_of(data_group(layout), nodes).num_nodes
    assert seen == {"V100 SXM2 32GB": 2, "GB200": 1}
