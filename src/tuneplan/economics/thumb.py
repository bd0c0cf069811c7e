"""Rules of thumb, computed exactly as people state them, each with why it is off.

They are shown beside our answer, never used in it.
"""

from __future__ import annotations

from typing import Final

from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.units import DAY_S, GB


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of thumb, worked out.

    Attributes:
        code: Stable name.
        statement: The rule as people say it.
        terms: Addend by name, in bytes.
        total_bytes: Their sum, or the rule's own total.
        why_different: What it leaves out, or takes too high.
    """

    code: str
    statement: Message
    terms: tuple[tuple[str, float], ...]
    total_bytes: float
    why_different: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One line of the folk table: memory range in bytes and suggested 80 GB cards by method."""

    parameters: float
    qlora_bytes: tuple[float, float]
    lora_bytes: tuple[float, float]
    full_bytes: tuple[float, float]
    qlora_cards: int
    lora_cards: int
    full_cards: int


# As the table is passed around; ranges are its own, a single figure is a range of one point.
TABLE: Final = (
    TableRow(
        parameters=7e9,
        qlora_bytes=(10 * GB, 10 * GB),
        lora_bytes=(20 * GB, 20 * GB),
        full_bytes=(140 * GB, 160 * GB),
        qlora_cards=1,
        lora_cards=1,
        full_cards=2,
    ),
    TableRow(
        parameters=13e9,
        qlora_bytes=(16 * GB, 16 * GB),
        lora_bytes=(35 * GB, 35 * GB),
        full_bytes=(260 * GB, 300 * GB),
        qlora_cards=1,
        lora_cards=1,
        full_cards=4,
    ),
    TableRow(
        parameters=70e9,
        qlora_bytes=(48 * GB, 48 * GB),
        lora_bytes=(160 * GB, 180 * GB),
        full_bytes=(1300 * GB, 1300 * GB),
        qlora_cards=1,
        lora_cards=4,
        full_cards=16,
    ),
)


def eight_bytes_per_parameter(parameters: float) -> Rule:
    """Weights 2 + gradients 2 + optimizer 4 bytes a parameter."""
    return _rule(
        "eight_bytes",
        message("eight_bytes", "8 bytes a parameter: weights 2, gradients 2, optimizer 4"),
        (("weights", 2.0), ("gradients", 2.0), ("optimizer", 4.0)),
        parameters,
        message(
            "eight_bytes_why",
            "4 bytes hold the two moments in 16 bits: AdamW in fp32 takes 8, fp32 masters 4 more; "
            "activations and logits come on top",
        ),
    )


def eighteen_bytes_per_parameter(parameters: float, *, overhead_factor: float = 1.25) -> Rule:
    """18 bytes a parameter times 1.25."""
    each = (("weights", 2.0), ("gradients", 4.0), ("optimizer", 12.0))
    terms = tuple((name, size * parameters) for name, size in each)
    return Rule(
        code="eighteen_bytes",
        statement=message("eighteen_bytes", "18 bytes a parameter, times 1.25"),
        terms=terms,
        total_bytes=18 * parameters * overhead_factor,
        why_different=message(
            "eighteen_bytes_why",
            "true of mixed precision with fp32 masters and fp32 gradients only; a quarter for "
            "activations knows neither batch nor length",
        ),
    )


def four_times_weights_for_optimizer(parameters: float) -> Rule:
    """fp16 weights and gradients, and four times the weights for the optimizer."""
    return _rule(
        "optimizer_four_times",
        message("optimizer_four_times", "fp16 weights, as much for gradients, four times for Adam"),
        (("weights", 2.0), ("gradients", 2.0), ("optimizer", 8.0)),
        parameters,
        message(
            "optimizer_four_times_why",
            "right for AdamW in fp32 without masters; activations, the optimizer's temporary and "
            "sharding are left out",
        ),
    )


