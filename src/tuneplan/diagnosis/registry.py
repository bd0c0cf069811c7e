"""Every rule of the lint with what people need to know of it; the pages of the docs are made here.

A rule is a function of a case, an identifier that never changes, and words: what it looks for, why
that matters, when it speaks, what to do, and when to silence it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tuneplan.diagnosis.advice import full_or_adapter, single_card_first
from tuneplan.diagnosis.data_first import better_data_first
from tuneplan.diagnosis.data_mistakes import context_beyond_data, no_packing, samples_as_tokens
from tuneplan.diagnosis.finding import Case, Finding
from tuneplan.diagnosis.memory_mistakes import (
    bf16_not_native,
    checkpointing_with_room,
    no_headroom,
    zero2_splits_no_weights,
)
from tuneplan.diagnosis.time_mistakes import evaluation_forgotten, more_cards, peak_throughput
from tuneplan.frozen import dataclass

Check = Callable[[Case], Iterator[Finding]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LintRule:
    """A rule.

    Attributes:
        name: Its identifier.
        check: What it finds in a case.
        needs: What must be known for it to say anything: ``accelerator``, ``data``, ``run`` (how
            long it takes, for which both are needed) or nothing.
        compares: Whether it sets the job beside another configuration that is estimated for it,
            which ``check`` and ``report`` do and ``estimate`` and ``plan`` do not.
        looks_for: On a line.
        why: Why it matters.
        speaks: When it does.
        remedy: What to do.
        silence: When it may be silenced with a good conscience.
    """

    name: str
    check: Check
    needs: str | None
    compares: bool
    looks_for: str
    why: str
    speaks: str
    remedy: str
    silence: str


_ALL: Final = (
    LintRule(
        name="bf16_not_native",
        check=bf16_not_native,
        needs="accelerator",
        compares=False,
        looks_for="bf16 on a chip without bf16 arithmetic",
        why="Frameworks refuse bf16 there, or PyTorch emulates it many times slower: the run "
        "fails or takes days.",
        speaks="The compute type is bf16 and the chip's compute capability has none (an error).",
        remedy="`training.precision: fp16`, or a chip that has bf16.",
        silence="Hardly ever: it is right about the chip.",
    ),
    LintRule(
        name="no_headroom",
        check=no_headroom,
        needs="accelerator",
        compares=False,
        looks_for="less of the card free than `limits.headroom`",
        why="A longer batch, fragmentation or another process ends a run that fitted on paper.",
        speaks="The job fits, and less than `limits.headroom` (20% where nothing is said) of the "
        "card stays free.",
        remedy="A change that gives memory back (`tuneplan check` lists those that do), or a "
        "larger card.",
        silence="The job was measured on this card with these data, or `limits.headroom` is not "
        "what you want: set it.",
    ),
    LintRule(
        name="zero2_splits_no_weights",
        check=zero2_splits_no_weights,
        needs=None,
        compares=False,
        looks_for="ZeRO-1 or ZeRO-2 where the weights are what fills the card",
        why="ZeRO-1 splits optimizer states, ZeRO-2 gradients too; the weights stay whole on "
        "every card, so more cards do not make a large frozen base fit.",
        speaks="Several cards, and either the head-room is not kept or the layout splits less "
        "than 15% of the peak.",
        remedy="ZeRO-3 or FSDP splits the weights; plain DDP does as well where nothing large "
        "is split.",
        silence="The layout is given by the cluster and the job fits.",
    ),
    LintRule(
        name="samples_as_tokens",
        check=samples_as_tokens,
        needs="data",
        compares=False,
        looks_for="tokens that are a number of samples; `max_steps` counted in samples although "
        "rows are packed",
        why="The planning unit is the token: a hundredfold error in it is a hundredfold error in "
        "hours and money.",
        speaks="Less than 4 tokens a sample on average; or `max_steps` is samples / rows of a "
        "step while packed rows hold 1.5 samples or more.",
        remedy="Measure the data (`tuneplan data profile`); write `num_train_epochs` instead of "
        "`max_steps`.",
        silence="The samples really are single words.",
    ),
    LintRule(
        name="peak_throughput",
        check=peak_throughput,
        needs="run",
        compares=False,
        looks_for="a deadline or budget that only the datasheet's peak would keep",
        why="Nobody sustains the datasheet's rate over a run; a plan made with it is late or too "
        "dear by a factor.",
        speaks="The run at peak would keep `limits.deadline` or `limits.budget`, the sustained "
        "one does not.",
        remedy="Plan with the sustained rate that the answer names.",
        silence="The limit is a wish that everybody knows to be one.",
    ),
    LintRule(
        name="evaluation_forgotten",
        check=evaluation_forgotten,
        needs="run",
        compares=False,
        looks_for="evaluation and checkpoints that take a tenth of the run, or break the deadline "
        "alone",
        why="Plans count training and forget what stands between its steps.",
        speaks="They take 10% of the run or more; or training alone would meet the deadline.",
        remedy="Evaluate or save less often; the finding says at which interval they take 5%.",
        silence="The evaluations are what the run is for.",
    ),
    LintRule(
        name="context_beyond_data",
        check=context_beyond_data,
        needs="data",
        compares=True,
        looks_for="a context at least twice as long as 99% of the samples",
        why="Memory follows the longest row that can come, so a 16K context for 2K data pays for "
        "a card that nothing needs.",
        speaks="`max_length` is twice the 99th percentile or more, and twice what is recommended; "
        "a warning where 3% of time or memory would be saved, else advice.",
        remedy="The shorter `max_length` that the finding names.",
        silence="Longer samples are on their way.",
    ),
    LintRule(
        name="no_packing",
        check=no_packing,
        needs="run",
        compares=True,
        looks_for="short samples in rows of their own, where packing saves a tenth of the time",
        why="Padding is computed as if it were text. Packing comes before more cards.",
        speaks="Packing the same data takes 10% less time or more, and fits.",
        remedy="`training.packing: true` with the micro-batch that the finding names.",
        silence="The model or the kernel cannot keep packed samples apart, or the batch must hold "
        "a fixed number of samples.",
    ),
    LintRule(
        name="checkpointing_with_room",
        check=checkpointing_with_room,
        needs="accelerator",
        compares=True,
        looks_for="activations computed twice, though keeping them leaves the head-room",
        why="Checkpointing buys memory with a quarter to a third more computing; with memory to "
        "spare it buys nothing.",
        speaks="Without checkpointing the job fits with its head-room and steps take 3% less time "
        "or more.",
        remedy="`training.gradient_checkpointing: false`.",
        silence="The room is wanted for a larger batch or longer rows soon.",
    ),
    LintRule(
        name="more_cards",
        check=more_cards,
        needs="run",
        compares=True,
        looks_for="more GPU-hours than fewer cards would take",
        why="More cards shorten the clock, not the bill: what they wait for each other is paid.",
        speaks="Fewer cards hold the job with its head-room and take 2% fewer GPU-hours or more; "
        "a warning from 15% on.",
        remedy="Fewer cards where their duration is soon enough.",
        silence="The clock counts, or the cards are paid for anyway.",
    ),
    LintRule(
        name="full_or_adapter",
        check=full_or_adapter,
        needs="data",
        compares=True,
        looks_for="all parameters for data that an adapter holds; more text than the adapter holds",
        why="A new format or style needs an adapter; lots of new knowledge needs more parameters "
        "than it has.",
        speaks="Full fine-tuning on fewer than two tokens a parameter of a LoRA; or an adapter on "
        "20 million tokens or more and more than two tokens a parameter.",
        remedy="`method: lora` first; or a higher rank, all linear layers, or full fine-tuning.",
        silence="You know what the run is to teach. How much an adapter holds is a rule of thumb.",
    ),
    LintRule(
        name="single_card_first",
        check=single_card_first,
        needs=None,
        compares=True,
        looks_for="several cards for what one holds in a day",
        why="One card has no layout, no links and no stragglers that could be wrong.",
        speaks="One card holds the job with its head-room, in the deadline or in a day.",
        remedy="Get it right on one card; spread it once the clock is the trouble.",
        silence="It ran on one card already.",
    ),
    LintRule(
        name="better_data_first",
        check=better_data_first,
        needs="data",
        compares=False,
        looks_for="a large model on few samples, or on repeated ones",
        why="An hour of looking at samples beats a larger model, and each round of better data is "
        "paid with a run: a smaller model has room for more rounds.",
        speaks="1% of the samples or more are duplicates; or a model of more than 20 billion "
        "active parameters has fewer than 5,000 samples.",
        remedy="Take out what is repeated; make the rounds on a smaller model of the family, and "
        "the last run on the large one.",
        silence="Small models were tried and do not do.",
    ),
)
RULES: Final[dict[str, LintRule]] = {rule.name: rule for rule in _ALL}
