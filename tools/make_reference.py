"""Write what is made from code: reference pages, pictures, and the output of commands in pages.

``python tools/make_reference.py`` writes them; with ``--check`` it only says which are out of
date, with exit status 1 where any is. A house test runs the check.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
sys.path.insert(0, str(SOURCE))

from console_blocks import pages_with_blocks, with_answers  # noqa: E402 - beside this file
from frameworks_page import frameworks_page  # noqa: E402 - beside this file
from lint_pages import lint_index, lint_page  # noqa: E402 - beside this file
from pictures import outdated as outdated_pictures  # noqa: E402 - beside this file

from tuneplan import errors  # noqa: E402 - the source tree of this file comes first
from tuneplan.cli.main import cli  # noqa: E402
from tuneplan.contract.blanks import blank_meaning  # noqa: E402
from tuneplan.contract.job import sections  # noqa: E402
from tuneplan.contract.section import Section  # noqa: E402
from tuneplan.contract.spellings import IRRELEVANT, SPELLINGS  # noqa: E402
from tuneplan.contract.values import Reader  # noqa: E402
from tuneplan.diagnosis.registry import RULES  # noqa: E402

MADE = "<!-- Made by tools/make_reference.py. -->"

JOB_HEAD = f"""{MADE}

# The job file

A job file is YAML; JSON and TOML (by their file endings) say the same.
The smallest one names a model:

```yaml
model: Qwen/Qwen2.5-7B-Instruct
```

How it is read:

- A flag goes before the file, the file before the framework's default at its version,
  that before our own assumption.
  `--set training.max_length=4096` reaches any key.
- A stated key is fixed. A list where one value would do is a choice for `plan`.
  A blank key is searched by `plan` and takes the framework's default in `estimate`.
- A quantity is a number, a space and a unit: `B kB MB GB TB KiB MiB GiB TiB`,
  `s min h d week month` (30 x 24 h), `GB/s`, `Gbit/s`.
  Money is an amount and an ISO 4217 code: `500 USD`; `NT$ 120` is read as `120 TWD`.
  A bare number where a unit is needed is an error.
- Unknown keys, impossible values and contradictions are refused, all at once,
  each with its line and the nearest valid key.
- `data: FILE` is short for `data: {{path: FILE}}`,
  `parallelism: zero3` for `parallelism: {{strategy: zero3}}`.

Hugging Face's other spellings are accepted at the top level and in the section they belong to.
"""

CLI_HEAD = f"""{MADE}

# The command line

Every command takes `--json` and `--lang`.
Answers go to stdout, errors to stderr.
With `--json` errors also go to stdout, as an object of the `errors` schema.
`TUNEPLAN_LANG` sets the language where `--lang` does not, else the locale does (`LC_ALL`,
`LC_MESSAGES`, `LANG`).
`SOURCE_DATE_EPOCH` stands for the clock where an answer is to be made again.

| exit status | meaning |
|---|---|
| 0 | answered |
| 1 | a defect of tuneplan; `TUNEPLAN_TRACEBACK=1` shows where |
| 2 | something in the input is to be corrected |
| 3 | nothing fits (only with `--require-fit`) |
| 130 | interrupted |
"""

ERRORS_HEAD = f"""{MADE}

# Errors

An error for people says where, what, the nearest valid choices, and how to put it right:

```text
job.yaml:6: training.max_lenght: there is no key training.max_lenght
    nearest: training.max_length
    to fix: write training.max_length
```

With `--json` the same stands on stdout (`tuneplan schema errors`):
`{{schema_version, errors[{{code, message, path, line, file, value, near[], how_to_fix}}]}}`.

