"""What a loop holds and which attention runs, as measured runs showed it."""

from __future__ import annotations

from dataclasses import replace

from tracing.small_jobs import (
    HIDDEN,
    LAYERS,
    LENGTH,
    SEQUENCES,
    TOKENS,
    VOCABULARY,
    of_kind,
    recipe_for,
    small_llama,
    traced,
)
from tuneplan.spec.recipe import AttentionKernel, Kernels
from tuneplan.tracing.recording import Recording
from tuneplan.tracing.result import summarize

LOGITS_BYTES = SEQUENCES * LENGTH * VOCABULARY * 4  # autocast's wrapper returns them in fp32


def kernels(recording: Recording) -> dict[str, int]:
    """Forward and backward calls of attention kernels, by name."""
    return {
        name: calls for name, (calls, _, _) in recording.operations.items() if "attention" in name
    }


def test_outputs_that_die_with_the_step_are_held_while_the_optimizer_steps() -> None:
    """A T4 run of SmolLM2-135M (fitcheck-llm 0.3.1): 441.7 MiB then, of which 96 are logits."""
    model = small_llama()
    plain = recipe_for(model, attention_mask=False)
    holding = replace(plain, keeps_outputs=True, outputs_die_with_step=True)
    without, held = (
        summarize(traced(model, recipe)).by_phase["optimizer_step"] for recipe in (plain, holding)
    )
    assert held - without == LOGITS_BYTES + 512  # and the loss, in a block of its own


def test_keys_that_the_program_repeats_reach_a_kernel_that_refuses_groups() -> None:
    model = small_llama(num_key_value_heads=2)
    grouped = recipe_for(model, attention_mask=False, expand_key_value=False)
    repeating = replace(grouped, expand_key_value=True)
    as_stored = traced(model, grouped, compute_capability=7.5)
    repeated = traced(model, repeating, compute_capability=7.5)
    assert "attention_math" in as_stored.notes
    assert any("efficient" in name for name in kernels(repeated))
    assert "attention_math" not in repeated.notes


def test_flash_attention_keeps_what_pytorchs_flash_kernel_keeps() -> None:
    model = small_llama()
    sdpa = traced(model, recipe_for(model, attention_mask=False))
    flash = traced(
        model, recipe_for(model, attention_mask=False, attention=AttentionKernel.FLASH_2)
    )
    assert "flash attention" in flash.stand_ins
    assert kernels(flash) == kernels(sdpa)
    assert summarize(flash).allocated_peak_bytes == summarize(sdpa).allocated_peak_bytes


def test_fused_adapters_with_dropout_keep_what_each_dropout_left_and_no_mask() -> None:
    """For queries, keys, values and the output: a half tensor each, in place of PEFT's own."""
    model = small_llama()
    adapter = {"lora_dropout": 0.1, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}
    how = {"method": "qlora", "adapter": adapter, "autocast": False}
    plain, fused = (
        traced(model, recipe_for(model, kernels=kernels, **how))
        for kernels in (Kernels(), Kernels(fused_adapter=True))
    )
    assert fused.notes["fused_adapters"] == 4 * LAYERS
    for kind in ("trained_weight", "gradient"):
        assert of_kind(fused, kind, step=1) == of_kind(plain, kind, step=1)
    begin, end = (
        next(at for at, name, step in fused.marks if (name, step) == (phase, 1))
        for phase in ("forward", "loss")
    )
    left = [
        block
        for block in fused.blocks
        if begin <= block.born < end <= block.died
        and block.shape == (TOKENS, HIDDEN)
        and "dropout" in block.module
    ]
    assert len(left) == 4 * LAYERS
