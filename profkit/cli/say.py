"""What the command line says beside its report: on stderr, a line each, with nothing in it that a terminal obeys."""

from __future__ import annotations

import click

from profkit.shell import clean


def say(text: str) -> None:
    """Print one line under profkit's name; names in it may come from anywhere."""
    click.echo(f"profkit: {clean(text)}", err=True)


def say_below(text: str) -> None:
    """Print one line that belongs to the one before: a command to run next, a hint."""
    click.echo(f"  {clean(text)}", err=True)
