"""What each rank of a quantised base holds, on the card and on the host, under sharding engines."""

from __future__ import annotations

import pytest

from settings import LLAMA_3_8B, adapter, recipe
from tuneplan.estimation.memory import MemoryCount, count_memory
from tuneplan.estimation.parameters import resolve_target_modules
from tuneplan.spec.parallelism import Offload, Parallelism, Strategy
from tuneplan.spec.recipe import Method, Quantization

# 32 layers of q, k, v, o, gate, up, down.
LINEARS = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
PACKED = LINEARS / 2  # 4 bits each
# One fp32 scale for 64 elements, and no second quantisation of these.
SCALES = LINEARS / 64 * 4


def counted(strategy: Strategy, cards: int, offload: Offload = Offload.NONE) -> MemoryCount:
    settings = recipe(
        method=Method.QLORA,
        adapter=adapter(target_modules=resolve_target_modules(LLAMA_3_8B, "all-linear")),
        quantization=Quantization(bits=4, type="nf4", double_quant=False),
    )
    layout = Parallelism(strategy=strategy, data=cards, offload=offload)
    return count_memory(LLAMA_3_8B, settings, layout, sequences=1, length=512)


def test_one_card_holds_packed_weights_and_their_scales() -> None:
    base = counted(Strategy.SINGLE, 1).base
    assert base["quantized_weights"] == pytest.approx(PACKED)
    assert base["quantization_constants"] == pytest.approx(SCALES, rel=1e-4)


@pytest.mark.parametrize("strategy", [Strategy.FSDP, Strategy.FSDP2, Strategy.ZERO3])
def test_packed_weights_are_shared_and_each_rank_keeps_all_scales(strategy: Strategy) -> None:
    base = counted(strategy, 4).base
    assert base["quantized_weights"] == pytest.approx(PACKED / 4)
    assert base["quantization_constants"] == pytest.approx(SCALES, rel=1e-4)


@pytest.mark.parametrize("strategy", [Strategy.FSDP, Strategy.FSDP2, Strategy.ZERO3])
def test_offloaded_parameters_take_packed_weights_to_the_host(strategy: Strategy) -> None:
    count = counted(strategy, 4, Offload.PARAMS)
    assert "quantized_weights" not in count.base
    assert count.base["quantization_constants"] == pytest.approx(SCALES, rel=1e-4)
    states_alone = counted(strategy, 4, Offload.OPTIMIZER).host_bytes
    embeddings = 2 * 128256 * 4096 * 2  # token embedding and head in half precision
    assert count.host_bytes - states_alone > (PACKED + embeddings) / 4
