"""Which versions of which libraries a job runs on, blanks filled from dates."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tuneplan.frameworks.context import Software
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.ledger import Ledger, by_rule, by_table
from tuneplan.frameworks.registry import split_name
from tuneplan.frameworks.timeline import known, look_up
from tuneplan.frameworks.versions import (
    AS_OF,
    known_span,
    library_name,
    model_published,
    newest_release,
    read_date,
    read_software,
    read_version,
    release_date,
    releases,
)
from tuneplan.language import message
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.stated import StatedRecipe

_TABLE = "frameworks/data/releases.csv"
# Libraries that a job may pin without a table of releases: kernels and the driver.
_WITHOUT_FORMULA = frozenset({"flash-attn", "liger-kernel", "cuda", "python", "unsloth-zoo"})


def resolve_software(
    stated: StatedRecipe, framework: Framework, architecture: ModelArchitecture, ledger: Ledger
) -> Software:
    """Versions as stated; the others the newest of the job's day, each an assumption.

    The job's day is, in this order: the stated date; the day of the framework's stated version (or
    commit); the newest day among the stated libraries, or the day on which the model was first
    public where that is later (people keep a torch release for months); today's table.
    """
    own = stated.framework_version or split_name(stated.framework or "")[1] or ""
    given = _stated_versions(stated, framework, own)
    published = model_published(architecture.model_type, architecture.vocab_size)
    day, dated = _day(stated, framework, own, given, published)
    versions = dict(given)
    wanted = ((framework.package,) if framework.package else ()) + framework.libraries
    for library in wanted:
        if library in versions:
            continue
        if known(framework.package, f"pin:{library}"):
            pin = look_up(
                framework.package,
                f"pin:{library}",
                versions.get(framework.package, ""),
                date=day if read_version(versions.get(framework.package)) is None else "",
            )
            pinned = by_table(pin, pin.value)
            versions[library] = ledger.assume(f"software.{library}", pinned)
            continue
        release = newest_release(library, on=day)
        if release is None:
            continue
        reason = (
            message("newest_then", "the newest release on {day}", day=day)
            if dated
            else message("newest_known", "the newest release known on {day}", day=day)
        )
        versions[library] = ledger.assume(
            f"software.{library}", by_rule(release.version, reason, _TABLE)
        )
    for library, text in given.items():
        _doubt_version(library, text, ledger)
    _doubt_framework(framework, own, given, ledger)
    _doubt_day(stated, framework, ledger)
    version = versions.get(framework.package, "") if framework.package else ""
    if not version and not read_software(own):
        version = own
    return Software(
        framework=framework.name,
        version=version,
        versions=MappingProxyType(versions),
        date=day,
    )


def _doubt_version(library: str, text: str, ledger: Ledger) -> None:
    """Say so where nothing is known of a stated version."""
    path, span, version = f"software.{library}", known_span(library), read_version(text)
    if span is None:
        if library not in _WITHOUT_FORMULA:
            unknown = message(
                "library_unknown", "nothing here depends on {library}: its version changes nothing",
                library=library,
            )  # fmt: skip
            ledger.notice(unknown, path)
        return
    if version is None:
        return
    lowest, highest = (read_version(end.version) for end in span)
    end = span[1] if highest and version > highest else span[0]
    if (highest and version > highest) or (lowest and version < lowest):
        beyond = message(
            "version_beyond",
            "{library} {version} is not among the known releases: it is taken to behave like "
            "{known} of {day}, the nearest one",
            library=library,
            version=text,
            known=end.version,
            day=end.date,
        )
        ledger.notice(beyond, path)


def _doubt_framework(
    framework: Framework, own: str, given: Mapping[str, str], ledger: Ledger
) -> None:
    if not own or not framework.package or framework.package in given:
        return
    if read_date(own) is None and not read_software(own):
        unread = message(
            "version_unread",
            "the version {version!r} of {library} does not read: the newest of the day is taken",
            version=own,
            library=framework.package,
        )
        ledger.notice(unread, "framework")


def _doubt_day(stated: StatedRecipe, framework: Framework, ledger: Ledger) -> None:
    """Say so where the stated day lies outside the table of releases."""
    day = stated.date or ""
    span = known_span(framework.package or "torch")
    oldest = min((row.date for row in releases().get(framework.package or "torch", ())), default="")
    if not day or span is None or oldest[: len(day)] <= day <= AS_OF:
        return
    outside = message(
        "date_beyond",
        "releases are known from {oldest} to {newest}: for {day} the nearest ones are taken",
        oldest=oldest,
        newest=AS_OF,
        day=day,
    )
    ledger.notice(outside, "date")


def _stated_versions(stated: StatedRecipe, framework: Framework, own: str) -> Mapping[str, str]:
    found = dict(read_software(own))
    found.update({library_name(name): text for name, text in stated.software.items() if text})
    if framework.package and framework.package not in found:
        numbered = read_version(own) is not None and ";" not in own and not read_software(own)
        commit = release_date(framework.package, own) if own else None
        if numbered or commit is not None:
            found[framework.package] = own
    return found


def _day(
    stated: StatedRecipe,
    framework: Framework,
    own: str,
    given: Mapping[str, str],
    published: str | None,
) -> tuple[str, bool]:
    """The day whose software fills the blanks, and whether anything but today says so."""
    if stated.date:
        return read_date(stated.date) or stated.date, True
    if framework.package in given:
        day = release_date(framework.package, given[framework.package])
        if day is not None:
            return day, True
    if (day := read_date(own)) is not None:
        return day, True
    days = [d for name, text in given.items() if (d := release_date(name, text)) is not None]
    return (max(*days, published or ""), True) if days else (AS_OF, False)
