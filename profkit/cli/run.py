"""`profkit run`: capture and triage in one go."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
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

    The report goes to standard output if that is a terminal, else to standard error: what is piped on is the script's.
    The exit code is the command's own, 4 if that is 0 and nothing was recorded.

    \b
    Example:
      profkit run --steps 10 -- python train.py
    """
    if not command_line:
        raise UsageError("no command to run", hint="profkit run -- python train.py")
    folder = folder_for(output, overwrite=overwrite, is_strict=chosen["strict"])
    done = captured(command_line, folder, {**chosen, "overwrite": overwrite})
    if done.has_trace:
        _triage(done.folder, verbose=verbose)
    return done.leave()


def _triage(folder: Path, *, verbose: bool) -> None:
    """Print the verdict, where it cannot get between what the script writes and who reads that."""
    from profkit.cli import triage

    arguments = [str(folder), *(["-v"] if verbose else [])]
    with nullcontext() if sys.stdout.isatty() else redirect_stdout(sys.stderr):
        triage.command.main(args=arguments, prog_name="profkit triage", standalone_mode=False)


command.allow_interspersed_args = False
