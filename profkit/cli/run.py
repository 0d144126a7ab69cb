"""`profkit run`: capture and triage in one go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from profkit.cli.capture import DEFAULT_FOLDER, captured, folder_for, window_options
from profkit.errors import UsageError


@click.command("run", short_help="Profile a script and give the verdict.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help=f"Folder for the traces ({DEFAULT_FOLDER}).")
@window_options
@click.option("-v", "--verbose", is_flag=True, help="Also show every table: kernels, operators, calls, checks.")
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND")
def command(
    output: Path | None,
    verbose: bool,
    command_line: tuple[str, ...],
    overwrite: bool,
    **chosen: Any,
) -> int:
    """Run COMMAND to its end, record a few of its training steps, and say where their time goes.

    The exit code is the command's own.

    \b
    Example:
      profkit run --steps 10 -- python train.py
    """
    if not command_line:
        raise UsageError("no command to run", hint="profkit run -- python train.py")
    folder = folder_for(output, overwrite=overwrite, is_strict=chosen["strict"])
    done = captured(command_line, folder, {**chosen, "overwrite": overwrite})
    if done.has_trace:
        from profkit.cli import triage

        arguments = [str(done.folder), *(["-v"] if verbose else [])]
        triage.command.main(args=arguments, prog_name="profkit triage", standalone_mode=False)
    return done.leave()


command.allow_interspersed_args = False