def qlora_base(parameters: float) -> Rule:
    """0.6 bytes a parameter for a 4-bit base."""
    return _rule(
        "qlora_base",
        message("qlora_base", "0.6 bytes a parameter for the 4-bit base"),
        (("weights", 0.6),),
        parameters,
        message(
            "qlora_base_why",
            "embeddings, head and norms stay in 16 or 32 bits: much in a small model with a large "
            "vocabulary",
        ),
    )


def quantized_weights(parameters: float, *, bits: int) -> Rule:
    """Weights alone at a number of bits."""
    return _rule(
        "quantized_weights",
        message("quantized_weights", "{bits} bits a parameter", bits=bits),
        (("weights", bits / 8),),
        parameters,
        message("quantized_weights_why", "scales, and what stays unquantised, come on top"),
    )


def activations(*, batch: int, length: int, hidden_size: int, num_layers: int) -> Rule:
    """B x S x H x L x 2 bytes."""
    size = float(batch * length * hidden_size * num_layers * 2)
    return Rule(
        code="activations",
        statement=message(
            "activations_rule", "activations: batch x length x hidden size x layers x 2 bytes"
        ),
        terms=(("activations", size),),
        total_bytes=size,
        why_different=message(
            "activations_why",
            "one 16-bit tensor a layer is what full checkpointing keeps; without it a layer keeps "
            "fifteen or more, and logits are not in it",
        ),
    )


def eight_bytes_with_activations(
    parameters: float, *, batch: int, length: int, hidden_size: int, num_layers: int
) -> Rule:
    """8 bytes a parameter, and the activations' rule on top."""
    static = eight_bytes_per_parameter(parameters)
    kept = activations(batch=batch, length=length, hidden_size=hidden_size, num_layers=num_layers)
    return Rule(
        code="eight_bytes_with_activations",
        statement=message(
            "eight_bytes_with_activations",
            "8 bytes a parameter, plus batch x length x hidden size x layers x 2 bytes",
        ),
        terms=(*static.terms, *kept.terms),
        total_bytes=static.total_bytes + kept.total_bytes,
        why_different=message(
            "eight_bytes_with_activations_why",
            "moments in 16 bits and one tensor a layer: both are less than what is really held",
        ),
    )


def mixture_of_experts_lora(*, total_parameters: float, active_parameters: float) -> Rule:
    """The wrong rule that LoRA on a mixture of experts needs memory for the active part only.

    Shown because people repeat it; ``total_bytes`` is the top of the 20-30 GB they name for a
    235B-A22B model, scaled by active parameters.
    """
    size = 30 * GB * active_parameters / 22e9
    return Rule(
        code="mixture_of_experts_lora",
        statement=message("mixture_of_experts_lora", "LoRA on a 235B-A22B model needs 20 to 30 GB"),
        terms=(("active_part", size),),
        total_bytes=size,
        why_different=message(
            "mixture_of_experts_lora_why",
            "wrong: the frozen base must live somewhere. {bf16:.0f} GB in bf16, at best "
            "{four_bit:.0f} GB in 4 bits, and close to the bf16 figure where a loader leaves fused "
            "experts in bf16 (transformers 5 with bitsandbytes)",
            bf16=2 * total_parameters / GB,
            four_bit=0.5625 * total_parameters / GB,
        ),
    )


def training_flop(*, active_parameters: float, tokens: float) -> float:
    """Six operations a parameter and token."""
    return 6 * active_parameters * tokens


def petaflop_s_days(flop: float) -> float:
    """Operations in PFLOP/s-days."""
    return flop / (1e15 * DAY_S)


def table_row(parameters: float) -> TableRow:
    """The line of the folk table nearest in size (by ratio)."""
    return min(
        TABLE,
        key=lambda row: max(row.parameters / parameters, parameters / row.parameters),
    )


def _rule(
    code: str,
    statement: Message,
    bytes_each: tuple[tuple[str, float], ...],
    parameters: float,
    why_different: Message,
) -> Rule:
    terms = tuple((name, size * parameters) for name, size in bytes_each)
    return Rule(
        code=code,
        statement=statement,
        terms=terms,
        total_bytes=sum(size for _, size in terms),
        why_different=why_different,
    )
