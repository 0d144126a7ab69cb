"""Where a report goes and in which format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from profkit import files
from profkit.cli.shared.say import say
from profkit.errors import UsageError, blamed

if TYPE_CHECKING:
    from profkit.model.report import Report


class FormatChoice(click.ParamType):  # type: ignore[type-arg]
    """One of the renderers; completes their names."""

    name = "format"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Give the renderer's name."""
        from profkit.render import RENDERERS

        if value not in RENDERERS:
            self.fail(f"{value!r} is not one of {', '.join(RENDERERS)}", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Give the names that begin so."""
        from click.shell_completion import CompletionItem

        from profkit.render import RENDERERS

        return [CompletionItem(name) for name in RENDERERS if name.startswith(incomplete)]


def format_for(fmt: str | None, output: Path | None) -> str:
    """Give the format asked for, or the one that the output's suffix names, or the terminal's."""
    if fmt is not None:
        return fmt
    if output is None or is_standard_output(output):
        return "terminal"
    suffixes = {".json": "json", ".md": "markdown", ".markdown": "markdown", ".txt": "terminal"}
    if output.suffix not in suffixes:
        raise UsageError(f"no format is known for {output.name}", hint="use .json, .md or .txt, or say -f json")
    return suffixes[output.suffix]


def write(report: Report, *, fmt: str, output: Path | None, verbose: bool, color: bool | None) -> None:
    """Render a report and print it, or write it to a file."""
    with blamed(f"rendering it as {fmt}", report.verdict.source):
        text = _rendered(report, fmt, verbose=verbose, color=False if output is not None else color)
    deliver(text, output)


def deliver(text: str, output: Path | None) -> None:
    """Print a rendered report, or write it to a file, whole or not at all."""
    if output is None or is_standard_output(output):
        click.echo(text, nl=not text.endswith("\n"), color=True)
        return
    try:
        files.write_out(output, text.encode(errors="replace"))
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}", hint="choose another place for -o") from None
    say(f"wrote {output}")


def is_standard_output(output: Path) -> bool:
    """Tell a name of standard output, which may be a file half written by others: it is added to, never replaced."""
    return str(output) in {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}


def _rendered(report: Report, fmt: str, *, verbose: bool, color: bool | None) -> str:
    if fmt == "terminal":
        from profkit.render.terminal import report as terminal

        return terminal.render(report, color=color, verbose=verbose)
    from profkit.render import renderer_for

    return renderer_for(fmt)(report)
