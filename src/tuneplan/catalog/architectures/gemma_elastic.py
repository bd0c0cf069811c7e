"""Gemma 3n and Gemma 4: shared keys and values, inputs per layer, experts beside a dense block.

Names as in transformers 5.24.0, ``modeling_gemma3n.py`` and ``modeling_gemma4.py``.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from tuneplan.catalog.architectures.fields import Fields
from tuneplan.catalog.architectures.parts import (
    Heads,
    bare,
    embedding,
    experts,
    gated_feed_forward,
    group_layers,
    language_model,
    linear,
    norm,
    sliding_kinds,
    window_settings,
)
from tuneplan.errors import UnknownArchitecture
from tuneplan.language import message, phrase
from tuneplan.spec.architecture import Layer, LayerGroup, ModelArchitecture, VisionTower
from tuneplan.spec.blocks import Attention, FeedForward, MixtureOfExperts
from tuneplan.spec.weights import Weight

_ACTIVATION = "gelu_pytorch_tanh"
_FOUR_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
_VISION_ROOT = "model.vision_tower"
_SPARSE_LAYERS = 10


class _Sharing(StrEnum):
    """What a layer does with keys and values."""

    OWN = "own"
    LENDS = "lends"  # its own, which later layers read too
    BORROWS = "borrows"  # those of an earlier layer


def gemma3n_text(fields: Fields) -> ModelArchitecture:
    """Gemma 3n, language model: AltUp (four streams), LAuReL, embeddings for each layer."""
    num_layers = fields.count("num_hidden_layers", default=35)
    hidden_size = fields.count("hidden_size")
    heads = _read_heads(fields, hidden_size, num_heads=8, key_value_heads=2)
    first_shared = num_layers - (fields.optional_count("num_kv_shared_layers") or 0)
    slides = sliding_kinds(fields, num_layers, pattern=5)
    window = fields.optional_count("sliding_window")
    sparse = _sparse_layers(fields, num_layers)
    feed_forward = gated_feed_forward(
        hidden_size, _one_size(fields, "intermediate_size"), activation=_ACTIVATION
    )
    per_layer = fields.count("hidden_size_per_layer_input", default=256)
    streams = fields.count("altup_num_inputs", default=4)
    extra = _altup(hidden_size, streams) + _laurel(fields, hidden_size)

    def make(kind: tuple[bool, _Sharing, bool]) -> Layer:
        is_sliding, sharing, is_sparse = kind
        return Layer(
            class_name="Gemma3nTextDecoderLayer",
            mixer=_attention(heads, sharing=sharing, slides=is_sliding, window=window),
            feed_forward=replace(feed_forward, sparse=is_sparse),
            norms=tuple(norm(name, hidden_size) for name in _FOUR_NORMS),
            extra=(*extra, *_per_layer_input(hidden_size, per_layer)),
            streams=streams,
        )

    sharing = _sharing(slides, first_shared)
    kinds = [(slides[n], sharing[n], sparse[n]) for n in range(num_layers)]
    model = language_model(
        fields,
        model_type="gemma3n_text",
        hidden_size=hidden_size,
        groups=group_layers(kinds, make),
        tied_by_default=True,
        logit_softcap=fields.fraction("final_logit_softcapping", default=30.0) > 0,
    )
    projections = tuple(
        linear(f"model.{name}.{stream}", hidden_size, hidden_size)
        for name in ("altup_projections", "altup_unembed_projections")
        for stream in range(streams - 1)
    )
    model = _with_layer_inputs(model, fields, root="model", num_layers=num_layers, size=per_layer)
    return replace(model, outer=(*model.outer, *projections))


def _sparse_layers(fields: Fields, num_layers: int) -> list[bool]:
    """Layers whose gate is cut to its largest values (``Gemma3nTextMLP._gaussian_topk``).

    By default the first ten of a model with more layers than that
    (``Gemma3nTextConfig.__post_init__``).
    """
    stated = fields.config.get("activation_sparsity_pattern")
    if isinstance(stated, list) and len(stated) == num_layers:
        return [bool(value) for value in stated]
    if isinstance(stated, int | float):
        return [bool(stated)] * num_layers
    first = _SPARSE_LAYERS if num_layers > _SPARSE_LAYERS else 0
    return [position < first for position in range(num_layers)]


def _sharing(slides: list[bool], first_shared: int) -> list[_Sharing]:
    """What each layer does with keys and values (``kv_sharing_modes`` of the configuration).

    Layers from ``first_shared`` on borrow those of the last layer of their kind before it.
    """
    if first_shared >= len(slides):
        return [_Sharing.OWN] * len(slides)
    own = range(first_shared)
    lenders = {max((n for n in own if slides[n] == kind), default=-1) for kind in set(slides)}
    return [
        _Sharing.BORROWS if n >= first_shared else _Sharing.LENDS if n in lenders else _Sharing.OWN
        for n in range(len(slides))
    ]


def _altup(hidden_size: int, streams: int) -> tuple[Weight, ...]:
    """Alternating updates (Baykal et al. 2023): predicts and corrects the idle streams."""
    return (
        bare("altup.correct_output_scale", hidden_size),
        linear("altup.correction_coefs", streams, streams),
        linear("altup.prediction_coefs", streams * streams, streams),
        linear("altup.modality_router", streams, hidden_size),
        norm("altup.router_norm", hidden_size),
    )


def _laurel(fields: Fields, hidden_size: int) -> tuple[Weight, ...]:
    """Learned augmented residual: a low-rank path beside the attention."""
    rank = fields.count("laurel_rank", default=64)
    return (
        linear("laurel.linear_left", rank, hidden_size),
        linear("laurel.linear_right", hidden_size, rank),
        norm("laurel.post_laurel_norm", hidden_size),
    )


def gemma4(fields: Fields) -> ModelArchitecture:
    """Gemma 4 with its image tower; variants with an audio encoder are not described."""
    if fields.config.get("audio_config"):
        raise UnknownArchitecture(
            message(
                "audio_not_described",
                "this gemma4 model has an audio encoder, whose layers are not described here; "
                "give its text_config alone (model_type gemma4_text) to plan its language model",
            )
        )
    text = fields.section("text_config")
    text.inherit("tie_word_embeddings")
    model = _gemma4(text, root="model.language_model")
    if fields.config.get("vision_config") is None:
        return model
    return replace(model, vision=_gemma4_tower(fields.section("vision_config"), model.hidden_size))


def gemma4_text(fields: Fields) -> ModelArchitecture:
    """The language model of Gemma 4 alone."""
    return _gemma4(fields, root="model")


def _gemma4(fields: Fields, *, root: str) -> ModelArchitecture:
    num_layers = fields.count("num_hidden_layers")
    hidden_size = fields.count("hidden_size")
    local = _read_heads(fields, hidden_size, num_heads=8, key_value_heads=4)
    same = fields.flag("attention_k_eq_v", default=False)
    wide = replace(
        local,
        head_dim=fields.count("global_head_dim", default=512),
        num_key_value_heads=fields.derived_count(
            "num_global_key_value_heads", otherwise=local.num_key_value_heads
        )
        if same
        else local.num_key_value_heads,
    )
    first_shared = num_layers - (fields.optional_count("num_kv_shared_layers") or 0)
    double = fields.flag("use_double_wide_mlp", default=False)
    intermediate_size = fields.count("intermediate_size")
    per_layer = fields.optional_count("hidden_size_per_layer_input")
    has_experts = fields.flag("enable_moe_block", default=False)
    window = fields.optional_count("sliding_window")

    def make(kind: tuple[bool, _Sharing]) -> Layer:
        slides, sharing = kind
        wide_block = double and sharing is _Sharing.BORROWS
        dense = gated_feed_forward(
            hidden_size,
            intermediate_size * (2 if wide_block else 1),
            activation=fields.text("hidden_activation", default=_ACTIVATION),
        )
        norms: tuple[str, ...] = _FOUR_NORMS
        if has_experts:
            norms += tuple(
                f"{name}_layernorm_{number}"
                for name, number in (
                    ("post_feedforward", 1),
                    ("post_feedforward", 2),
                    ("pre_feedforward", 2),
                )
            )
        return Layer(
            class_name="Gemma4TextDecoderLayer",
            mixer=_attention(
                local if slides else wide,
                sharing=sharing,
                slides=slides,
                window=window,
                keys_are_values=same and not slides,
            ),
            feed_forward=_gemma4_experts(fields, hidden_size, dense) if has_experts else dense,
            norms=tuple(norm(name, hidden_size) for name in norms),
            extra=_per_layer_input(hidden_size, per_layer),
        )

    slides = sliding_kinds(fields, num_layers, pattern=6)
    model = language_model(
        fields,
        model_type="gemma4" if root != "model" else "gemma4_text",
        hidden_size=hidden_size,
        groups=group_layers(
            list(zip(slides, _sharing(slides, first_shared), strict=True)),
            make,
            prefix=f"{root}.layers",
        ),
        root=root,
        tied_by_default=True,
        logit_softcap=fields.fraction("final_logit_softcapping", default=0.0) > 0,
    )
    if per_layer is None:
        return model
    return _with_layer_inputs(model, fields, root=root, num_layers=num_layers, size=per_layer)


def _gemma4_experts(fields: Fields, hidden_size: int, dense: FeedForward) -> MixtureOfExperts:
    """Routed experts beside the dense block, which is described as the shared expert."""
    num_experts = fields.count("num_experts")
    per_token = fields.count("top_k_experts")
    fields.must_not_exceed("top_k_experts", per_token, "num_experts", num_experts)
    size = fields.count("moe_intermediate_size")
    return MixtureOfExperts(
        weights=(
            linear("router.proj", num_experts, hidden_size),
            bare("router.scale", hidden_size),
            bare("router.per_expert_scale", num_experts),
            experts("experts.gate_up_proj", num_experts, 2 * size, hidden_size),
            experts("experts.down_proj", num_experts, hidden_size, size),
        ),
        num_experts=num_experts,
        num_experts_per_tok=per_token,
        intermediate_size=size,
        gated=True,
        activation=dense.activation,
        shared=dense,
    )


def _gemma4_tower(vision: Fields, language_size: int) -> VisionTower:
    hidden_size = vision.count("hidden_size", default=768)
    num_layers = vision.count("num_hidden_layers", default=16)
    patch = vision.count("patch_size", default=16)
    heads = Heads(
        hidden_size=hidden_size,
        num_attention_heads=vision.count("num_attention_heads", default=12),
        num_key_value_heads=vision.count("num_key_value_heads", default=12),
        head_dim=vision.count("head_dim", default=64),
    )
    attention = _attention(heads, sharing=_Sharing.OWN, slides=False, window=None, suffix=".linear")
    dense = gated_feed_forward(
        hidden_size, vision.count("intermediate_size", default=3072), activation=_ACTIVATION
    )
    layer = Layer(
        class_name="Gemma4VisionEncoderLayer",
        mixer=attention,
        feed_forward=replace(
            dense,
            weights=tuple(replace(w, name=f"{w.name}.linear") for w in dense.weights),
        ),
        norms=tuple(norm(name, hidden_size) for name in _FOUR_NORMS),
    )
    rows = vision.count("position_embedding_size", default=10240)
    return VisionTower(
        class_name="Gemma4VisionModel",
        hidden_size=hidden_size,
        groups=(
            LayerGroup(
                layer=layer,
                count=num_layers,
                prefix=f"{_VISION_ROOT}.encoder.layers",
                positions=tuple(range(num_layers)),
            ),
        ),
        outer=(
            bare(f"{_VISION_ROOT}.patch_embedder.position_embedding_table", 2, rows, hidden_size),
            linear(f"{_VISION_ROOT}.patch_embedder.input_proj", hidden_size, 3 * patch * patch),
            linear("model.embed_vision.embedding_projection", language_size, hidden_size),
        ),
        patch_size=patch,
        merge_size=vision.count("pooling_kernel_size", default=3),
    )


def _read_heads(fields: Fields, hidden_size: int, *, num_heads: int, key_value_heads: int) -> Heads:
    heads = Heads(
        hidden_size=hidden_size,
        num_attention_heads=fields.count("num_attention_heads", default=num_heads),
        num_key_value_heads=fields.count("num_key_value_heads", default=key_value_heads),
        head_dim=fields.count("head_dim", default=256),
    )
    fields.must_divide(
        "num_key_value_heads",
        heads.num_key_value_heads,
        "num_attention_heads",
        heads.num_attention_heads,
    )
    return heads


def _attention(
    heads: Heads,
    *,
    sharing: _Sharing,
    slides: bool,
    window: int | None,
    keys_are_values: bool = False,
    suffix: str = "",
) -> Attention:
    """Attention that may reuse an earlier layer's keys and values, or its keys as values."""
    hidden_size, query_size, key_size = heads.hidden_size, heads.query_size, heads.key_value_size
    projections = [("q_proj", query_size)]
    norms = ["q_norm"]
    if sharing is not _Sharing.BORROWS:
        projections += (
            [("k_proj", key_size)]
            if keys_are_values
            else [
                ("k_proj", key_size),
                ("v_proj", key_size),
            ]
        )
        norms.append("k_norm")
    return Attention(
        weights=(
            *(linear(f"self_attn.{n}{suffix}", size, hidden_size) for n, size in projections),
            linear(f"self_attn.o_proj{suffix}", hidden_size, query_size),
            *(norm(f"self_attn.{name}", heads.head_dim) for name in norms),
        ),
        num_attention_heads=heads.num_attention_heads,
        num_key_value_heads=heads.num_key_value_heads,
        head_dim=heads.head_dim,
        v_head_dim=heads.head_dim,
        query_key_norm=True,
        value_norm=True,
        lends_key_values=sharing is _Sharing.LENDS,
        borrows_key_values=sharing is _Sharing.BORROWS,
        **window_settings(slides=slides, window=window),
    )


