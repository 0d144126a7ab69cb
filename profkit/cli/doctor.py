"""`profkit doctor`: what this machine can capture."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from profkit.cli.shared.command import Command
from profkit.cli.shared.options import Option, common_options, format_option
from profkit.shell import clean


@click.command("doctor", cls=Command, short_help="What this machine can record, and how to get the rest.")
@click.option(
    "--python",
    cls=Option,
    metavar="PROGRAM",
    show_default="this one, if it has torch",
    help="The Python that runs your scripts.",
)
@format_option()
@common_options
def command(python: str | None, fmt: str) -> int:
    """Look at torch, CUDA, CUPTI, the Nsight tools, permissions and frameworks; for each missing piece, the command.

    Exit code 4 if something a capture needs is missing.

    \b
    Example:
      profkit doctor --python .venv/bin/python
    """
    from profkit.capture.doctor import checks

    found = checks(python)
    if fmt == "json":
        click.echo(json.dumps([asdict(check) for check in found], indent=1))
    else:
        for check in found:
            mark = {True: "ok     ", False: "MISSING", None: "-      "}[check.is_ok]
            click.echo(f"{mark} {check.name:18} {clean(check.seen)}")
            if check.fix:
                click.echo(f"{'':27}-> {clean(check.fix)}")
    return 4 if any(check.is_ok is False for check in found) else 0
