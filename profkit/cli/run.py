"""`profkit run`: capture and triage in one go."""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any, Final

import click

from profkit.cli.capture import DEFAULT_FOLDER, captured, folder_for, window_options
from profkit.cli.shared.command import Launcher, command_line_argument, required
from profkit.cli.shared.options import PLACE, Option, color_option, format_option, output_option, verbose_option
from profkit.cli.shared.output import format_for, is_standard_output
from profkit.cli.shared.say import say
from profkit.errors import ProfkitError, UsageError, fault

_FILE_SUFFIX: Final = re.compile(r"\.[A-Za-z]{2,8}")
"""The end of a file's name, of any format, rather than of a folder's ("v1.2")."""


@click.command("run", cls=Launcher, short_help="Profile a script and give the verdict.")
@format_option("triage")
@output_option("the report", is_file=False)
@click.option(
    "--folder",
    cls=Option,
    type=click.Path(file_okay=False, path_type=Path),
    metavar=PLACE,
    show_default=DEFAULT_FOLDER,
    help="Keep the traces in this folder.",
)
@window_options
@verbose_option("every table (kernels, operators, calls, checks)")
@color_option
@command_line_argument()
def command(
    fmt: str | None,
    output: Path | None,
    folder: Path | None,
    verbose: bool,
    color: bool | None,
    command_line: tuple[str, ...],
    overwrite: bool,
    **chosen: Any,
) -> int:
    """Run COMMAND to its end, record a few of its training steps, and say where their time goes.

    The report goes to -o, else to standard output if that is a terminal, else to standard error: what is piped on is
    the script's. The exit code is the command's own; only with --strict it is 4 if that is 0 and nothing was recorded.

    \b
    Examples:
      profkit run --steps 10 -- python train.py
      profkit run -o report.md -- python train.py      the report as a file, in the format of its suffix
      profkit run -f json -o r.out -- python train.py  in the format named
    """
    required(command_line, "profkit run -- python train.py")
    report, place = _places(fmt, output, folder)
    shown = _report_options(fmt, report, verbose=verbose, color=color)  # what is wrong with them is said before the run
    kept = folder_for(place, overwrite=overwrite, is_strict=chosen["strict"], flag="--folder")
    done = captured(command_line, kept, {**chosen, "overwrite": overwrite})
    if not done.has_trace:
        say("no report: nothing was recorded; the exit code is the command's own")
    if done.has_trace:
        try:
            _triage(done.folder, shown, is_file=report is not None)
        except (OSError, click.ClickException):  # it cannot be printed
            raise
        except Exception as error:  # the run is over, and whoever waits for it asks how the command ended
            if done.is_strict:
                raise
            from profkit.cli import complain

            complain(error if isinstance(error, ProfkitError) else fault(error, "writing the report", str(done.folder)))
    return done.leave()


def _places(fmt: str | None, output: Path | None, folder: Path | None) -> tuple[Path | None, Path | None]:
    """Where the report goes, and the traces. `-o` once named the folder, and does where it names no kind of report."""
    if output is None or fmt is not None or folder is not None:
        return output, folder
    from profkit.render import format_of

    try:
        format_of(output, "triage")
    except UsageError:
        if is_standard_output(output):
            return output, folder
        if _FILE_SUFFIX.fullmatch(output.suffix) and not output.is_dir():
            raise
        return None, output
    return output, folder


def _report_options(fmt: str | None, report: Path | None, *, verbose: bool, color: bool | None) -> list[str]:
    """How `profkit triage` is asked for the report; raises UsageError for what it would refuse."""
    name = format_for("triage", fmt, report)
    if report is not None and not is_standard_output(report):
        if report.is_dir():
            raise UsageError(f"{report} is a folder", hint="name a file with -o, and the folder with --folder")
        if not report.parent.is_dir():
            raise UsageError(f"there is no folder {report.parent}", hint="create it first, or choose another with -o")
    options = ["-f", name, *(["-o", str(report)] if report is not None else []), *(["-v"] if verbose else [])]
    options += ["--fail-on", "never"]  # the exit code is the script's
    return options + ([] if color is None else ["--color" if color else "--no-color"])


def _triage(folder: Path, options: list[str], *, is_file: bool) -> None:
    """Give the verdict, where it cannot get between what the script writes and who reads that."""
    from profkit.cli import triage

    is_apart = is_file or sys.stdout.isatty()
    with nullcontext() if is_apart else redirect_stdout(sys.stderr):
        triage.command.main(args=[*options, "--", str(folder)], prog_name="profkit triage", standalone_mode=False)