In Python each error is an exception of this tree; `.mistakes` holds the list.
"""


def job_page() -> str:
    """Every key of the job file, section by section."""
    full = (ROOT / "tests" / "contract" / "jobs" / "full.yaml").read_text(encoding="utf-8")
    parts = [JOB_HEAD, f"A full one:\n\n```yaml\n{full}```\n"]
    for path, section in sections().items():
        title = f"`{path}`" if path else "Top level"
        parts.append(f"## {title}\n\n{(section.__doc__ or '').strip()}\n")
        parts.append("| key | type | blank | other spellings | meaning |\n|---|---|---|---|---|")
        parts += [_job_row(path, section, name) for name in section.model_fields]
        parts.append("")
    parts.append("## Accepted and left aside\n")
    parts.append(
        "At the top level and in `training`, since they change neither memory nor time nor cost:"
    )
    parts.append(", ".join(f"`{name}`" for name in sorted(IRRELEVANT)) + ".")
    return "\n".join(parts) + "\n"


def _job_row(path: str, section: type[Section], name: str) -> str:
    field = section.model_fields[name]
    full = f"{path}.{name}".lstrip(".")
    reader = next((item for item in field.metadata if isinstance(item, Reader)), None)
    if reader is None:
        kind, blank = f"[section](#{full.replace('.', '')})", "–"
    else:
        kind = reader.describes + ("; a list is a choice" if reader.many else "")
        blank = blank_meaning(full)
    spellings = [
        f"`{written}`"
        for s in SPELLINGS
        if full in s.targets
        for written in s.written
        if written != name
    ]
    return f"| `{name}` | {kind} | {blank} | {', '.join(spellings)} | {field.description} |"


def cli_page() -> str:
    """The help text of every command."""
    parts = [CLI_HEAD]
    for words, command in _commands(cli, ("tuneplan",)):
        parts.append(f"## {' '.join(words)}\n\n```text")
        context: click.Context | None = None
        for word in words:
            settings = cli.context_settings if context is None else {}
            last = command if word == words[-1] else cli
            context = click.Context(last, info_name=word, parent=context, **settings)
            context.terminal_width = 80
        if context is not None:
            parts.append(command.get_help(context) + "\n```\n")
    return "\n".join(parts)


def _commands(
    command: click.Command, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _commands(inner, (*words, name))


def errors_page() -> str:
    """The exceptions, and every code with its sentence."""
    tree = (errors.__doc__ or "").partition("::")[2].rpartition('"Does not fit"')[0]
    lines = [line.removeprefix("    ") for line in tree.strip("\n").splitlines()]
    parts = [ERRORS_HEAD, "```text", "\n".join(lines).strip("\n"), "```\n"]
    parts.append('"Does not fit" is an answer, not an error.\n\n## Codes\n')
    parts.append("Codes are stable; the sentences are not, and read in the language of `--lang`.")
    parts.append(
        "Errors, their remedies and the warnings in answers share the list.\n\n"
        "| code | sentence |\n|---|---|"
    )
    for code, template in sorted(set(_messages())):
        sentence = template.replace("|", "\\|").replace("\n", " ")
        parts.append(f"| `{code}` | {sentence} |")
    return "\n".join(parts) + "\n"


def _messages() -> Iterator[tuple[str, str]]:
    """Every ``message("code", "template", ...)`` of the source."""
    for path in sorted((SOURCE / "tuneplan").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            texts = [a.value for a in node.args[:2] if isinstance(a, ast.Constant)]
            if node.func.id in ("message", "_") and len(texts) == 2:
                yield str(texts[0]), str(texts[1])


LINT = "docs/reference/lint"


def lint_pages() -> dict[str, Callable[[], str]]:
    """The list of the rules, and a page for each."""
    pages: dict[str, Callable[[], str]] = {f"{LINT}/index.md": lambda: lint_index(MADE)}
    for name in RULES:
        pages[f"{LINT}/{name}.md"] = partial(lint_page, name, MADE)
    return pages


PAGES = {
    **lint_pages(),
    "docs/reference/job.md": job_page,
    "docs/reference/cli.md": cli_page,
    "docs/reference/errors.md": errors_page,
    "docs/reference/frameworks.md": lambda: f"{MADE}\n\n{frameworks_page()}",
}


def all_pages() -> Iterator[tuple[str, str]]:
    """File and text of every page: the made ones, then those that show commands."""
    for name, make in PAGES.items():
        yield name, make()
    for path in pages_with_blocks(ROOT):
        name = path.relative_to(ROOT).as_posix()
        if name not in PAGES:
            yield name, with_answers(path.read_text(encoding="utf-8"), ROOT)


def outdated() -> Iterator[tuple[Path, Callable[[], str]]]:
    """Files that do not say what the code says, and what makes each anew."""
    for name, text in all_pages():
        path = ROOT / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield path, partial(str, text)
    yield from outdated_pictures(ROOT)


def main(arguments: list[str]) -> int:
    """Write the pages, or check them."""
    found = 0
    for path, make in outdated():
        name = path.relative_to(ROOT).as_posix()
        if "--check" in arguments:
            print(f"{name} is out of date: run python tools/make_reference.py")
            found = 1
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(make(), encoding="utf-8")
            print(f"wrote {name}")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
