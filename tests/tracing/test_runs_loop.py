"""What a loop holds and which attention runs, as measured runs showed it."""

from __future__ import annotations

from dataclasses import replace

from tracing.small_jobs import LENGTH, SEQUENCES, VOCABULARY, recipe_for, small_llama, traced
from tuneplan.spec.recipe import AttentionKernel
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
