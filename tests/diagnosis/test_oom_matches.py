"""Blocks that equal a tensor of a job; the arithmetic of each beside it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settings import LLAMA_3_8B, MISTRAL_7B, adapter, recipe
from tuneplan.diagnosis.oom_matches import Match, block_bytes, is_a_pool_block, matches
from tuneplan.diagnosis.oom_stage import Stage
from tuneplan.diagnosis.oom_tensors import Batch, KnownTensor, tensors_of
from tuneplan.diagnosis.oom_text import Failure, read_log
from tuneplan.estimation.persistent import persistent
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.parallelism import Parallelism, Strategy
from tuneplan.spec.recipe import AttentionKernel, DType, Method, Quantization, TrainingRecipe
from tuneplan.units import GIB, MIB

BATCH = Batch(sequences=2, length=4096, limit_length=4096, eval_sequences=8)
ONE_CARD = Parallelism()


def request_of(size: str) -> Failure:
    failure = read_log(f"CUDA out of memory. Tried to allocate {size}.").failure
    assert failure is not None
    return failure


def tensors(
    model: ModelArchitecture, how: TrainingRecipe, parallelism: Parallelism = ONE_CARD
) -> tuple[KnownTensor, ...]:
    return tensors_of(model, how, parallelism, persistent(model, how), BATCH)


def found(
    size: str, known: tuple[KnownTensor, ...], stage: Stage = Stage.UNKNOWN
) -> tuple[Match, ...]:
    return matches(request_of(size), known, stage)


def kinds(size: str, known: tuple[KnownTensor, ...]) -> set[str]:
    return {match.tensor.kind for match in found(size, known) if match.exact}


def test_the_allocator_rounds_as_pytorch_does() -> None:
    assert block_bytes(1) == 2 * MIB
    assert block_bytes(MIB) == 2 * MIB
    assert block_bytes(MIB + 1) == 20 * MIB
    assert block_bytes(10 * MIB) == 10 * MIB
    assert block_bytes(10 * MIB + 1) == 12 * MIB


@given(st.integers(1, 2**40))
def test_a_block_holds_its_request_and_is_never_much_larger(size: int) -> None:
    block = block_bytes(size)
    assert block >= size
    assert block % (2 * MIB) == 0
    assert block - size < 2 * MIB + 512 or size < 10 * MIB


@given(st.integers(20 * MIB + 1, 200 * GIB))
def test_any_tensor_is_found_from_its_own_message(size: int) -> None:
    block = block_bytes(size)
    shown = f"{block / MIB:.2f} MiB" if block <= GIB else f"{block / GIB:.2f} GiB"
    tensor = replace(tensors(MISTRAL_7B, recipe())[0], size_bytes=float(size))
    assert [match.exact for match in found(shown, (tensor,))] == [True]


def test_logits_in_fp32_are_found_by_rows_length_and_vocabulary() -> None:
    # 2 x 4096 x 128256 x 4 B = 3.914 GiB.
    assert "logits_float32" in kinds("3.91 GiB", tensors(LLAMA_3_8B, recipe()))
    # One position less, shifted: 2 x 4095 x 128256 x 4 B = 4007 MiB, which prints as 3.91 too.
    assert "logits_bfloat16" in kinds("1.96 GiB", tensors(LLAMA_3_8B, recipe()))


def test_logits_of_an_evaluation_batch_are_told_apart() -> None:
    # 8 x 4096 x 128256 x 4 B = 15.66 GiB.
    known = tensors(LLAMA_3_8B, recipe())
    first = found("15.66 GiB", known, Stage.EVALUATION)[0]
    assert first.tensor.kind == "eval_logits_float32"
    assert first.fits_stage
    assert not found("15.66 GiB", known, Stage.LOAD)[0].fits_stage


def test_a_matrix_of_the_mlp_is_found_by_its_shape() -> None:
    # 14336 x 4096 x 2 B = 112 MiB.
    names = {str(match.tensor.name) for match in found("112.00 MiB", tensors(MISTRAL_7B, recipe()))}
    assert any("gate_proj (MLP)" in name for name in names)


def test_a_quantised_matrix_is_expanded_to_half_precision() -> None:
    how = replace(
        recipe(adapter=adapter()), quantization=Quantization(dequantized_dtype=DType.BFLOAT16)
    )
    assert "dequantized" in kinds("112.00 MiB", tensors(MISTRAL_7B, how))


def test_attention_scores_are_known_only_where_the_kernel_keeps_them() -> None:
    # 2 x 32 heads x 4096 x 4096 x 2 B = 2.00 GiB.
    eager = replace(recipe(), attention=AttentionKernel.EAGER)
    flash = replace(recipe(), attention=AttentionKernel.FLASH_2)
    assert "attention_scores_bfloat16" in kinds("2.00 GiB", tensors(MISTRAL_7B, eager))
    assert "attention_scores_bfloat16" not in kinds("2.00 GiB", tensors(MISTRAL_7B, flash))


@pytest.mark.parametrize("strategy", [Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3])
def test_zero_asks_for_the_optimizer_partition_of_a_rank(strategy: Strategy) -> None:
    # 7,241,732,096 x 4 B / 4 = 6906.3 MiB, in steps of 2 MiB 6908: 6.75 GiB.
    full = recipe(method=Method.FULL)
    known = tensors(MISTRAL_7B, full, Parallelism(strategy=strategy, data=4))
    assert "optimizer_partition_fp32" in kinds("6.75 GiB", known)
    assert "optimizer_partition_fp32" not in kinds("6.75 GiB", tensors(MISTRAL_7B, full))


def test_fsdp_gathers_a_layer_whole() -> None:
    # 218,112,000 parameters of a layer x 2 B = 416.02 MiB, in steps of 2 MiB: 418 MiB.
    known = tensors(MISTRAL_7B, recipe(), Parallelism(strategy=Strategy.FSDP, data=4))
    assert "gathered_layer_bfloat16" in kinds("418.00 MiB", known)


@pytest.mark.parametrize("size", ["2.00 MiB", "20.00 MiB"])
def test_a_block_for_small_tensors_names_none(size: str) -> None:
    assert is_a_pool_block(request_of(size))
    assert found(size, tensors(MISTRAL_7B, recipe())) == ()


def test_a_near_size_is_shown_with_how_far_it_is_off() -> None:
    near = found("113.00 MiB", tensors(MISTRAL_7B, recipe()))  # 112 MiB are 0.9 % less
    assert near
    assert all(0 < match.error_fraction <= 0.01 for match in near)


def test_what_is_far_off_is_not_shown() -> None:
    assert found("77.00 MiB", tensors(MISTRAL_7B, recipe())) == ()


def test_logits_that_metrics_keep_are_counted_in_batches() -> None:
    # 5 batches of 8 x 4096 x 32000 x 2 B = 1.95 GiB each are 9.77 GiB.
    kept = replace(BATCH, kept_batches=8)
    known = tensors_of(MISTRAL_7B, recipe(), ONE_CARD, persistent(MISTRAL_7B, recipe()), kept)
    first = found("9.77 GiB", known, Stage.EVALUATION)[0]
    assert first.tensor.kind == "kept_logits_bfloat16"
    assert first.tensor.formula.startswith("5 x 8 x 4096 x 32000")
    assert "kept_logits_bfloat16" not in kinds("9.77 GiB", tensors(MISTRAL_7B, recipe()))
