"""Files as documents: YAML, JSON, TOML and launch scripts, and the files that they point to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tuneplan.contract.documents import Document, parse_document
from tuneplan.contract.file_text import decoded_file
from tuneplan.errors import UnreadableFile
from tuneplan.formats.foreign import Companion, ForeignDocument
from tuneplan.formats.launch_documents import launched
from tuneplan.formats.shell_lines import parse_shell, shell_like
from tuneplan.formats.shell_windows import ENDINGS, as_posix
from tuneplan.language import message
from tuneplan.spec.answer import Notice

_FORMS: Final = {
    **dict.fromkeys((".yaml", ".yml"), "yaml"),
    **dict.fromkeys((".json", ".jsonc"), "json"),
    ".toml": "toml",
    **dict.fromkeys((".sh", ".bash", ".zsh", ".slurm", ".sbatch", ".command"), "shell"),
    **dict.fromkeys(ENDINGS, "shell"),
}
_PROGRAMS: Final = {".py": "Python", ".ipynb": "a notebook", ".jl": "Julia", ".cpp": "C++"}
_PLACEHOLDER: Final = re.compile(
    r"\$[A-Z_][A-Z0-9_]*|\{\{.*\}\}|<[^<>|]*\b(?:your|path|here|todo)\b[^<>]*>", re.IGNORECASE
)
_CONFIGURATIONS: Final = (".yaml", ".yml", ".json", ".toml")
_CONFIGURATION_KEYS: Final = ("config", "config_file", "cfg", "config_path", "yaml")
_PARENTS: Final = 4  # a repository's examples/train_lora/x.yaml names files from its root


def read_foreign(source: str | Path) -> ForeignDocument:
    """Read a configuration or a launch script; ``-`` is standard input.

    Raises:
        UnreadableFile: Absent, empty, too large, broken, nested without end, not text, or a
            program rather than a configuration.
    """
    name = str(source)
    suffix = Path(name).suffix.lower()
    if suffix in _PROGRAMS:
        raise UnreadableFile(
            message(
                "program_not_configuration",
                "{path} is a program ({language}), and programs are not run to find out what they "
                "set; give the configuration, or the line that launches it",
                path=name,
                language=_PROGRAMS[suffix],
            ),
            path=name,
        )
    document = parse_foreign(decoded_file(name), name=name)
    return with_configuration(document, companions_of(source))


def parse_foreign(text: str, *, name: str) -> ForeignDocument:
    """A configuration from its text; the ending of the name decides how it is read.

    Raises:
        UnreadableFile: As ``read_foreign``.
    """
    suffix = Path(name).suffix.lower()
    form = _FORMS.get(suffix) or _sniffed(text)
    if form == "shell":
        return parse_shell(as_posix(text) if suffix in ENDINGS else text, name=name)
    if form == "json":
        text = _without_comments(text)
    document = parse_document(text, name=name, form=form, foreign_tags=True)
    return launched(_foreign(document, form, name))


def _sniffed(text: str) -> str:
    if text.lstrip()[:1] == "{":
        return "json"
    return "shell" if shell_like(text) else "yaml"


def _foreign(document: Document, form: str, name: str) -> ForeignDocument:
    unknown: dict[str, str] = {}
    tree = _without_placeholders(document.tree, "", unknown)
    notices = tuple(
        Notice(
            message=message(
                "tag_not_run",
                "{key} names code, {tag}; it is not run here and its value is left as text",
                key=path,
                tag=tag,
            ),
            path=path,
            line=document.lines.get(path),
        )
        for path, tag in document.tags.items()
    )
    return ForeignDocument(
        tree=tree,
        lines=document.lines,
        file=name,
        form=form,
        mistakes=document.mistakes,
        unknown=unknown,
        notices=notices,
    )


def _without_placeholders(tree: Any, path: str, unknown: dict[str, str]) -> Any:
    """The tree with None for values such as ``$MODEL`` or ``<your model>``, noted by key path.

    ``${name}`` is left in place: torchtune's and hydra's references to other keys look so.
    """
    if isinstance(tree, dict):
        return {
            key: _without_placeholders(value, f"{path}.{key}" if path else key, unknown)
            for key, value in tree.items()
        }
    if isinstance(tree, str) and _PLACEHOLDER.fullmatch(tree.strip()):
        unknown[path] = tree
        return None
    return tree


def _without_comments(text: str) -> str:
    """JSON with the comments blanked that people write into it all the same."""
    pattern = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
    return pattern.sub(
        lambda match: match[0] if match[0][0] == '"' else re.sub(r"[^\n]", " ", match[0]), text
    )


# --- a launch line over the configuration that it names -------------------------------------------


def with_configuration(document: ForeignDocument, companion: Companion) -> ForeignDocument:
    """A launch line together with the configuration that its program is given.

    What the line says goes before what the file says, as it does in every program that takes both.
    Other documents, and lines without such a file, are returned as they are.
    """
    named = _named_configuration(document) if document.form == "shell" else None
    if named is None:
        return document
    key, name = named
    below = companion(name)
    if below is None or below.form == "shell":
        if below is None and set(document.tree) <= {"shell", key}:
            raise _nothing_but(document, name)
        text = message("file_not_here", "{name} is not here", name=name)
        notice = Notice(message=text, path=key, line=document.line_of(key))
        return replace(document, notices=(*document.notices, notice))
    lines = dict(below.lines)
    elsewhere = dict.fromkeys(below.tree, below.file)
    tree = _laid_over(below.tree, _without(document.tree, key), "", lines, elsewhere)
    shell = {**dict(tree["shell"]), "configuration": name}
    return ForeignDocument(
        tree={**tree, "shell": shell},
        lines={**lines, **document.lines, "shell.configuration": document.line_of(key) or 1},
        file=document.file,
        form="shell",
        mistakes=(*document.mistakes, *below.mistakes),
        unknown={**_still_unknown(below, document), **document.unknown},
        notices=(*document.notices, *below.notices),
        elsewhere=elsewhere,
    )


def _nothing_but(document: ForeignDocument, name: str) -> UnreadableFile:
    return UnreadableFile(
        message(
            "configuration_not_here",
            "{path} starts its program with {name}, which is not here: looked in the folder of "
            "the script, in the working directory, and in the folders above",
            path=document.file,
            name=name,
        ),
        path=document.file,
        line=document.line_of("shell.program"),
    )


def _named_configuration(document: ForeignDocument) -> tuple[str, str] | None:
    """The key that names a configuration on a launch line, and the name."""
    for key in _CONFIGURATION_KEYS:
        value = document.tree.get(key)
        if isinstance(value, str) and value.lower().endswith(_CONFIGURATIONS):
            return key, value
    shell = document.tree.get("shell")
    words = shell.get("words") if isinstance(shell, Mapping) else None
    for word in words if isinstance(words, list) else ():
        if isinstance(word, str) and word.lower().endswith(_CONFIGURATIONS):
            return "shell.words", word
    return None


def _without(tree: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in tree.items() if name != key}


def _laid_over(
    below: Mapping[str, Any],
    above: Mapping[str, Any],
    path: str,
    lines: dict[str, int],
    elsewhere: dict[str, str],
) -> dict[str, Any]:
    """One tree over another, key by key."""
    tree = dict(below)
    for name, value in above.items():
        inner = f"{path}.{name}" if path else name
        under = tree.get(name)
        if isinstance(value, Mapping) and isinstance(under, Mapping):
            file = elsewhere.pop(inner, None)
            if file is not None:
                elsewhere.update({f"{inner}.{key}": file for key in under})
            tree[name] = _laid_over(under, value, inner, lines, elsewhere)
        else:
            tree[name] = value
            lines.pop(inner, None)
            elsewhere.pop(inner, None)
    return tree


def _still_unknown(below: ForeignDocument, above: ForeignDocument) -> dict[str, str]:
    """Values of the file that only the start knows, and that the line does not say."""
    return {path: text for path, text in below.unknown.items() if path not in above.lines}


# --- files that a configuration points to ---------------------------------------------------------


def companions_of(source: str | Path) -> Companion:
    """What reads the files that a configuration names.

    They are looked for from its folder, the working directory, and the folders above it. A file
    that is nowhere gives None; one that is broken raises.
    """

    def companion(name: str) -> ForeignDocument | None:
        found = next(_existing(name, _folders(source)), None)
        return parse_foreign(decoded_file(str(found)), name=str(found)) if found else None

    return companion


def no_companions(_name: str) -> ForeignDocument | None:
    """Where there are no files around the configuration (standard input, a text)."""
    return None


def texts_beside(texts: Mapping[str, str]) -> Companion:
    """Where the files around the configuration are given as texts, by their names."""
    by_name = {Path(name).name: text for name, text in texts.items()}

    def companion(name: str) -> ForeignDocument | None:
        own = Path(name).name
        return parse_foreign(by_name[own], name=own) if own in by_name else None

    return companion


def _folders(source: str | Path) -> list[Path]:
    if str(source) == "-":
        return [Path()]
    folder = Path(source).absolute().parent
    return [folder, Path(), *list(folder.parents)[:_PARENTS]]


def _existing(name: str, folders: list[Path]) -> Iterator[Path]:
    for folder in folders:
        try:
            path = folder / Path(name).expanduser()
            if path.is_file():
                yield path
        except (OSError, ValueError, RuntimeError):
            continue
