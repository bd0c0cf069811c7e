"""Parts on models that are built in another way than Llama."""

from dataclasses import replace
from typing import Any

import pytest

from tracing.small_jobs import of_kind, recipe_for, traced
from tuneplan.catalog.architectures import build_architecture
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.recipe import Checkpointing, Loss, LossPath, TrainingRecipe

GPT2: dict[str, Any] = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_layer": 2,
    "n_head": 2, "n_positions": 256, "vocab_size": 512, "tie_word_embeddings": True,
}  # fmt: skip
FALCON: dict[str, Any] = {
    "model_type": "falcon", "architectures": ["FalconForCausalLM"], "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 512, "multi_query": True,
    "parallel_attn": True, "bias": False, "alibi": False, "new_decoder_architecture": False,
}  # fmt: skip
MOE: dict[str, Any] = {
    "model_type": "qwen2_moe", "architectures": ["Qwen2MoeForCausalLM"], "hidden_size": 64,
    "intermediate_size": 128, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "num_experts": 4,
    "num_experts_per_tok": 2, "vocab_size": 512, "tie_word_embeddings": False,
}  # fmt: skip


def model_of(config: dict[str, Any]) -> ModelArchitecture:
    return build_architecture(config, name="small", hf_id=None, source="test")[0]


def gradients(model: ModelArchitecture, recipe: TrainingRecipe) -> int:
    return of_kind(traced(model, recipe), "gradient", step=1)


@pytest.mark.parametrize("config", [GPT2, FALCON, MOE], ids=lambda config: config["model_type"])
@pytest.mark.parametrize("bits", [4, 8])
def test_quantised_bases_train_the_same_adapters(config, bits):
    model = model_of(config)
    recipe = recipe_for(model, method="qlora", quantization={"bits": bits})
    plain = replace(recipe_for(model, method="lora"), adapter=recipe.adapter)
    assert gradients(model, recipe) == gradients(model, plain) > 0


def test_gptq_leaves_linears_alone_whose_sizes_are_no_multiples_of_32():
    """The gate of the shared expert has one output."""
    model = model_of(MOE)
    recording = traced(model, recipe_for(model, method="gptq-lora"))
    integers = [b for b in recording.blocks if b.kind == "frozen_weight" and b.dtype == "int32"]
    assert integers
    assert all(block.shape[1] % 32 == 0 for block in integers)


@pytest.mark.parametrize("config", [GPT2, FALCON, MOE], ids=lambda config: config["model_type"])
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_on_the_host_change_no_gradient(config, reentrant):
    model = model_of(config)
    recipe = recipe_for(model, training={"gradient_checkpointing": True})
    host = replace(recipe, gradient_checkpointing=Checkpointing.OFFLOAD, use_reentrant=reentrant)
    assert gradients(model, host) == gradients(model, recipe) > 0


@pytest.mark.parametrize("config", [GPT2, FALCON, MOE], ids=lambda config: config["model_type"])
def test_a_fused_cross_entropy_takes_the_place_of_any_models_loss(config):
    model = model_of(config)
    loss = Loss(path=LossPath.FUSED_CROSS_ENTROPY, upcast_logits=False)
    recording = traced(model, recipe_for(model, method="lora", loss=loss))
    assert not any(
        block.dtype == "float32" and block.shape[-1:] == (512,) and block.step == 1
        for block in recording.blocks
        if block.phase in ("loss", "backward")
    )
