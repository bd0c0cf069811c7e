"""What commands there are; each is imported only when it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import cleandoc
from typing import Any, Final

import click

from tuneplan.cli.click_texts import WideFormatter
from tuneplan.frozen import dataclass
from tuneplan.language import current_language, say, translate


@dataclass(frozen=True, slots=True)
class Entry:
    """A command that is not imported yet.

    Attributes:
        module: Where it lives; the command bears the name ``command`` there.
        summary: One line for the list of commands.
    """

    module: str
    summary: str


COMMANDS: Final[dict[str, Entry]] = {
    "plan": Entry("tuneplan.cli.plan", "Which chips, how many, which settings: ranked plans."),
    "estimate": Entry(
        "tuneplan.cli.estimate", "Whether one configuration fits, how fast it is, what it costs."
    ),
    "trace": Entry(
        "tuneplan.cli.trace", "Memory from the real model code, with nothing allocated."
    ),
    "check": Entry(
        "tuneplan.cli.check",
        "Somebody's own configuration: does it fit, how long, how much, what is wrong.",
    ),
    "import": Entry("tuneplan.cli.import_", "A job file from the configuration of a framework."),
    "oom": Entry("tuneplan.cli.oom", "What ran out of memory, and the fixes, cheapest first."),
    "export": Entry("tuneplan.cli.export", "A job as ready-to-run configuration and launch files."),
    "schedule": Entry(
        "tuneplan.cli.schedule", "Several jobs on few accelerators: who runs where and when."
    ),
    "report": Entry(
        "tuneplan.cli.report", "The document to hand on: HTML, Markdown, JSON or XLSX."
    ),
    "rules": Entry("tuneplan.cli.rules", "Rules of thumb beside our answer, and why they differ."),
    "explain": Entry("tuneplan.cli.explain", "Where one figure of the estimate comes from."),
    "budget": Entry(
        "tuneplan.cli.budget", "What a whole project costs: chances, phases, week by week."
    ),
    "data": Entry("tuneplan.cli.data", "What a data set holds, in tokens."),
    "pilot": Entry("tuneplan.cli.pilot", "A short real run of a job, beside its prediction."),
    "learn": Entry("tuneplan.cli.learn", "What the logs of a run measured, beside the prediction."),
    "watch": Entry("tuneplan.cli.watch", "A live run against its plan: arrival, cost, alerts."),
    "store": Entry("tuneplan.cli.store", "The measurements that are kept: list, export, import."),
    "validate": Entry("tuneplan.cli.validate", "Predictions against measured runs."),
    "catalog": Entry(
        "tuneplan.cli.catalog", "Facts on models, accelerators and prices, with their sources."
    ),
    "prices": Entry("tuneplan.cli.prices", "Today's prices; from how many hours on an offer pays."),
    "serve": Entry("tuneplan.cli.serve", "The page: a form, and the answer while you change it."),
    "mcp": Entry("tuneplan.cli.mcp", "The interface for AI agents: tools over stdin and stdout."),
    "schema": Entry("tuneplan.cli.schema", "The JSON Schema of the job file and of each answer."),
    "completion": Entry("tuneplan.cli.completion", "The script that completes words in a shell."),
}


class SpokenCommand(click.Command):
    """A command whose help speaks the user's language."""

    def get_help(self, ctx: click.Context) -> str:
        """The help, in lines that suit the width of the characters."""
        if current_language() == "en":
            return super().get_help(ctx)
        formatter = WideFormatter(width=ctx.terminal_width, max_width=ctx.max_content_width)
        self.format_help(ctx, formatter)
        return formatter.getvalue().rstrip("\n")

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help with every sentence translated."""
        with _spoken([self, *self.get_params(ctx)]):
            super().format_help(ctx, formatter)

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first sentence of the help."""
        with _spoken([self]):
            if current_language() == "en" or not self.help:
                return super().get_short_help_str(limit)
            return self.help.partition("\n\n")[0].partition("。")[0]


@contextmanager
def _spoken(holders: list[Any]) -> Iterator[None]:
    """Within the block the texts of each holder are in the current language."""
    written = [
        (holder, name, text)
        for holder in holders
        for name in ("help", "epilog")
        if isinstance(text := getattr(holder, name, None), str)
    ]
    try:
        for holder, name, text in written:
            setattr(holder, name, translate(cleandoc(text).partition("\f")[0]))
        yield
    finally:
        for holder, name, text in written:
            setattr(holder, name, text)


class UnknownCommand(click.UsageError):
    """There is no command of this name."""

    def __init__(self, name: str, context: click.Context) -> None:
        super().__init__(say("No such command {name!r}.", name=name), context)
        self.command_name = name


class LateGroup(SpokenCommand, click.Group):
    """A group that knows its commands by name and imports only the one that runs."""

    def __init__(self, *, entries: dict[str, Entry], **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The commands in the order in which a user needs them."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        command = import_module(entry.module).command
        if not isinstance(command, click.Command):
            msg = f"{entry.module}.command is no click command"
            raise TypeError(msg)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names."""
        if args[0] not in self.entries and not args[0].startswith("-"):
            raise UnknownCommand(args[0], ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section(say("Commands")):
            formatter.write_dl([(name, say(e.summary)) for name, e in self.entries.items()])
