"""A command whose help keeps to the terminal: examples beside what they show, or above it where there is no room."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from profkit.cli.shared.columns import side_by_side
from profkit.errors import UsageError

_EXAMPLES: Final = re.compile(r"\x08\s*\n(Examples?:|Start here:)\n")
_BETWEEN: Final = re.compile(r"\s{2,}")


class Command(click.Command):
    """A command whose docstring may end with `\\b` and `Examples:`, a command a line, two spaces, what it shows."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help, its examples laid out to the formatter's width."""
        write_help(self.help, formatter)


class Launcher(Command):
    """A command that runs another one, whose words stand at its end and are none of its own options."""

    allow_interspersed_args = False


def command_line_argument(metavar: str = "-- COMMAND") -> Callable[[Any], Any]:
    """The words of the command that a launcher runs."""
    return click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar=metavar)


def required(words: Sequence[str], example: str) -> None:
    """Raise UsageError, with an example, where no command to run is given."""
    if not words:
        raise UsageError("no command to run", hint=example)


def write_help(text: str | None, formatter: click.HelpFormatter) -> None:
    """Write a command's help text."""
    whole = inspect.cleandoc(text or "")
    found = _EXAMPLES.search(whole)
    prose = whole[: found.start()] if found else whole
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(prose.strip())
        if found is None:
            return
        formatter.write_paragraph()
        formatter.write(f"{'':{formatter.current_indent}}{found[1]}\n")
        with formatter.indentation():
            lines = [line.strip() for line in whole[found.end() :].splitlines() if line.strip()]
            split = (_BETWEEN.split(line, maxsplit=1) for line in lines)
            rows = [(command, "".join(note)) for command, *note in split]
            shown = side_by_side(rows, formatter.width, " " * formatter.current_indent)
            formatter.write("".join(f"{line}\n" for line in shown))