def _per_layer_input(hidden_size: int, size: int | None) -> tuple[Weight, ...]:
    if size is None:
        return ()
    return (
        linear("per_layer_input_gate", size, hidden_size),
        linear("per_layer_projection", hidden_size, size),
        norm("post_per_layer_input_norm", hidden_size),
    )


def _with_layer_inputs(
    model: ModelArchitecture, fields: Fields, *, root: str, num_layers: int, size: int
) -> ModelArchitecture:
    """The model with a second embedding table that holds one vector per token and layer."""
    rows = fields.count("vocab_size_per_layer_input", default=262144)
    width = num_layers * size
    return replace(
        model,
        embeddings=(*model.embeddings, embedding(f"{root}.embed_tokens_per_layer", rows, width)),
        outer=(
            linear(f"{root}.per_layer_model_projection", width, model.hidden_size),
            norm(f"{root}.per_layer_projection_norm", size),
            *model.outer,
        ),
    )


def _one_size(fields: Fields, name: str) -> int:
    """A size that may be written once per layer, as long as all are equal."""
    stated = fields.config.get(name)
    if isinstance(stated, list) and stated:
        if len(set(stated)) > 1:
            fields.impossible(name, stated, phrase("the same for every layer"))
        fields.config = {**fields.config, name: stated[0]}
    return fields.count(name, default=16384)
