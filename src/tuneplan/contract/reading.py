"""Reading a job: file, flags and ``--set`` to a ``StatedJob``, or every mistake at once."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pydantic import ValidationError

from tuneplan.contract.consistency import contradictions, is_about_absence
from tuneplan.contract.conversion import to_stated
from tuneplan.contract.documents import Document, Origin, parse_document, read_document
from tuneplan.contract.job import JobFile
from tuneplan.contract.reading_mistakes import (
    leaves_of,
    located_mistake,
    places_of,
    told_by_pydantic,
    without_repeats,
)
from tuneplan.contract.rewriting import Rewritten, Tree, rewrite
from tuneplan.contract.trees import plain
from tuneplan.contract.values import Refused
from tuneplan.errors import InvalidRequest, Mistake, UnreadableFile
from tuneplan.language import message
from tuneplan.spec.answer import Notice
from tuneplan.spec.stated import StatedJob

# What a flag says replaces what the file says about the same thing in other words.
_REPLACES: Final[Mapping[str, tuple[str, ...]]] = {
    **{
        f"data.{kind}": tuple(
            f"data.{other}"
            for other in (
                *("path", "profile", "num_samples", "mean_tokens", "total_tokens", "quantiles"),
            )
            if (other in ("path", "profile") or kind in ("path", "profile")) and other != kind
        )
        for kind in ("path", "profile", "num_samples", "mean_tokens", "total_tokens")
    },
    "data.mean_tokens": ("data.path", "data.profile", "data.total_tokens", "data.quantiles"),
    "data.total_tokens": ("data.path", "data.profile", "data.mean_tokens"),
    "training.num_train_epochs": ("training.max_steps",),
    "training.packing": ("training.padding",),
    "training.padding": ("training.packing",),
    "training.global_batch_size": ("training.gradient_accumulation_steps",),
}
_REPLACED_BY_METHOD: Final[Mapping[str, tuple[str, ...]]] = {
    "full": ("adapter", "quantization", "training.trained_layers"),
    "freeze": ("adapter", "quantization"),
    "lora": ("quantization", "training.trained_layers", "adapter.use_dora"),
    "dora": ("quantization", "training.trained_layers", "adapter.use_dora"),
    "qlora": ("quantization.type", "quantization.bits", "training.trained_layers"),
    "gptq-lora": ("quantization.type", "quantization.bits", "training.trained_layers"),
}
_PATH_KEYS: Final = ("data.path", "data.profile", "prices", "accelerators", "models")


def load_job(
    source: str | Path | Mapping[str, Any] | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    set_: Sequence[str] = (),
) -> StatedJob:
    """Read a job.

    Args:
        source: A file (YAML, JSON or TOML; ``-`` is standard input), the job as a mapping, or None
            where the overrides say all of it.
        overrides: Key paths and values that go before the file: ``{"training.max_length": 4096}``.
        set_: The same as text: ``"training.max_length=4096"``, the value in YAML.

    Raises:
        InvalidRequest: With every mistake: unknown keys, impossible values, contradictions.
        UnreadableFile: The file is absent, empty, too large, or broken.
    """
    if source is None or isinstance(source, Mapping):
        document = Document(tree=plain(dict(source or {}), name="job"))
        base_path = "."
    else:
        document = read_document(source)
        base_path = str(Path(source).parent) if str(source) != "-" else "."
    return _assemble(document, overrides or {}, set_, base_path=base_path)


def load_job_text(text: str, *, form: str = "yaml", name: str = "job") -> StatedJob:
    """Read a job from its text; ``form`` is ``yaml``, ``json`` or ``toml``.

    Raises:
        InvalidRequest: With every mistake.
        UnreadableFile: The text is empty or broken.
    """
    return _assemble(parse_document(text, name=name, form=form), {}, (), base_path=".")


def load_document(
    document: Document,
    *,
    base_path: str,
    overrides: Mapping[str, Any] | None = None,
    set_: Sequence[str] = (),
) -> StatedJob:
    """Read a job file that was parsed already; arguments and errors as for ``load_job``."""
    return _assemble(document, overrides or {}, set_, base_path=base_path)


def load_imported(
    tree: Mapping[str, Any],
    *,
    origins: Mapping[str, Origin],
    base_path: str,
    overrides: Mapping[str, Any] | None = None,
    set_: Sequence[str] = (),
) -> StatedJob:
    """Read a job that was made from somebody else's configuration.

    Args:
        tree: Keys of the job file, as sections.
        origins: Key path to the key of the configuration that it comes from: mistakes and
            ``StatedJob.places`` tell that key, its file and its line.
        base_path: Folder that relative paths of the configuration refer to.
        overrides: As for ``load_job``; paths in them refer to the working directory.
        set_: As for ``load_job``.

    Raises:
        InvalidRequest: With every mistake.
    """
    document = Document(tree=plain(dict(tree), name="job"), origins=origins)
    return _assemble(document, overrides or {}, set_, base_path=base_path)


def _assemble(
    document: Document, overrides: Mapping[str, Any], set_: Sequence[str], *, base_path: str
) -> StatedJob:
    flags, mistakes = _flag_tree(overrides, set_, base_path)
    of_file, of_flags = rewrite(document.tree), rewrite(flags)
    notices = _overlay(of_file, of_flags)
    mistakes += [*document.mistakes, *of_file.mistakes, *of_flags.mistakes]
    job, found = _validate(of_file.tree)
    mistakes += found
    if job is not None:
        # What is missing only because it was wrong is no second mistake.
        wrong_data = any((mistake.path or "").startswith("data") for mistake in mistakes)
        mistakes += [m for m in contradictions(job) if not (wrong_data and is_about_absence(m))]
    if mistakes or job is None:
        located = [located_mistake(mistake, document, of_file, of_flags) for mistake in mistakes]
        raise InvalidRequest(
            sorted(without_repeats(located), key=lambda m: (m.line or 0, m.path or ""))
        )
    notices += _notices(job, of_file, of_flags)
    stated = to_stated(job, base_path=base_path, notices=tuple(notices))
    return replace(stated, places=MappingProxyType(places_of(document, of_file, of_flags)))


def _flag_tree(
    overrides: Mapping[str, Any], set_: Sequence[str], base_path: str
) -> tuple[Tree, list[Mistake]]:
    """The flags as a tree; paths given on the command line refer to the working directory."""
    pairs = [(path, plain(value, name=path)) for path, value in overrides.items()]
    mistakes: list[Mistake] = []
    for text in set_:
        path, separator, written = text.partition("=")
        try:
            if not separator or not path.strip() or "\n" in text:
                raise _not_a_setting(text)
            value = parse_document(f"value: {written}", name="--set").tree.get("value")
        except (UnreadableFile, Refused):
            mistakes.append(
                Mistake(
                    message=_not_a_setting(text).message,
                    path="--set",
                    value=text,
                    how_to_fix=message("write_setting", "write --set training.max_length=4096"),
                )
            )
            continue
        pairs.append((path.strip(), value))
    tree: Tree = {}
    for path, value in pairs:
        if base_path != "." and (path in _PATH_KEYS or (path == "model" and _is_path(value))):
            value = _from_working_directory(value)
        mistakes += _plant(tree, path, value)
    return tree, mistakes


def _not_a_setting(text: str) -> Refused:
    return Refused(message("not_a_setting", "{text!r} is not KEY=VALUE", text=text))


def _is_path(value: Any) -> bool:
    """Whether a model is one on disk; every other name has nothing to do with folders."""
    try:
        return isinstance(value, str) and Path(value).exists()
    except (OSError, ValueError):
        return False


def _from_working_directory(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_working_directory(item) for item in value]
    return str(Path(value).absolute()) if isinstance(value, str) and value else value


def _plant(tree: Tree, path: str, value: Any) -> list[Mistake]:
    *holders, leaf = path.split(".")
    for name in holders:
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            return [
                Mistake(
                    message=message("set_inside_value", "{path} lies in a plain value", path=path),
                    path=path,
                    value=value,
                )
            ]
    tree[leaf] = value
    return []


def _overlay(of_file: Rewritten, of_flags: Rewritten) -> list[Notice]:
    """Lay the flags over the file; tell what of the file they replace in other words."""
    flags = set(leaves_of(of_flags.tree))
    replaced = [other for path in flags for other in _REPLACES.get(path, ())]
    replaced += _REPLACED_BY_METHOD.get(str(of_flags.tree.get("method")), ())
    notices = []
    for path in sorted(set(replaced)):
        if _drop(of_file.tree, path):
            text = message(
                "replaced_by_flag",
                "{key} of the file is left aside: it does not go with what the command line says",
                key=path,
            )
            notices.append(Notice(message=text, path=path))
    _merge(of_file.tree, of_flags.tree)
    return notices


def _merge(below: Tree, above: Tree) -> None:
    for name, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(name), dict) and name != "quantiles":
            _merge(below[name], value)
        else:
            below[name] = value


def _drop(tree: Tree, path: str) -> bool:
    """Take a key out; whether it was there and said something."""
    *holders, leaf = path.split(".")
    for name in holders:
        inner = tree.get(name)
        if not isinstance(inner, dict):
            return False
        tree = inner
    return tree.pop(leaf, None) is not None


def _validate(tree: Tree) -> tuple[JobFile | None, list[Mistake]]:
    """The job and its mistakes; what is wrong is taken out, so that the rest can be judged."""
    tree = _without_blanks(copy.deepcopy(tree))
    try:
        return JobFile.model_validate(tree), []
    except ValidationError as error:
        details = error.errors(include_url=False)
    mistakes = [told_by_pydantic(detail) for detail in details]
    for detail in details:
        _drop(tree, ".".join(str(part) for part in detail["loc"]))
    try:
        return JobFile.model_validate({"model": "unknown", **tree}), mistakes
    except ValidationError:
        return None, mistakes


def _without_blanks(tree: Tree) -> Tree:
    cleaned = {k: _without_blanks(v) if isinstance(v, dict) else v for k, v in tree.items()}
    return {name: value for name, value in cleaned.items() if value is not None}


def _notices(job: JobFile, of_file: Rewritten, of_flags: Rewritten) -> list[Notice]:
    notices = []
    left_aside = [*of_file.left_aside, *of_flags.left_aside]
    if left_aside:
        text = message(
            "keys_left_aside",
            "left aside, since they change neither memory nor time nor cost as estimated: {keys}",
            keys=", ".join(left_aside),
        )
        notices.append(Notice(message=text))
    if "month" in str((of_file.tree.get("limits") or {}).get("deadline")):
        text = message("month_is_30_days", "a month is taken as 30 x 24 h")
        notices.append(Notice(message=text, path="limits.deadline"))
    if job.training is not None and job.training.max_steps and job.training.num_train_epochs:
        text = message("max_steps_counts", "max_steps counts, num_train_epochs does not")
        notices.append(Notice(message=text, path="training.max_steps"))
    return notices
