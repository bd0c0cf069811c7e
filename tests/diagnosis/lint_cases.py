"""Jobs that make each mistake of the lint, and jobs that do not; its pages show what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from settings import TINY_LLAMA, adapter, recipe
from tuneplan.catalog.accelerators import load_accelerators
from tuneplan.catalog.models import load_models
from tuneplan.diagnosis.finding import Case
from tuneplan.diagnosis.outcome import Outcome, Variant
from tuneplan.language import message
from tuneplan.spec.data import TokenStatistics
from tuneplan.spec.parallelism import Parallelism, Strategy
from tuneplan.spec.recipe import Checkpointing, DType, Method
from tuneplan.spec.stated import Limits, StatedJob
from tuneplan.units import GIB, HOUR_S

CHIPS = load_accelerators()
A100 = CHIPS.resolve("A100 SXM 80GB").accelerator
T4 = CHIPS.resolve("T4").accelerator
CHATS = TokenStatistics(num_samples=10_000, total_tokens=6_000_000, source="stated")

# A sound job: nothing stands out.
NOW = Outcome(
    peak_bytes=40 * GIB,
    num_trained=40_000_000,
    needed_bytes=42 * GIB,
    capacity_bytes=79 * GIB,
    probability_fits=1.0,
    fits=True,
    steps=1_000,
    train_s=3.0 * HOUR_S,
    eval_s=0.05 * HOUR_S,
    checkpoint_s=0.05 * HOUR_S,
    total_s=3.2 * HOUR_S,
    step_s=10.0,
    positions_per_s=5_000.0,
    accelerator_hours=3.2,
    cost=Decimal("6.40"),
    currency="USD",
)
SOUND = Case(
    job=StatedJob(model="7B"),
    model=TINY_LLAMA,
    recipe=recipe(
        adapter=adapter(), max_length=2048, packing=True,
        gradient_checkpointing=Checkpointing.NONE,
    ),
    parallelism=Parallelism(),
    accelerator=A100,
    num_nodes=1,
    statistics=CHATS,
    now=NOW,
    lengths={0.5: 500.0, 0.95: 1_500.0, 0.99: 1_900.0, 1.0: 2_500.0},
    samples_per_row=3.4,
    eval_steps=200,
    save_steps=200,
    flop=0.4 * 3.0 * HOUR_S * 312e12,
    peak_flop_per_s=312e12,
)  # fmt: skip


def variant(name: str, settings: Mapping[str, Any] | None = None, **changes: Any) -> Variant:
    return Variant(
        name=name,
        change=message("change", "a change"),
        settings=dict(settings or {}),
        outcome=replace(NOW, **changes),
    )


def case(**changes: Any) -> Case:
    variants = {one.name: one for one in changes.pop("variants", ())}
    changed = {"recipe": replace(SOUND.recipe, **changes.pop("of_recipe", {}))} | changes
    return replace(SOUND, variants=variants, **changed)


def limits(**changes: Any) -> StatedJob:
    return replace(SOUND.job, limits=Limits(**changes))


PADDED = {"packing": False}
SHORTER = variant("shorter_context", {"training.max_length": 1024}, peak_bytes=30 * GIB)
LONG_LENGTHS = {0.5: 200.0, 0.95: 700.0, 0.99: 1_000.0, 1.0: 1_500.0}
ON_8 = Parallelism(strategy=Strategy.DDP, data=8)
FASTER = variant("no_checkpointing", needed_bytes=50 * GIB, positions_per_s=6_500.0)
ONE_CARD = variant(
    "one_card", {"hardware.accelerators_per_node": 1}, total_s=20 * HOUR_S, accelerator_hours=20.0
)
FEWER = variant(
    "fewer_cards",
    {"hardware.accelerators_per_node": 2},
    total_s=11 * HOUR_S,
    accelerator_hours=22.0,
)
EIGHT = replace(NOW, total_s=3.2 * HOUR_S, accelerator_hours=25.6)
ZERO3 = variant("zero3", {"parallelism.strategy": "zero3"}, peak_bytes=20 * GIB)
LORA = variant("lora", {"method": "lora"}, peak_bytes=20 * GIB, num_trained=40_000_000)
FULL = {"method": Method.FULL, "adapter": None}
BILLION = replace(CHATS, num_samples=1_000_000, total_tokens=1_000_000_000)

LARGE = load_models().resolve("Llama-2-70B").architecture

FIRES: Mapping[str, list[Case]] = {
    "samples_as_tokens": [
        case(statistics=replace(CHATS, total_tokens=10_000)),  # one token a sample
        # 10,000 samples in rows of 8 x 4 make 313 steps an epoch; packed rows hold 3.4 each
        case(
            max_steps=938,
            of_recipe={"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4},
        ),
    ],
    "peak_throughput": [
        case(job=limits(deadline_s=2 * HOUR_S)),  # 1.2 h at the peak, 3.2 h in truth
        case(job=limits(budget=Decimal(4))),  # 2.40 USD at the peak, 6.40 USD in truth
    ],
    "evaluation_forgotten": [
        case(now=replace(NOW, eval_s=0.9 * HOUR_S, total_s=4.0 * HOUR_S)),
        case(now=replace(NOW, checkpoint_s=0.9 * HOUR_S, total_s=4.0 * HOUR_S)),
        case(job=limits(deadline_s=3.1 * HOUR_S)),  # training alone takes 3.0 h
    ],
    "context_beyond_data": [case(lengths=LONG_LENGTHS, variants=[SHORTER])],
    "checkpointing_with_room": [
        case(of_recipe={"gradient_checkpointing": Checkpointing.FULL}, variants=[FASTER]),
    ],
    "more_cards": [case(parallelism=ON_8, now=EIGHT, variants=[FEWER])],
    "no_packing": [
        case(of_recipe=PADDED, variants=[variant("packing", total_s=2.0 * HOUR_S)]),
    ],
    "no_headroom": [
        case(now=replace(NOW, needed_bytes=75 * GIB, probability_fits=0.7, fits=False)),
        case(now=replace(NOW, needed_bytes=70 * GIB)),
    ],
    "bf16_not_native": [case(accelerator=T4, of_recipe={"compute_dtype": DType.BFLOAT16})],
    "zero2_splits_no_weights": [
        # adapters: what ZeRO-2 splits is 0.3 of 40 GiB
        case(
            parallelism=replace(ON_8, strategy=Strategy.ZERO2),
            split_bytes=0.3 * GIB,
            weights_bytes=30 * GIB,
            variants=[ZERO3],
        ),
        case(
            parallelism=replace(ON_8, strategy=Strategy.ZERO1),
            split_bytes=20 * GIB,
            weights_bytes=30 * GIB,
            now=replace(NOW, needed_bytes=90 * GIB, fits=False, does_not_fit=True),
        ),
    ],
    "full_or_adapter": [
        case(of_recipe=FULL, now=replace(NOW, num_trained=7_000_000_000), variants=[LORA]),
        case(statistics=BILLION),  # 1e9 tokens against 2 x 40e6
    ],
    "single_card_first": [case(parallelism=ON_8, now=EIGHT, variants=[ONE_CARD])],
    "better_data_first": [
        case(num_duplicates=600),  # of 10,000: 6 %
        case(model=LARGE, statistics=replace(CHATS, num_samples=1_200, total_tokens=720_000)),
    ],
}
SILENT: Mapping[str, list[Case]] = {
    "samples_as_tokens": [
        SOUND,
        case(max_steps=276, of_recipe={"per_device_train_batch_size": 8,
                                       "gradient_accumulation_steps": 4}),
        case(statistics=None),
        case(mean_tokens_known=False, statistics=replace(CHATS, total_tokens=10_000)),
    ],
    "peak_throughput": [
        case(job=limits(deadline_s=4 * HOUR_S)),
        case(job=limits(deadline_s=1 * HOUR_S)),  # not even the peak keeps it
        case(job=limits(budget=Decimal(7))),
        case(job=limits(budget=Decimal(4), budget_currency="TWD")),
    ],
    "evaluation_forgotten": [SOUND, case(job=limits(deadline_s=2.9 * HOUR_S))],
    "context_beyond_data": [
        case(lengths=LONG_LENGTHS),
        case(variants=[SHORTER]),  # 1,900 tokens are not far below 2,048
        case(lengths=LONG_LENGTHS, variants=[SHORTER], mean_tokens_known=False),
    ],
    "checkpointing_with_room": [
        case(variants=[FASTER]),  # it is off
        case(
            of_recipe={"gradient_checkpointing": Checkpointing.FULL},
            variants=[variant("no_checkpointing", needed_bytes=70 * GIB, positions_per_s=6_500.0)],
        ),
        case(
            of_recipe={"gradient_checkpointing": Checkpointing.FULL},
            variants=[variant("no_checkpointing", positions_per_s=5_050.0)],
        ),
    ],
    "more_cards": [
        case(variants=[FEWER]),
        case(parallelism=ON_8, now=replace(EIGHT, accelerator_hours=22.0), variants=[FEWER]),
        case(parallelism=ON_8, now=EIGHT),
    ],
    "no_packing": [
        case(variants=[variant("packing", total_s=2.0 * HOUR_S)]),  # packed already
        case(of_recipe=PADDED, variants=[variant("packing", total_s=3.0 * HOUR_S)]),
        case(of_recipe=PADDED),
        case(
            of_recipe=PADDED,
            variants=[variant("packing", total_s=2.0 * HOUR_S, does_not_fit=True)],
        ),
    ],
    "no_headroom": [
        SOUND,
        case(now=replace(NOW, needed_bytes=90 * GIB, fits=False, does_not_fit=True)),
        case(now=replace(NOW, needed_bytes=None, capacity_bytes=None)),
        case(now=replace(NOW, needed_bytes=70 * GIB), job=limits(headroom_fraction=0.1)),
    ],
    "bf16_not_native": [
        SOUND,
        case(accelerator=T4, of_recipe={"compute_dtype": DType.FLOAT16}),
        case(accelerator=None),
    ],
    "zero2_splits_no_weights": [
        case(
            parallelism=replace(ON_8, strategy=Strategy.ZERO2),
            split_bytes=15 * GIB,
            variants=[ZERO3],
        ),
        case(parallelism=replace(ON_8, strategy=Strategy.ZERO3)),
        case(parallelism=ON_8),
    ],
    "full_or_adapter": [
        SOUND,
        case(of_recipe=FULL, statistics=BILLION, variants=[LORA]),
        case(statistics=None, of_recipe=FULL, variants=[LORA]),
    ],
    "better_data_first": [
        case(num_duplicates=60),
        case(model=LARGE),
        case(statistics=replace(CHATS, num_samples=1_200, total_tokens=720_000)),
        case(model=LARGE, statistics=None, num_duplicates=600),
    ],
    "single_card_first": [
        case(variants=[ONE_CARD]),
        case(parallelism=ON_8, now=EIGHT, job=limits(deadline_s=10 * HOUR_S), variants=[ONE_CARD]),
        case(
            parallelism=ON_8,
            now=EIGHT,
            variants=[replace(ONE_CARD, outcome=replace(ONE_CARD.outcome, needed_bytes=75 * GIB))],
        ),
    ],
}  # fmt: skip
