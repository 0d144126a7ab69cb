"""Where a report goes and in which format."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import click
import msgspec

from profkit import files
from profkit.cli.shared.say import say
from profkit.errors import UsageError, blamed


def format_for(document: str, fmt: str | None, output: Path | None) -> str:
    """The format asked for, or the one that the output's suffix names, or the terminal's."""
    if fmt is not None:
        return fmt
    if output is None or is_standard_output(output):
        return "terminal"
    from profkit.render import format_of

    return format_of(output, document)


class Showing(msgspec.Struct, frozen=True, kw_only=True):
    """How a document is shown, as its command was asked; colour is for terminals alone."""

    fmt: str
    output: Path | None
    color: bool | None
    verbose: bool = False
    with_paths: bool = False
    """Whether a page names folders and hosts too."""


def show(document: str, value: object, how: Showing, *, source: str) -> None:
    """Render a document and print it, or write it to a file; `source` is named where that fails."""
    from profkit.render import renderer_for

    color = False if how.output is not None else how.color
    with blamed(f"rendering it as {how.fmt}", source):
        render = renderer_for(document, how.fmt)
        text = render(value, color=color, verbose=how.verbose, with_paths=how.with_paths)
    deliver(text, how.output)


def deliver(text: str, output: Path | None) -> None:
    """Print a rendered report, or write it to a file, whole or not at all."""
    if output is None or is_standard_output(output):
        click.echo(text, nl=not text.endswith("\n"), color=True)
        return
    try:
        files.write_out(output, text.encode(errors="replace"))
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}", hint="choose another path for -o") from None
    say(f"wrote {output}")


def deliver_chunks(chunks: Iterable[bytes], output: Path) -> int:
    """Write a file piece by piece, whole or not at all, or to standard output; how many bytes there were."""
    n_bytes = 0
    try:
        with nullcontext(sys.stdout.buffer) if is_standard_output(output) else files.replacing(output) as file:
            for chunk in chunks:
                file.write(chunk)
                n_bytes += len(chunk)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot write {output}: {reason}", hint="choose another path for -o") from None
    return n_bytes


def is_standard_output(output: Path) -> bool:
    """Whether a path is standard output, which may be a file half written by others: it is added to, never replaced."""
    return str(output) in {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}
