"""Parameters by part, what an adapter reaches, and what a method trains."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.catalog.models import load_models
from tuneplan.errors import InvalidRequest
from tuneplan.estimation.parameters import (
    linear_modules,
    parameter_counts,
    resolve_target_modules,
    trainable_parameters,
)
from tuneplan.spec.recipe import Adapter, Method

CATALOG = load_models()
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def lora(name: str, targets: object, r: int, **changes: object) -> int:
    model = CATALOG.architecture(name)
    resolved = resolve_target_modules(model, targets)  # type: ignore[arg-type]
    adapter = Adapter(r=r, lora_alpha=16, target_modules=resolved, **changes)  # type: ignore[arg-type]
    return trainable_parameters(model, Method.LORA, adapter)


def test_tiny_llama_r32_on_the_attention_trains_nine_million() -> None:
    # 22 layers; q and o are 2048 x 2048, k and v 256 x 2048 (4 key-value heads of 64)
    one_layer = 32 * ((2048 + 2048) + (2048 + 256) + (2048 + 256) + (2048 + 2048))
    assert 22 * one_layer == 9_011_200
    assert lora("TinyLlama-1.1B", ATTENTION, 32) == 9_011_200


def test_mistral_7b_r16_on_the_attention_trains_thirteen_million() -> None:
    # 32 layers; q and o are 4096 x 4096, k and v 1024 x 4096 (8 key-value heads of 128)
    one_layer = 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024))
    assert 32 * one_layer == 13_631_488
    assert lora("Mistral-7B-v0.1", ATTENTION, 16) == 13_631_488


def test_qwen_2_5_7b_r16_on_all_linears_trains_forty_million() -> None:
    # 28 layers; q, o: 3584 x 3584; k, v: 512 x 3584; gate, up, down: 18944 x 3584
    attention = 2 * (3584 + 3584) + 2 * (3584 + 512)
    feed_forward = 3 * (3584 + 18944)
    assert 28 * 16 * (attention + feed_forward) == 40_370_176
    assert lora("Qwen2.5-7B", "all-linear", 16) == 40_370_176


def test_dora_adds_one_magnitude_per_output() -> None:
    magnitudes = 32 * (4096 + 1024 + 1024 + 4096)
    assert lora("Mistral-7B-v0.1", ATTENTION, 16, use_dora=True) == 13_631_488 + magnitudes


def test_a_saved_head_is_trained_whole_even_where_it_is_tied() -> None:
    targets = ("q_proj",)
    head = 128256 * 2048
    plain = lora("Llama-3.2-1B", targets, 8)
    assert lora("Llama-3.2-1B", targets, 8, modules_to_save=("lm_head",)) == plain + head


def test_experts_are_reached_by_the_names_they_had_as_modules() -> None:
    # one adapter of twice the rank for gate and up together, one for down, in each of 8 experts
    one_expert = 2 * 8 * (4096 + 2 * 14336) + 8 * (14336 + 4096)
    router = 8 * (4096 + 8)
    attention = 8 * (2 * (4096 + 4096) + 2 * (4096 + 1024))
    total = 32 * (8 * one_expert + router + attention)
    assert total == 179_832_832
    assert lora("Mixtral-8x7B-v0.1", "all-linear", 8) == total


def test_the_experts_of_other_families_are_not_reached() -> None:
    # Qwen 1.5 MoE: attention 2048 x 2048, the shared expert (5632 wide) and its gate; 24 layers
    one_layer = 4 * (2048 + 2048) + 3 * (2048 + 5632) + (2048 + 1)
    assert 24 * 8 * one_layer == 7_962_816
    assert lora("Qwen1.5-MoE-A2.7B", "all-linear", 8) == 7_962_816


@pytest.mark.parametrize(
    ("name", "all_linear_r8"),
    [
        # counted by PEFT 0.21.2 over transformers 5.24.0 on the meta device
        ("gpt2", 1_179_648),
        ("phi-2", 11_796_480),
        ("falcon-7b", 16_318_464),
        ("pythia-160m", 1_179_648),
        ("opt-1.3b", 7_077_888),
        ("starcoder2-3b", 11_919_360),
        ("Phi-3-mini-4k", 12_582_912),
        ("glm-4-9b", 23_797_760),
        ("DeepSeek-V2-Lite", 179_497_472),
        ("Qwen3-30B-A3B", 498_253_824),
        ("gpt-oss-20b", 3_981_312),
        ("gemma-3n-E4B", 21_935_872),
    ],
)
def test_all_linear_trains_what_peft_trains(name: str, all_linear_r8: int) -> None:
    assert lora(name, "all-linear", 8) == all_linear_r8


@pytest.mark.parametrize(
    ("name", "by_peft", "left_out"),
    [
        # PEFT's count as above, less the linears on which its LoRA fails when it runs
        ("DeepSeek-V4-Flash", 36_669_952, 43 * 8 * (8192 + 4096)),
        ("Phi-3.5-MoE-instruct", 7_868_416, 32 * 8 * (16 + 4096)),
    ],
)
def test_all_linear_may_pass_over_what_lora_fails_on(
    name: str, by_peft: int, left_out: int
) -> None:
    model = CATALOG.architecture(name)
    names = resolve_target_modules(model, "all-linear", passes_over_refused=True)
    adapter = Adapter(r=8, lora_alpha=16, target_modules=names)
    assert trainable_parameters(model, Method.LORA, adapter) == by_peft - left_out


def test_the_towers_linears_count_only_where_it_is_trained() -> None:
    model = CATALOG.architecture("gemma-3-4b")
    adapter = Adapter(r=8, lora_alpha=8, target_modules=resolve_target_modules(model, ["q_proj"]))
    language = 34 * 8 * (2560 + 2048)
    tower = 27 * 8 * (1152 + 1152)
    assert trainable_parameters(model, Method.LORA, adapter) == language
    assert trainable_parameters(model, Method.LORA, adapter, trains_vision=True) == language + tower


def test_the_default_of_peft_depends_on_the_model_type() -> None:
    assert resolve_target_modules(CATALOG.architecture("gpt2"), None) == ("c_attn",)
    assert resolve_target_modules(CATALOG.architecture("Qwen2.5-7B"), None) == (
        "q_proj",
        "v_proj",
    )


def test_without_a_default_the_targets_must_be_stated() -> None:
    with pytest.raises(InvalidRequest) as raised:
        resolve_target_modules(CATALOG.architecture("Phi-3-mini-4k"), None)
    assert "qkv_proj" in str(raised.value.mistakes[0].how_to_fix)


def test_every_absent_target_is_a_mistake_with_near_names() -> None:
    with pytest.raises(InvalidRequest) as raised:
        resolve_target_modules(CATALOG.architecture("Qwen2.5-7B"), ["q_prj", "down_proj", "wqkv"])
    assert [mistake.value for mistake in raised.value.mistakes] == ["q_prj", "wqkv"]
    assert raised.value.mistakes[0].near[0] == "q_proj"
    assert "down_proj" in str(raised.value.mistakes[0].message)


def test_a_stacked_expert_is_named_as_the_reason() -> None:
    with pytest.raises(InvalidRequest) as raised:
        resolve_target_modules(CATALOG.architecture("gpt-oss-20b"), ["gate_up_proj"])
    assert raised.value.mistakes[0].message.code == "target_is_expert"


def test_half_of_a_fused_pair_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="both or neither"):
        resolve_target_modules(CATALOG.architecture("Mixtral-8x7B-v0.1"), ["w1", "q_proj"])


def test_dora_on_experts_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="DoRA"):
        lora("Mixtral-8x7B-v0.1", "all-linear", 8, use_dora=True)


def test_the_output_projection_of_mamba_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="out_proj"):
        resolve_target_modules(CATALOG.architecture("Nemotron-H-56B-Base-8K"), "all-linear")


def test_full_training_leaves_out_buffers_and_the_tower_unless_it_is_trained() -> None:
    deepseek = CATALOG.architecture("DeepSeek-V3")
    buffers = 58 * 256
    assert trainable_parameters(deepseek, Method.FULL) == deepseek.total_parameters - buffers
    gemma = CATALOG.architecture("gemma-3-4b")
    assert trainable_parameters(gemma, Method.FULL) == 4_300_079_472 - 419_816_304
    assert trainable_parameters(gemma, Method.FULL, trains_vision=True) == 4_300_079_472


def test_freeze_trains_the_last_layers() -> None:
    layer = 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096
    model = CATALOG.architecture("Llama-2-7b")
    assert trainable_parameters(model, Method.FREEZE, trained_layers=2) == 2 * layer


@pytest.mark.parametrize("trained_layers", [0, -1, 33])
def test_freeze_of_no_layer_or_too_many_is_refused(trained_layers: int) -> None:
    with pytest.raises(InvalidRequest):
        trainable_parameters(
            CATALOG.architecture("Llama-2-7b"), Method.FREEZE, trained_layers=trained_layers
        )


def test_an_adapter_method_without_adapter_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        trainable_parameters(CATALOG.architecture("gpt2"), Method.LORA)


@pytest.mark.parametrize("name", CATALOG.names())
def test_the_parts_sum_to_the_whole(name: str) -> None:
    counts = parameter_counts(CATALOG.architecture(name))
    parts = (
        counts.embeddings
        + counts.attention
        + counts.recurrence
        + counts.feed_forward
        + counts.experts
        + counts.routers
        + counts.norms
        + counts.head
        + counts.vision
        + counts.other
    )
    assert parts == counts.total
    assert counts.matmul_active <= counts.active + counts.embeddings


def test_a_dense_models_matmul_parameters_are_all_but_embeddings_biases_and_norms() -> None:
    biases = 28 * (3584 + 512 + 512)
    norms = 57 * 3584
    embeddings = 152064 * 3584
    counts = parameter_counts(CATALOG.architecture("Qwen2.5-7B"))
    assert counts.matmul_active == 7_615_616_512 - embeddings - biases - norms


@given(
    name=st.sampled_from(["TinyLlama-1.1B", "gpt2", "Mixtral-8x7B-v0.1", "DeepSeek-V2-Lite"]),
    r=st.integers(1, 256),
)
def test_trainables_grow_in_proportion_to_the_rank(name: str, r: int) -> None:
    assert lora(name, "all-linear", r) == r * lora(name, "all-linear", 1)


@given(
    name=st.sampled_from(["TinyLlama-1.1B", "Qwen2.5-7B", "phi-2", "gemma-2-2b"]),
    data=st.data(),
)
def test_targets_add_up(name: str, data: st.DataObject) -> None:
    leaves = list(dict.fromkeys(m.leaf for m in linear_modules(CATALOG.architecture(name))))
    chosen = data.draw(st.lists(st.sampled_from(leaves), min_size=1, unique=True))
    assert lora(name, chosen, 8) == sum(lora(name, [leaf], 8) for leaf in chosen)
