"""The user's pool of machines and what is to run on it: YAML, or ``H100:8x2`` on a command line.

The file is described in ``docs/how-to/schedule.md``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any, Final

from tuneplan.catalog import values
from tuneplan.catalog.accelerators import AcceleratorCatalog
from tuneplan.catalog.documents import (
    Located,
    Mistakes,
    Section,
    check_top_level,
    read_yaml,
    sections,
)
from tuneplan.errors import InvalidQuantity, InvalidRequest, Mistake, UnknownName
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.spec.hardware import Accelerator
from tuneplan.spec.offer import Money
from tuneplan.spec.portfolio import Machine
from tuneplan.units import DAY_S, parse_money, parse_seconds

_SHORT: Final = re.compile(r"(?P<name>.+?)(?::(?P<cards>\d{1,4})(?:x(?P<machines>\d{1,4}))?)?")
_MOST: Final = 1000  # machines of a pool
_DAY_SIGNS: Final = len("2026-12-01")
_KEYS: Final = ("start", "nodes", "jobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolJob:
    """An entry under ``jobs``: a job file with what it does not say, or a task of stated length.

    Attributes:
        job: Path of a job file; None where ``duration_s`` is stated.
        cards: Of each machine; several are a choice; empty = as the job file has it.
        at: Key to its place in the file, for mistakes that only the whole shows.
    """

    name: str
    job: str | None
    duration_s: float | None
    cards: tuple[int, ...]
    machines: int | None
    memory_bytes: int | None
    accelerators: tuple[str, ...]
    priority: int
    deadline_s: float | None
    earliest_s: float
    after: tuple[str, ...]
    file: str
    at: Mapping[str, tuple[str, int]]

    def mistake(self, key: str, text: Any, **more: Any) -> Mistake:
        """A mistake at one of the entry's keys, or at the entry."""
        path, line = self.at.get(key, self.at[""])
        return Mistake(message=text, path=path, line=line, file=self.file, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Machines, and the jobs that the file names.

    Attributes:
        start: The moment that all times count from; None where the file does not say.
    """

    machines: tuple[Machine, ...]
    jobs: tuple[PoolJob, ...] = ()
    start: datetime | None = None
    files: tuple[str, ...] = ()


def read_pools(texts: Iterable[str], accelerators: AcceleratorCatalog, *, today: date) -> Pool:
    """All ``--pool`` together, each a file or ``NAME:CARDSxMACHINES``.

    Raises:
        InvalidRequest: Every mistake of every one, with its line.
    """
    pools, mistakes = [], list[Mistake]()
    for text in texts:
        try:
            pools.append(_read(text, accelerators, today))
        except InvalidRequest as error:
            mistakes += error.mistakes
    starts = {pool.start for pool in pools if pool.start is not None}
    if len(starts) > 1:
        told = message("two_starts", "the pools name different starts")
        mistakes.append(Mistake(message=told, path="start"))
    if mistakes:
        raise InvalidRequest(mistakes)
    return Pool(
        machines=_named_apart([machine for pool in pools for machine in pool.machines]),
        jobs=tuple(job for pool in pools for job in pool.jobs),
        start=next(iter(starts), None),
        files=tuple(file for pool in pools for file in pool.files),
    )


def _named_apart(machines: list[Machine]) -> tuple[Machine, ...]:
    """Machines with names of their own: a number behind those that share one."""
    names = [machine.name for machine in machines]
    seen: dict[str, int] = {}
    found = []
    for machine in machines:
        seen[machine.name] = seen.get(machine.name, 0) + 1
        many = names.count(machine.name) > 1
        name = f"{machine.name} #{seen[machine.name]}" if many else machine.name
        found.append(
            Machine(
                name=name,
                accelerator=machine.accelerator,
                cards=machine.cards,
                memory_bytes=machine.memory_bytes,
                price=machine.price,
                from_s=machine.from_s,
            )
        )
    return tuple(found)


def _read(text: str, accelerators: AcceleratorCatalog, today: date) -> Pool:
    path = Path(text)
    if path.suffix.lower() in (".yaml", ".yml", ".json") or path.is_file():
        return _read_file(path, accelerators, today)
    return Pool(machines=_short(text, accelerators))


def _short(text: str, accelerators: AcceleratorCatalog) -> tuple[Machine, ...]:
    match = _SHORT.fullmatch(text.strip())
    cards = int(match["cards"] or 1) if match else 0
    machines = int(match["machines"] or 1) if match else 0
    if match is None or ":" in match["name"] or not cards >= 1 or not 1 <= machines <= _MOST:
        told = message(
            "no_pool",
            "{text!r} is neither a file nor machines such as H100:8 or H100:8x2",
            text=text,
        )
        raise InvalidRequest([Mistake(message=told, path="--pool", value=text)])
    try:
        chip = accelerators.resolve(match["name"].strip(), None).accelerator
    except UnknownName as error:
        told_at = [Mistake(message=error.message, path="--pool", value=text, near=error.near)]
        raise InvalidRequest(told_at) from None
    return (_machine(chip, cards),) * machines


def _machine(
    chip: Accelerator, cards: int, name: str | None = None, price: Money | None = None,
    from_s: float = 0.0,
) -> Machine:  # fmt: skip
    return Machine(
        name=name or f"{cards} x {chip.name}",
        accelerator=chip.name,
        cards=cards,
        memory_bytes=chip.capacity_bytes,
        price=price,
        from_s=from_s,
    )


def _read_file(path: Path, accelerators: AcceleratorCatalog, today: date) -> Pool:
    document = read_yaml(path)
    mistakes = Mistakes(str(path))
    check_top_level(document, _KEYS, mistakes)
    top = Section(document, mistakes, list(_KEYS)) if isinstance(document.value, dict) else None
    start = top.read("start", _moment, default=None) if top else None
    began = start or datetime.combine(today, time(), tzinfo=UTC)
    machines: list[Machine] = []
    for section in sections(document, "nodes", mistakes):
        machines += _node(section, accelerators, began)
        section.finish()
    jobs = []
    for place, section in enumerate(sections(document, "jobs", mistakes), start=1):
        jobs.append(_job(section, place, accelerators, began))
        section.finish()
    mistakes.raise_if_any()
    return Pool(machines=tuple(machines), jobs=tuple(jobs), start=start, files=(str(path),))


def _node(section: Section, accelerators: AcceleratorCatalog, start: datetime) -> list[Machine]:
    chip = _chip(section, "accelerator", accelerators)
    cards = section.read("accelerators_per_node", values.whole, default=1)
    count = section.read("count", values.whole, default=1)
    price = section.read("price", _price, default=None)
    name = section.read("name", values.text, default=None)
    free_from = max(0.0, section.read("from", _seconds_from(start), default=0.0))
    if count > _MOST:
        found = section.get("count")
        told = message("too_many_machines", "at most {most} machines", most=_MOST)
        section.mistakes.add(told, found or section.at)
        return []
    return [] if chip is None else [_machine(chip, cards, name, price, free_from)] * count


def _job(
    section: Section, place: int, accelerators: AcceleratorCatalog, start: datetime
) -> PoolJob:
    job = section.read("job", values.text, default=None)
    duration = section.read("duration", parse_seconds, default=None)
    kinds: tuple[str, ...] = section.read("accelerator", _texts, default=())
    resolved = tuple(_resolved(section, "accelerator", name, accelerators) for name in kinds)
    if (job is None) == (section.get("duration") is None):
        text = message(
            "job_or_duration",
            "an entry names a job file (job:) or a duration (duration: 3 h)",
        )
        section.mistakes.add(text, section.at)
    name: str = section.read("name", values.text, default=Path(job).stem if job else f"job {place}")
    entry = PoolJob(
        name=name,
        job=job,
        duration_s=duration,
        cards=section.read("cards", _counts, default=()),
        machines=section.read("machines", values.whole, default=None),
        memory_bytes=section.read("memory", values.size, default=None),
        accelerators=tuple(one for one in resolved if one),
        priority=section.read("priority", values.whole, default=1),
        deadline_s=section.read("deadline", _seconds_from(start, day_s=DAY_S), default=None),
        earliest_s=max(0.0, section.read("earliest", _seconds_from(start), default=0.0)),
        after=section.read("after", _texts, default=()),
        file=section.mistakes.file,
        at=_places(section),
    )
    _check_deadline(section, entry, start)
    return entry


def _places(section: Section) -> dict[str, tuple[str, int]]:
    found = {"": (section.at.path, section.at.line)}
    for key, value in section.at.value.items():
        found[key] = (value.path, value.line)
    return found


def _check_deadline(section: Section, entry: PoolJob, start: datetime) -> None:
    deadline = section.get("deadline")
    if deadline is None or entry.deadline_s is None:
        return
    if entry.deadline_s <= 0:
        text = message(
            "deadline_past",
            "the deadline {value} is not after the start of the schedule, {start}",
            value=str(deadline.value),
            start=f"{start:%Y-%m-%d %H:%M}",
        )
        fix = message("later_deadline", "give a later deadline, or an earlier start:")
        section.mistakes.add(text, deadline, how_to_fix=fix)
    elif entry.deadline_s <= entry.earliest_s:
        text = message("deadline_before_earliest", "the deadline is not after earliest:")
        section.mistakes.add(text, deadline)


def _chip(section: Section, key: str, accelerators: AcceleratorCatalog) -> Accelerator | None:
    written = section.require(key, values.text, default="")
    if not written:
        return None
    name = _resolved(section, key, written, accelerators)
    return accelerators.resolve(name, None).accelerator if name else None


def _resolved(
    section: Section, key: str, written: str, accelerators: AcceleratorCatalog
) -> str | None:
    try:
        return accelerators.resolve(written, None).accelerator.name
    except UnknownName as error:
        section.mistakes.add(error.message, section.get(key) or section.at, near=error.near)
        return None


def _price(value: Any) -> Money:
    """An amount per hour: ``12 USD``, ``NT$120/h``."""
    text = re.sub(r"\s*(/|per)\s*(h|hour)\s*$", "", value) if isinstance(value, str) else value
    amount, currency = parse_money(text)
    if amount < 0:
        raise InvalidQuantity(message("negative_price", "{value!r} is below zero", value=value))
    return Money(amount=amount, currency=currency)


def _texts(value: Any) -> tuple[str, ...]:
    """One text or a list of them."""
    return values.texts(value) if isinstance(value, list) else (values.text(value),)


def _counts(value: Any) -> tuple[int, ...]:
    """One count or a list of them."""
    listed = value if isinstance(value, list) else [value]
    return tuple(values.whole(one.value if isinstance(one, Located) else one) for one in listed)


def _moment(value: Any) -> datetime:
    """A day or a day and time, in UTC where no zone is said."""
    if isinstance(value, datetime):
        found = value
    elif isinstance(value, str) and ("T" in value or " " in value.strip()):
        try:
            found = datetime.fromisoformat(value.strip())
        except ValueError:
            raise InvalidQuantity(
                message("not_a_moment", "{value!r} is no day such as 2026-12-01 09:00", value=value)
            ) from None
    else:
        found = datetime.combine(values.day(value), time())
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _seconds_from(start: datetime, *, day_s: float = 0.0) -> Callable[[Any], float]:
    """Reads a duration (``48 h``), a moment, or a day, which means ``day_s`` after it begins."""

    def read(value: Any) -> float:
        if isinstance(value, str):
            try:
                return parse_seconds(value)
            except InvalidQuantity:
                if not re.match(r"\s*\d{4}-", value):
                    raise
        moment = _moment(value)
        whole_day = not isinstance(value, datetime) and len(str(value).strip()) == _DAY_SIGNS
        return (moment - start).total_seconds() + (day_s if whole_day else 0.0)

    return read
