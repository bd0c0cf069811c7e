"""Where a figure comes from: its formula, inputs, basis and source, down to what was stated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from tuneplan.contract.answers import ExplainAnswer, ExplainedFigure, ExplainedInput, ExplainedNode
from tuneplan.language import say, translate
from tuneplan.report.amounts import words
from tuneplan.report.explain import (
    amount_text,
    is_setting,
    node_label,
    setting_label,
    settings_of,
    symbol_text,
    unusual_way,
)
from tuneplan.report.explain_answer import whole_name
from tuneplan.report.labels import basis_label, source_text
from tuneplan.report.verdict import percent_text, verdict_text
from tuneplan.report.view import (
    Cell,
    Column,
    Fact,
    Link,
    Links,
    Node,
    PageBlock,
    PageSection,
    Paragraph,
    Table,
    Tree,
)

# The page that explains a figure.
Address: TypeAlias = Callable[[str], str]
_FIRST: Final = (
    *("fit.verdict", "memory.peak_bytes", "time.step_s", "time.total_s"),
    *("accelerator_hours", "cost.total", "energy_kwh"),
)


def why_sections(answer: ExplainAnswer, *, address: Address) -> tuple[PageSection, ...]:
    """One figure as a tree that opens; the settings behind it; all figures as a list."""
    value = figure_text(answer.figure, answer.value, answer.unit)
    blocks: list[PageBlock] = [
        Links(title=say("Figures"), items=tuple(_first(answer, address))),
        Paragraph(
            text=say("{figure} = {value}", figure=figure_label(answer.figure), value=value),
            tone="loud",
        ),
        Tree(
            title=say("How it comes about"),
            nodes=tuple(_node(node, address) for node in answer.tree),
            open_levels=2,
        ),
    ]
    settings = list({one.name: one for one in settings_of(answer.tree)}.values())
    if settings:
        blocks.append(_settings(settings))
    return (
        PageSection(name="why", title=figure_label(answer.figure), blocks=tuple(blocks)),
        PageSection(name="figures", title=say("Every figure"), blocks=(_index(answer, address),)),
    )


def figure_label(figure: str) -> str:
    """What people call a figure; a term and the rest by its path."""
    return {
        "memory.peak_bytes": say("Allocated by PyTorch"),
        "memory.peak_reserved_bytes": say("Reserved by its allocator"),
        "memory.peak_device_bytes": say("As nvidia-smi shows it"),
        "memory.host_bytes": say("Main memory per card"),
        "fit.verdict": say("Verdict"),
        "fit.probability_fits": say("Probability that it fits"),
        "fit.headroom_bytes": say("Stays free"),
        "fit.capacity_bytes": say("Capacity"),
        "time.step_s": say("Optimizer step"),
        "time.tokens_per_s_per_accelerator": say("Tokens per second and card, padding included"),
        "time.real_tokens_per_s_per_accelerator": say("Tokens per second and card"),
        "time.samples_per_s": say("Samples per second"),
        "time.mfu_fraction": say("MFU"),
        "time.hfu_fraction": say("HFU, recomputation counted"),
        "time.steps": say("Optimizer steps"),
        "time.train_s": say("Training alone"),
        "time.eval_s": say("Evaluations"),
        "time.checkpoint_s": say("Writing checkpoints"),
        "time.total_s": say("Duration"),
        "accelerator_hours": say("Card-hours"),
        "model.total_parameters": say("Parameters"),
        "model.active_parameters": say("Active parameters"),
        "model.trainable_parameters": say("Trained parameters"),
        "cost.total": say("Cost"),
        "energy_kwh": say("Energy"),
        "co2_kg": say("CO2"),
        "data.num_samples": say("Samples"),
        "data.total_tokens": say("Tokens of the data"),
        "data.tokens_per_step": say("Tokens of an optimizer step"),
        "data.padding_fraction": say("Share of padding"),
        "data.worst_micro_batch_tokens": say("Tokens of the longest micro-batch"),
        "storage.checkpoint_bytes": say("A checkpoint"),
        "storage.kept_bytes": say("Checkpoints kept"),
        "storage.dataset_bytes": say("Data as text"),
        "storage.tokenised_bytes": say("Data tokenised"),
        "storage.model_bytes": say("The model on disk"),
        "storage.needed_bytes": say("Room on disk"),
        "storage.num_saves": say("Checkpoints written"),
        "storage.num_kept": say("Checkpoints at once"),
        "storage.loader.tokens_per_s": say("Tokens that the loader must bring"),
        "storage.loader.disk_bytes_per_s": say("Read from disk, tokenised"),
        "storage.loader.raw_bytes_per_s": say("Read from disk, as text"),
        "storage.loader.cores_on_the_fly": say("Cores that tokenise while it trains"),
    }.get(figure, figure)


def figure_text(name: str, value: Any, unit: str | None) -> str:
    """The value of a figure: shares in percent, verdicts in words."""
    if name == "fit.verdict":
        return verdict_text(str(value))
    if isinstance(value, int | float):
        if name == "fit.probability_fits":
            return percent_text(float(value))
        if name.endswith("_fraction"):
            return f"{value:.1%}"
    return amount_text(value, unit)


def _first(answer: ExplainAnswer, address: Address) -> Iterator[Link]:
    known = {one.name for one in answer.figures}
    for name in _FIRST:
        if name in known:
            yield Link(
                text=figure_label(name), address=address(name), current=name == answer.figure
            )


def _node(node: ExplainedNode, address: Address) -> Node:
    figure = whole_name(node.name) or ""
    label = node_label(node)
    return Node(
        name=node.name,
        title=figure_label(node.name) if label == node.name else label,
        value="" if node.value is None else figure_text(node.name, node.value, node.unit),
        formula=translate(node.formula) if node.formula else "",
        basis=basis_label(node.basis) if node.basis else "",
        source=source_text(node.source or ""),
        inputs=tuple(_symbol(one) for one in node.inputs),
        children=tuple(_node(child, address) for child in node.children),
        link=address(figure) if figure else "",
    )


def _symbol(one: ExplainedInput) -> Fact:
    remark = basis_label(one.basis)
    if one.source:
        remark = say("{basis}: {source}", basis=remark, source=source_text(one.source))
    name = one.name if is_setting(one) else translate(one.name)
    return Fact(name=name, cell=words(symbol_text(one)), remark=remark)


def _settings(settings: Sequence[ExplainedInput]) -> Table:
    return Table(
        title=say("Settings behind it"),
        columns=(
            Column(name=say("Setting")),
            Column(name=say("Value")),
            Column(name=say("Basis")),
            Column(name=say("Source")),
            Column(name=say("How to set it")),
        ),
        rows=tuple(
            (
                words(setting_label(one)),
                words(symbol_text(one)),
                Cell(text=basis_label(one.basis), tone="basis"),
                words(source_text(one.source or "")),
                words(unusual_way(one) or ""),
            )
            for one in settings
        ),
    )


def _index(answer: ExplainAnswer, address: Address) -> Table:
    return Table(
        title=say("Open one to see where it comes from"),
        columns=(
            Column(name=say("Figure")),
            Column(name=say("Value")),
            Column(name=say("Basis")),
        ),
        rows=tuple(_indexed(one, answer, address) for one in answer.figures),
    )


def _indexed(one: ExplainedFigure, answer: ExplainAnswer, address: Address) -> tuple[Cell, ...]:
    basis = one.value.get("basis") if isinstance(one.value, dict) else None
    return (
        Cell(
            text=figure_label(one.name),
            link="" if one.name == answer.figure else address(one.name),
            remark=one.name,
        ),
        words(figure_text(one.name, one.value, one.unit)),
        Cell(text=basis_label(str(basis)), tone="basis") if basis else words(""),
    )
