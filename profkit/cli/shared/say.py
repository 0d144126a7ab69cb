"""What the command line says beside its report: on stderr, a line each, without secrets or what a terminal obeys."""

from __future__ import annotations

import click

from profkit.redact import redacted_text
from profkit.shell import clean


def say(text: str) -> None:
    """Print one line under profkit's name; names in it may come from anywhere."""
    click.echo(f"profkit: {_harmless(text)}", err=True)


def say_below(text: str) -> None:
    """Print one line that belongs to the one before: a command to run next, a hint."""
    click.echo(f"  {_harmless(text)}", err=True)


def _harmless(text: str) -> str:
    """Text for a line: names, URLs and the words of other programs in it are strangers'."""
    return clean(redacted_text(text))
