"""Parts that most architectures share: weights, attention, feed-forward, layers into groups."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypeVar

from tuneplan.catalog.architectures.fields import Fields
from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import Layer, LayerGroup, ModelArchitecture
from tuneplan.spec.blocks import Attention, AttentionKind, FeedForward
from tuneplan.spec.weights import Weight, WeightKind

Kind = TypeVar("Kind", bound=Hashable)


def linear(name: str, out_features: int, in_features: int, *, bias: bool = False) -> Weight:
    """A linear layer, shape (out_features, in_features)."""
    return Weight(name=name, kind=WeightKind.LINEAR, shape=(out_features, in_features), bias=bias)


def norm(name: str, features: int, *, bias: bool = False, layer_norm: bool = False) -> Weight:
    """A normalisation with a learned weight: RMSNorm unless it has a bias or ``layer_norm``."""
    return Weight(
        name=name,
        kind=WeightKind.NORM,
        shape=(features,),
        bias=bias,
        layer_norm=layer_norm or bias,
    )


def embedding(name: str, rows: int, features: int) -> Weight:
    """A table of embeddings."""
    return Weight(name=name, kind=WeightKind.EMBEDDING, shape=(rows, features))


def router(name: str, num_experts: int, hidden_size: int, *, bias: bool = False) -> Weight:
    """The linear that scores the experts."""
    return Weight(name=name, kind=WeightKind.ROUTER, shape=(num_experts, hidden_size), bias=bias)


def experts(
    name: str, num_experts: int, out_features: int, in_features: int, *, bias: bool = False
) -> Weight:
    """Stacked linears of all routed experts (transformers 5 holds them so)."""
    shape = (num_experts, out_features, in_features)
    return Weight(name=name, kind=WeightKind.EXPERTS, shape=shape, bias=bias)


def convolution(name: str, *shape: int, bias: bool = False) -> Weight:
    """A convolution, shape (out_channels, in_channels, *kernel)."""
    return Weight(name=name, kind=WeightKind.CONV, shape=shape, bias=bias)


def bare(name: str, *shape: int, buffer: bool = False) -> Weight:
    """A parameter that belongs to no module with a name of its own."""
    return Weight(name=name, kind=WeightKind.OTHER, shape=shape, buffer=buffer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """How an attention layer is cut into heads."""

    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int

    @property
    def query_size(self) -> int:
        """Width of all queries."""
        return self.num_attention_heads * self.head_dim

    @property
    def key_value_size(self) -> int:
        """Width of all keys (and of all values)."""
        return self.num_key_value_heads * self.head_dim


def read_heads(fields: Fields, *, default_key_value_heads: int | None = None) -> Heads:
    """The head sizes under Llama's names; checks that they divide one another."""
    hidden_size = fields.count("hidden_size")
    num_attention_heads = fields.count("num_attention_heads")
    num_key_value_heads = fields.derived_count(
        "num_key_value_heads", otherwise=default_key_value_heads or num_attention_heads
    )
    fields.must_divide(
        "num_key_value_heads", num_key_value_heads, "num_attention_heads", num_attention_heads
    )
    if fields.config.get("head_dim") is None:
        fields.must_divide("num_attention_heads", num_attention_heads, "hidden_size", hidden_size)
    return Heads(
        hidden_size=hidden_size,
        num_attention_heads=num_attention_heads,
        num_key_value_heads=num_key_value_heads,
        head_dim=fields.derived_count(
            "head_dim", otherwise=max(1, hidden_size // num_attention_heads)
        ),
    )


def grouped_attention(
    heads: Heads,
    *,
    prefix: str = "self_attn",
    bias: bool = False,
    output_bias: bool = False,
    output_name: str = "o_proj",
    query_key_norm: Literal["no", "head", "all", "unlearned"] = "no",
    query_key_norm_names: tuple[str, str] = ("q_norm", "k_norm"),
    output_gate: bool = False,
    extra: tuple[Weight, ...] = (),
    **settings: Any,
) -> Attention:
    """Attention with separate q, k, v and output projections.

    ``query_key_norm``: ``head`` has one weight of ``head_dim`` for all heads, ``all`` one over the
    whole width, ``unlearned`` normalises without weights. With ``output_gate`` the query projection
    makes the gate as well. ``settings`` are further fields of ``Attention`` (kind, window, ...).
    """
    hidden_size, query_size, key_value_size = (
        heads.hidden_size,
        heads.query_size,
        heads.key_value_size,
    )
    weights = [
        linear(f"{prefix}.q_proj", query_size * (2 if output_gate else 1), hidden_size, bias=bias),
        linear(f"{prefix}.k_proj", key_value_size, hidden_size, bias=bias),
        linear(f"{prefix}.v_proj", key_value_size, hidden_size, bias=bias),
        linear(f"{prefix}.{output_name}", hidden_size, query_size, bias=output_bias),
    ]
    query_norm, key_norm = (f"{prefix}.{name}" for name in query_key_norm_names)
    if query_key_norm == "head":
        weights += [norm(query_norm, heads.head_dim), norm(key_norm, heads.head_dim)]
    elif query_key_norm == "all":
        weights += [norm(query_norm, query_size), norm(key_norm, key_value_size)]
    return Attention(
        weights=(*weights, *extra),
        num_attention_heads=heads.num_attention_heads,
        num_key_value_heads=heads.num_key_value_heads,
        head_dim=heads.head_dim,
        v_head_dim=heads.head_dim,
        query_key_norm=query_key_norm != "no",
        output_gate=output_gate,
        **settings,
    )


def fused_attention(
    heads: Heads,
    *,
    fused_name: str,
    output_name: str,
    bias: bool = False,
    output_bias: bool = False,
    extra: tuple[Weight, ...] = (),
    **settings: Any,
) -> Attention:
    """Attention whose q, k and v come from one projection."""
    fused_size = heads.query_size + 2 * heads.key_value_size
    return Attention(
        weights=(
            linear(fused_name, fused_size, heads.hidden_size, bias=bias),
            linear(output_name, heads.hidden_size, heads.query_size, bias=output_bias),
            *extra,
        ),
        num_attention_heads=heads.num_attention_heads,
        num_key_value_heads=heads.num_key_value_heads,
        head_dim=heads.head_dim,
        v_head_dim=heads.head_dim,
        **settings,
    )


def gated_feed_forward(
    hidden_size: int,
    intermediate_size: int,
    *,
    prefix: str = "mlp",
    activation: str = "silu",
    bias: bool = False,
    fused: bool = False,
) -> FeedForward:
    """``down(act(gate(x)) * up(x))``, gate and up in one matrix where ``fused``."""
    down = linear(f"{prefix}.down_proj", hidden_size, intermediate_size, bias=bias)
    if fused:
        inner = [linear(f"{prefix}.gate_up_proj", 2 * intermediate_size, hidden_size, bias=bias)]
    else:
        inner = [
            linear(f"{prefix}.{name}", intermediate_size, hidden_size, bias=bias)
            for name in ("gate_proj", "up_proj")
        ]
    return FeedForward(
        weights=(*inner, down),
        intermediate_size=intermediate_size,
        gated=True,
        activation=activation,
    )


def plain_feed_forward(
    hidden_size: int,
    intermediate_size: int,
    *,
    names: tuple[str, str],
    activation: str,
    bias: bool = True,
) -> FeedForward:
    """``down(act(up(x)))``; ``names`` are those of up and down."""
    up_name, down_name = names
    return FeedForward(
        weights=(
            linear(up_name, intermediate_size, hidden_size, bias=bias),
            linear(down_name, hidden_size, intermediate_size, bias=bias),
        ),
        intermediate_size=intermediate_size,
        gated=False,
        activation=activation,
    )


def group_layers(
    kinds: Sequence[Kind], make: Callable[[Kind], Layer], *, prefix: str = "model.layers"
) -> tuple[LayerGroup, ...]:
    """One group per kind of layer, in order of first appearance, with the positions of each."""
    positions: dict[Kind, list[int]] = {}
    for position, kind in enumerate(kinds):
        positions.setdefault(kind, []).append(position)
    return tuple(
        LayerGroup(layer=make(kind), count=len(where), prefix=prefix, positions=tuple(where))
        for kind, where in positions.items()
    )


def uniform_layers(layer: Layer, count: int, *, prefix: str) -> tuple[LayerGroup, ...]:
    """One group of ``count`` equal layers."""
    return (LayerGroup(layer=layer, count=count, prefix=prefix, positions=tuple(range(count))),)


def sliding_kinds(fields: Fields, num_layers: int, *, pattern: int | None = None) -> list[bool]:
    """For each layer whether its attention slides.

    ``layer_types`` decides where it is stated (transformers 4.53 and later write it); otherwise
    every layer slides except each ``pattern``-th, or all where there is no pattern.
    """
    stated = fields.words("layer_types", length=num_layers)
    if stated is not None:
        return [word == "sliding_attention" for word in stated]
    if pattern is None:
        return [True] * num_layers
    return [bool((position + 1) % pattern) for position in range(num_layers)]


def window_settings(*, slides: bool, window: int | None) -> dict[str, Any]:
    """``kind`` and ``window`` of ``Attention``."""
    if slides and window is not None:
        return {"kind": AttentionKind.SLIDING, "window": window}
    return {"kind": AttentionKind.FULL, "window": None}


def language_model(
    fields: Fields,
    *,
    model_type: str,
    hidden_size: int,
    groups: tuple[LayerGroup, ...],
    root: str = "model",
    final_norm: Weight | None = None,
    tied_by_default: bool = False,
    head_bias: bool = False,
    token_embedding: str | None = None,
    more_outer: tuple[Weight, ...] = (),
    **settings: Any,
) -> ModelArchitecture:
    """A decoder with Llama's outer names: ``embed_tokens``, ``norm``, ``lm_head``.

    ``tied_by_default`` is ``tie_word_embeddings`` of the configuration class; ``settings`` are
    further fields of ``ModelArchitecture``.
    """
    vocab_size = fields.count("vocab_size")
    tied = fields.flag("tie_word_embeddings", default=tied_by_default)
    return ModelArchitecture(
        name=model_type,
        model_type=model_type,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        embeddings=(embedding(token_embedding or f"{root}.embed_tokens", vocab_size, hidden_size),),
        groups=groups,
        outer=(final_norm or norm(f"{root}.norm", hidden_size), *more_outer),
        head=None if tied else linear("lm_head", vocab_size, hidden_size, bias=head_bias),
        max_position_embeddings=fields.count("max_position_embeddings", default=2048),
        **settings,
    )


_GATED_NORMS: Final = ("linear_attn.norm", "mixer.norm", "self_attn.norm")  # cast back first


def with_fp32_scales(architecture: ModelArchitecture) -> ModelArchitecture:
    """The same model, its norms applying their weight in fp32."""

    def scaled(weights: tuple[Weight, ...]) -> tuple[Weight, ...]:
        return tuple(
            replace(weight, fp32_scale=True)
            if weight.kind is WeightKind.NORM and weight.name not in _GATED_NORMS
            else weight
            for weight in weights
        )

    def layer_of(layer: Layer) -> Layer:
        mixer = layer.mixer
        if mixer is not None:
            mixer = replace(mixer, weights=scaled(mixer.weights))
        return replace(layer, norms=scaled(layer.norms), mixer=mixer, extra=scaled(layer.extra))

    return replace(
        architecture,
        groups=tuple(replace(group, layer=layer_of(group.layer)) for group in architecture.groups),
        outer=scaled(architecture.outer),
    )


def with_joined_rotary(architecture: ModelArchitecture) -> ModelArchitecture:
    """The same model, its attention joining turned and other features of queries."""

    def group_of(group: LayerGroup) -> LayerGroup:
        mixer = group.layer.mixer
        if not (isinstance(mixer, Attention) and mixer.rotary):
            return group
        return replace(group, layer=replace(group.layer, mixer=replace(mixer, joins_rotary=True)))

    return replace(architecture, groups=tuple(map(group_of, architecture.groups)))
