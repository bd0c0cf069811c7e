"""The ``tuneplan`` command: its group, its exit statuses, and what an error looks like.

Exit status: 0 answered; 1 a defect of ours; 2 the user's input; 3 nothing fits (only with
``--require-fit``); 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

import click

from tuneplan._version import __version__
from tuneplan.cli.click_texts import click_speaking
from tuneplan.cli.commands import COMMANDS, LateGroup, UnknownCommand
from tuneplan.cli.options import language_of, wants_json
from tuneplan.errors import InputError, MissingExtra, Mistake, TuneplanError
from tuneplan.language import LANGUAGES, message, phrase, speaking

ANSWERED: Final = 0
OUR_DEFECT: Final = 1
USER_INPUT: Final = 2
NOTHING_FITS: Final = 3
INTERRUPTED: Final = 130
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


@click.group(
    cls=LateGroup,
    entries=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Whether an LLM fine-tuning job fits, how long it takes, what it costs, what to run it "
    "on: in honest ranges, before anything is spent.",
    epilog="Start with: tuneplan plan --model Qwen/Qwen2.5-7B-Instruct --data FILE",
)
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON on stdout.")
@click.option("--lang", type=click.Choice(LANGUAGES), help="Language of the answer.")
@click.pass_context
def cli(ctx: click.Context, *, as_json: bool, lang: str | None) -> None:  # noqa: ARG001
    """The group itself: without a command it shows the help; the flags are read by ``run``."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit status. Nothing but an exit of click's own escapes."""
    closed = _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(
                errors="replace"
            )  # a terminal without a sign shows "?", no traceback
    as_json = wants_json(arguments)
    if closed:
        return _nowhere_to_answer(phrase("it is closed"))
    try:
        language = language_of(arguments)
        with speaking(language), click_speaking(language):
            return _run(arguments, as_json=as_json)
    except BrokenPipeError:
        # The reader has seen enough (`| head`). Python would complain once more at exit.
        _drop(sys.stdout)
        return ANSWERED


def _open_streams() -> bool:
    """Put nothing in the place of a stream that was closed (``>&-``); whether stdout was."""
    was_closed = sys.stdout is None
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nothing = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end
            setattr(sys, name, nothing)
    return was_closed


def _drop(stream: TextIO) -> None:
    """Send what is still to be written nowhere, so that Python is silent when it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _nowhere_to_answer(reason: str) -> int:
    _drop(sys.stdout)
    text = message("no_output", "standard output cannot be written: {reason}", reason=reason)
    return _refuse((Mistake(message=text),), as_json=False, status=USER_INPUT)


def _run(arguments: Sequence[str], *, as_json: bool) -> int:
    try:
        status = cli.main(list(arguments), prog_name="tuneplan", standalone_mode=False)
        sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt):
        click.echo(str(message("interrupted", "interrupted")), err=True)
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except click.ClickException as error:
        return _refuse((_usage_mistake(error),), as_json=as_json, status=USER_INPUT)
    except TuneplanError as error:
        status = USER_INPUT if isinstance(error, InputError | MissingExtra) else OUR_DEFECT
        return _refuse(error.mistakes, as_json=as_json, status=status)
    except OSError as error:
        if error.errno in _FULL:  # files of ours and of the user are handled where they are used
            return _nowhere_to_answer(error.strerror or str(error))
        return _confess(error, as_json=as_json)
    except Exception as error:  # the last line of defence: no traceback for users
        return _confess(error, as_json=as_json)
    return status if isinstance(status, int) else ANSWERED


def _refuse(mistakes: Sequence[Mistake], *, as_json: bool, status: int) -> int:
    from tuneplan.report.errors import errors_document, errors_text

    sys.stdout.flush()
    try:
        click.echo(errors_text(mistakes), err=True)
        sys.stderr.flush()
    except OSError:  # where stderr is full or closed, the status still tells
        _drop(sys.stderr)
    if as_json:
        import json

        click.echo(json.dumps(errors_document(mistakes), ensure_ascii=False, indent=2))
        sys.stdout.flush()
    return status


def _usage_mistake(error: click.ClickException) -> Mistake:
    """A misuse of the command line, as one of our mistakes."""
    near: list[str] = list(getattr(error, "possibilities", None) or ())
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "tuneplan"
    if isinstance(error, UnknownCommand):
        from difflib import get_close_matches

        near = get_close_matches(error.command_name, list(COMMANDS), n=3, cutoff=0.4)
    return Mistake(
        message=message("usage", "{problem}", problem=_problem(error)),
        path=where,
        near=tuple(near),
        how_to_fix=message("see_help", "see {command} --help", command=where),
    )


def _problem(error: click.ClickException) -> str:
    """What click says is wrong, on one line; a missing argument has no message of its own."""
    written = error.message or error.format_message()
    return " ".join(written.partition(" Did you")[0].split())


def _confess(error: Exception, *, as_json: bool) -> int:
    if os.environ.get("TUNEPLAN_TRACEBACK") == "1":
        import traceback

        traceback.print_exception(error)
    text = message(
        "internal_error",
        "this is a defect of tuneplan, not of your input: {kind}: {text}",
        kind=type(error).__name__,
        text=str(error)[:500],
    )
    fix = message(
        "report_defect",
        "please report it with the output of the same command under TUNEPLAN_TRACEBACK=1",
    )
    return _refuse((Mistake(message=text, how_to_fix=fix),), as_json=as_json, status=OUR_DEFECT)
