"""Where a report goes and in which format."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

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
    if output is None:
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
    if output is None:
        click.echo(text, nl=not text.endswith("\n"), color=True)
        return
    partial = output.with_name(output.name + ".part")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(output)
    except OSError as error:
        with suppress(OSError):  # what cannot be written cannot be taken away either
            partial.unlink(missing_ok=True)
        raise UsageError(f"cannot write {output}: {error.strerror}", hint="choose another folder for -o") from None
    click.echo(f"profkit: wrote {output}", err=True)


def _rendered(report: Report, fmt: str, *, verbose: bool, color: bool | None) -> str:
    if fmt == "terminal":
        from profkit.render import terminal

        return terminal.render(report, color=color, verbose=verbose)
    from profkit.render import renderer_for

    return renderer_for(fmt)(report)
