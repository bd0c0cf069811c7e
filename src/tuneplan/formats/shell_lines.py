"""A launch script as a configuration: the arguments of the training command are its keys.

The tree: every long option without its dashes (``_`` for ``-`` inside; dots make sections, as in
``--train.epochs 3``), ``name=value`` words behind the program likewise, and ``shell``, which holds
what the launcher says::

    shell.launcher      torchrun, deepspeed, accelerate, python, ...; the innermost that spreads
    shell.program       finetune.py, fastchat.train.train, swift, llamafactory-cli, tune, ...
    shell.words         plain words behind it: [sft], [train, config.yaml]
    shell.options.*     what the launchers are told: nproc_per_node, config_file, ...
    shell.environment.* variables that the program sees: NPROC_PER_NODE, CUDA_VISIBLE_DEVICES, ...
    shell.scheduler.*   options of srun and of #SBATCH lines: nodes, gres, ...
    shell.configuration a file that the program is given; its keys are in the tree as well
    shell.also          other commands of the script that may train too and were not read
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from tuneplan.errors import UnreadableFile
from tuneplan.formats.foreign import ForeignDocument
from tuneplan.formats.shell_document import DocumentBuilder
from tuneplan.formats.shell_launch import Launch, launch_in, launcher_of, option_name
from tuneplan.formats.shell_values import Scope, Token, declared
from tuneplan.formats.shell_words import Command, Word, commands_of, open_quote_of
from tuneplan.language import message
from tuneplan.spec.answer import Notice

_DEEPEST: Final = 4  # bash -c "bash -c '...'"
_MOST_ARGUMENTS: Final = 5_000
_DIRECTIVE: Final = re.compile(r"^#(?:SBATCH|PBS|BSUB)\s+--?([\w-]+)(?:[ =]+(\S+))?", re.MULTILINE)
_FENCE: Final = re.compile(r"^[ \t]*```.*$", re.MULTILINE)
_PROMPT: Final = re.compile(r"^[ \t]*(?:!|[%$>][ \t]+)(?=[A-Za-z_./])", re.MULTILINE)


def parse_shell(text: str, *, name: str) -> ForeignDocument:
    """The training command of a launch script, or of a pasted command line.

    Raises:
        UnreadableFile: No command in it starts a training that is known here, or its variables
            grow without end.
    """
    scheduler = _directives(text)
    text = _PROMPT.sub(_blanked, _FENCE.sub("", text))
    scope = Scope(name=name)
    for option, variable in (("nodes", "SLURM_NNODES"), ("nodes", "SLURM_JOB_NUM_NODES")):
        if option in scheduler:
            scope.variables[variable] = (scheduler[option].text,)
    commands = commands_of(text)
    launches = _launches(commands, scope, 0)
    launches = [launch for launch in launches if launch.weight] or launches
    if not launches:
        raise _no_launch(name)
    chosen = max(launches, key=lambda launch: launch.weight)
    builder = DocumentBuilder(name, scope, scheduler)
    builder.notices.extend(_stray_options(commands))
    open_quote = open_quote_of(text)
    if open_quote is not None:
        told = message(
            "open_quote",
            "the quote that begins on line {line} is never closed: a shell would refuse it, and "
            "all behind it is one word here",
            line=open_quote,
        )
        builder.notices.append(Notice(message=told, line=open_quote))
    return builder.document(chosen, launches)


def _stray_options(commands: Sequence[Command]) -> list[Notice]:
    """Options that a comment, or a line that does not go on, cut off from their command."""
    return [
        Notice(
            message=message(
                "stray_option",
                "{option} on line {line} belongs to no command, so it has no effect: a comment, or "
                "a line without \\ at its end, ended the command before",
                option=command.words[0].bare.strip()[:60],
                line=command.words[0].line,
            ),
            line=command.words[0].line,
        )
        for command in commands[1:]
        if command.depth == 0 and command.words[0].bare.startswith("--")
    ]


def shell_like(text: str) -> bool:
    """Whether a text without a telling name reads as a launch script."""
    if text.startswith("#!") and "sh" in text.partition("\n")[0]:
        return True
    try:
        first = [token for command in commands_of(text)[:200] for token in command.words[:1]]
    except (RecursionError, UnreadableFile):
        return False
    names = [word.bare.rpartition("/")[2] for word in first]
    return any(launcher_of(item) or item in ("swift", "llamafactory-cli") for item in names)


def _blanked(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _directives(text: str) -> dict[str, Token]:
    found: dict[str, Token] = {}
    for match in _DIRECTIVE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        found[match[1].replace("-", "_")] = Token(match[2] or "true", line)
    return found


def _no_launch(name: str) -> UnreadableFile:
    return UnreadableFile(
        message(
            "no_launch",
            "{path} starts no training that is known here: looked for torchrun, deepspeed, "
            "accelerate launch, python, swift, llamafactory-cli, axolotl, tune run, litgpt, trl",
            path=name,
        ),
        path=name,
    )


# --- from commands to launches --------------------------------------------------------------------


def _launches(commands: Iterable[Command], scope: Scope, depth: int) -> list[Launch]:
    found: list[Launch] = []
    for command in commands:
        if command.words[0].bare == "for":
            _loop_variable(command.words, scope)
            continue
        declaring, exports = declared(command)
        words, environment = _assignments(declaring, command, scope, exports=exports)
        tokens = [token for word in words for token in scope.expand(word)][:_MOST_ARGUMENTS]
        if not tokens:
            continue
        launch = launch_in(tokens, environment)
        if launch is not None:
            found.append(launch)
        elif depth < _DEEPEST:
            found.extend(_inner(tokens, scope, depth))
    return found or _bare_arguments(commands, scope, depth)


def _loop_variable(words: Sequence[Word], scope: Scope) -> None:
    """``for X in a b``: the first pass counts."""
    values = [token for word in words[3:] for token in scope.expand(word)]
    if len(words) > 3 and values:
        scope.variables[words[1].bare] = (values[0].text,)


def _assignments(
    words: Sequence[Word], command: Command, scope: Scope, *, exports: bool
) -> tuple[Sequence[Word], dict[str, Token]]:
    """Take the assignments in front of a command; those of a command go to its environment."""
    environment: dict[str, Token] = {}
    inside = Scope(variables=dict(scope.variables), name=scope.name)
    at = 0
    while at < len(words):
        name = inside.assign(words[at], guarded=command.depth > 0)
        if name is None:
            break
        environment[name] = inside.held(name, words[at].line)
        at += 1
    alone = at == len(words)
    if alone or exports:
        scope.variables.update(inside.variables)
    if exports:
        names = [*environment, *(word.bare for word in words[at:])]
        scope.exported.update(dict.fromkeys(names, command.words[0].line))
        return (), {}
    return words[at:], {} if alone else environment


def _inner(tokens: Sequence[Token], scope: Scope, depth: int) -> list[Launch]:
    """``bash -c "..."``, ``eval ...``, ``srun ... bash -c "..."``: commands inside a word."""
    at, inner = _command_text(tokens)
    if not inner:
        return []
    shifted = "\n" * (tokens[at].line - 1) + inner
    return [
        replace(launch, wrapper=(*tokens[:at], *launch.wrapper))
        for launch in _launches(commands_of(shifted), scope, depth + 1)
    ]


def _command_text(tokens: Sequence[Token]) -> tuple[int, str]:
    """Where a command inside a word is called, and its text; no text where there is none."""
    names = [token.text.rpartition("/")[2] for token in tokens]
    for at, name in enumerate(names[:-1]):
        if name == "eval":
            return at, " ".join(token.text for token in tokens[at + 1 :])
        if name in ("bash", "sh", "zsh") and re.fullmatch(r"-\w*c", names[at + 1]):
            return at, tokens[at + 2].text if at + 2 < len(tokens) else ""
    return 0, ""


def _bare_arguments(commands: Iterable[Command], scope: Scope, depth: int) -> list[Launch]:
    """Options without a program, as people paste them."""
    for command in commands if depth == 0 else ():
        tokens = [token for word in command.words for token in scope.expand(word)]
        options = sum(option_name(token.text) is not None for token in tokens)
        if options >= 2 and tokens[0].text.startswith("--"):
            return [Launch(program=Token("", tokens[0].line), arguments=tuple(tokens))]
    return []
