"""The answer of ``explain`` as text: a tree of formulas, the settings behind it, the sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tuneplan.contract.answers import ExplainAnswer, ExplainedInput, ExplainedNode
from tuneplan.language import say, translate
from tuneplan.report.explain_answer import whole_name
from tuneplan.report.labels import (
    basis_label,
    counted,
    memory_term_label,
    run_term_label,
    source_text,
    time_term_label,
)
from tuneplan.report.page import Page
from tuneplan.report.tables import (
    Column,
    facts,
    hanging,
    heading,
    number_text,
    render,
    table,
    value_text,
)
from tuneplan.report.tensor_labels import tensor_label
from tuneplan.units import format_count, format_duration, format_gb, format_gib

if TYPE_CHECKING:
    from rich.console import RenderableType

_DEEPEST: Final = 3  # levels below the figure that are shown; --json holds them all
_MOST_CHILDREN: Final = 12
_RANGE: Final = ("low", "likely", "high")


def explain_text(answer: ExplainAnswer, page: Page) -> str:
    """The figure, and under it what it is computed from, indented."""
    return render(list(_blocks(answer, page)), page)


def _blocks(answer: ExplainAnswer, page: Page) -> Iterator[RenderableType]:
    value = amount_text(answer.value, answer.unit)
    yield heading(say("{figure} = {value}", figure=answer.figure, value=value))
    sources: dict[str, int] = {}
    for node in answer.tree:
        yield hanging(list(_node(node, 0, sources, set())))
    settings = list({one.name: one for one in settings_of(answer.tree)}.values())
    if settings:
        yield _settings_table(settings, page)
    if sources:
        yield facts(
            [(f"[{number}]", source_text(source)) for source, number in sources.items()],
            title=say("Sources"),
        )


def amount_text(value: Any, unit: str | None) -> str:
    """A figure in words: ranges as ``low – likely – high``, sizes in GiB, durations in h."""
    if isinstance(value, dict) and set(_RANGE) <= set(value):
        parts = [amount_text(value[name], unit) for name in _RANGE]
        return parts[1] if len(set(parts)) == 1 else _joined(parts)
    if isinstance(value, dict) and set(value) <= set(_RANGE):
        return ", ".join(
            f"{basis_label(name)} {amount_text(one, unit)}" for name, one in value.items()
        )
    if isinstance(value, dict) and "amount" in value:
        return f"{value['amount']} {value['currency']}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value_text(value)
    shown = _SHOWN.get(unit or "")
    if shown is not None:
        return shown(float(value))
    whole = isinstance(value, int) or (value.is_integer() and abs(value) < 1e15)
    number = format_count(value) if whole else _trimmed(number_text(value, digits=4))
    return counted(number, unit or "")


def _trimmed(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _size_text(size_bytes: float) -> str:
    return format_gib(size_bytes) if abs(size_bytes) >= 2**20 else f"{size_bytes:,.0f} B"


def _rate_text(bytes_per_s: float) -> str:
    unit, scale = ("GB/s", 1e9) if abs(bytes_per_s) >= 1e9 else ("MB/s", 1e6)
    return f"{number_text(bytes_per_s / scale)} {unit}"


_SHOWN: Final[Mapping[str, Callable[[float], str]]] = {
    "bytes": _size_text,
    "bytes on disk": format_gb,
    "s": format_duration,
    "bytes/s": _rate_text,
    "FLOP/s": lambda rate: f"{rate / 1e12:,.0f} TFLOP/s",
    "FLOP": lambda number: f"{number / 1e9:,.2f} GFLOP",
}
# The unit that the name of a symbol tells, where it has none of its own.
_NAMED: Final = (("bytes_per_s", "bytes/s"), ("bytes", "bytes"), ("_s", "s"))


def _joined(parts: list[str]) -> str:
    """The unit once, where it is the same."""
    words = [part.rsplit(" ", 1) for part in parts]
    if all(len(word) == 2 for word in words) and len({word[1] for word in words}) == 1:
        return " – ".join(word[0] for word in words) + f" {words[0][1]}"
    return " – ".join(parts)


def _node(
    node: ExplainedNode, depth: int, sources: dict[str, int], told: set[str]
) -> Iterator[tuple[int, str, str]]:
    """Lines as (indent, style, text); what was told higher up is not told again."""
    mark = _footnote(node.source, sources)
    basis = f" ({basis_label(node.basis)})" if node.basis and node.formula not in told else ""
    name, label = node.name, node_label(node)
    title = f"{label} ({name})" if label != name else name
    value = "" if node.value is None else f": {amount_text(node.value, node.unit)}"
    yield depth, "bold" if depth == 0 else "", f"{title}{value}{basis}{mark}"
    if node.formula and node.formula not in told:
        yield depth + 1, "cyan", f"= {translate(node.formula)}"
    symbols = [one for one in node.inputs if not is_setting(one)]
    if symbols:
        text = "; ".join(_symbol(one, sources) for one in symbols)
        if text not in told:
            yield depth + 1, "dim", say("with {symbols}", symbols=text)
        told.add(text)
    told.add(node.formula)
    if depth >= _DEEPEST and node.children:
        figure = whole_name(node.name)
        if figure is None:
            yield depth + 1, "dim", say("… --json tells more")
        else:
            yield depth + 1, "dim", say("… tuneplan explain {figure} tells more", figure=figure)
        return
    shown = (
        node.children[:_MOST_CHILDREN]
        if len(node.children) > _MOST_CHILDREN + 1
        else (node.children)
    )
    for child in shown:
        yield from _node(child, depth + 1, sources, told)
    rest = node.children[len(shown) :]
    if rest:
        total = sum(one.value for one in rest if isinstance(one.value, int | float))
        text = say(
            "{count} smaller ones: {amount}",
            count=len(rest),
            amount=amount_text(total, rest[0].unit),
        )
        yield depth + 1, "", text


def _footnote(source: str | None, sources: dict[str, int]) -> str:
    if not source:
        return ""
    return f" [{sources.setdefault(source, len(sources) + 1)}]"


def is_setting(one: ExplainedInput) -> bool:
    """A key of the job, or a behaviour that can be set."""
    return one.how_to_set is not None


def _symbol(one: ExplainedInput, sources: dict[str, int]) -> str:
    return f"{translate(one.name)} = {symbol_text(one)}{_footnote(one.source, sources)}"


def symbol_text(one: ExplainedInput) -> str:
    """The value of a symbol with its unit."""
    named = next((unit for end, unit in _NAMED if one.name.endswith(end)), None)
    return amount_text(one.value, one.unit or named)


def node_label(node: ExplainedNode) -> str:
    """What a figure or a term is called; a figure by its path in the answer."""
    label = memory_term_label(node.name)
    label = time_term_label(node.name) if label == node.name else label
    label = run_term_label(node.name) if label == node.name else label
    return tensor_label(node.name) if label == node.name else label


def settings_of(nodes: list[ExplainedNode]) -> Iterator[ExplainedInput]:
    """Keys of the job, and behaviours that can be set, in the order of the tree."""
    for node in nodes:
        yield from (one for one in node.inputs if is_setting(one))
        yield from settings_of(node.children)


def setting_label(one: ExplainedInput) -> str:
    """A key of the job as it is written; what has no key, such as a price, in words."""
    return translate(one.name) if " " in one.name else one.name


def _settings_table(settings: list[ExplainedInput], page: Page) -> RenderableType:
    widest = max(
        len(f"{setting_label(one)} = {amount_text(one.value, one.unit)}") for one in settings
    )
    return table(
        (
            Column(name=say("Setting"), width=min(widest, max(42, page.width // 3))),
            Column(name=say("Basis"), keep=True),
            Column(name=say("From where")),
        ),
        [
            (
                f"{setting_label(one)} = {amount_text(one.value, one.unit)}",
                basis_label(one.basis),
                "\n".join(filter(None, (source_text(one.source or ""), unusual_way(one)))),
            )
            for one in settings
        ],
        title=say("Settings behind it (--set KEY=VALUE changes one)"),
    )


def unusual_way(one: ExplainedInput) -> str | None:
    """How to set it, where it is not the usual way."""
    usual = one.how_to_set is None or one.how_to_set == f"--set {one.name}=VALUE"
    return None if usual else translate(one.how_to_set or "")
