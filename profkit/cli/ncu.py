"""`profkit ncu`: one hot kernel of a training job under Nsight Compute."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click

from profkit import files
from profkit.cli.capture import options_of
from profkit.cli.shared.command import Launcher, command_line_argument
from profkit.cli.shared.nsight import (
    Done,
    Job,
    output_folder,
    records_all,
    run_job,
    show,
    tell_reports,
    tool_options,
)
from profkit.cli.shared.options import Option, count_option, output_option, ranks_option
from profkit.cli.shared.say import say, say_below
from profkit.errors import UsageError
from profkit.redact import shown_url
from profkit.shell import CommandLine, line_of, path_word, recorded

DEFAULT_FOLDER = "profkit-ncu"
_NO_MATCH = "name and launch index come from a steady step; try --skip 0{}"
_IN_USE = "another tool reads the GPU's counters: run dcgmi profiling --pause, or end the other ncu"
_MOST_LOG_BYTES: Final = 16 * 2**20  # chosen: ncu writes a line for each pass
_STEPS = 2  # the launch counted in one step, and one more where an early one was skipped (chosen)


@click.command("ncu", cls=Launcher, short_help="Profile a hot kernel with Nsight Compute.")
@output_option("a folder, for the report", default=DEFAULT_FOLDER, is_file=False)
@click.option("--kernel", metavar="NAME", help="The kernel's name in torch, nsys or ncu, or regex:...")
@click.option("--from", "trace", type=click.Path(), metavar="TRACE", help="Profile the hottest kernel of this trace.")
@click.option("--run-recorded", is_flag=True, help="With --from: run the command that recorded the trace.")
@count_option("--skip", what="Skip so many matching launches.", default="the trace's typical one, else 0", least=0)
@count_option("--count", what="Profile so many launches.", default="1; 50 if no kernel is named")
@click.option(
    "--set",
    "section_set",
    cls=Option,
    metavar="basic|full",
    show_default="full for a named kernel, else basic",
    help="Which of ncu's metrics to read.",
)
@ranks_option("0")
@tool_options
@command_line_argument()
def command(
    output: Path | None,
    kernel: str | None,
    trace: str | None,
    run_recorded: bool,
    skip: int | None,
    count: int | None,
    section_set: str | None,
    ranks: str,
    whole: bool,
    overwrite: bool,
    dry_run: bool,
    command_line: tuple[str, ...],
    **chosen: Any,
) -> int:
    """Run COMMAND under ncu, which profiles one launch of a kernel in a steady step, replaying it many times.

    The kernel is the one named, or the hottest of a trace, in the launch that is typical there. Collectives are never
    profiled: replayed alone they wait for ever. The exit code is COMMAND's own, 4 where ncu, a GPU or the permission to
    read its counters is missing.

    \b
    Examples:
      profkit ncu --from trace.json.gz -- python train.py   its hottest kernel
      profkit ncu --from trace.json.gz                      prints the command in the trace, and runs nothing
      profkit ncu --from trace.json.gz --run-recorded       runs it
      profkit ncu --kernel vectorized_elementwise --skip 12 -- python train.py
      profkit ncu --dry-run -- python train.py
    """
    from profkit.capture.tools.launchers import cut, placed
    from profkit.capture.tools.ncu import HELP, REPORTS, ncu_line, target_of
    from profkit.capture.tools.nsight import find_tool, require

    if trace is not None:
        _refuse_two_ways(kernel, command_line, run_recorded=run_recorded)
        kernel, found_skip, known = _hottest(trace)
        skip = found_skip if skip is None else skip
        command_line = command_line or _recorded(trace, known, may_run=run_recorded)
    if not command_line or (run_recorded and trace is None):
        raise UsageError("no command to run", hint="profkit ncu --kernel NAME -- python train.py")
    target = target_of(kernel, skip=skip, count=count)
    folder = output_folder(output, DEFAULT_FOLDER, overwrite=overwrite, is_dry=dry_run)
    tool = find_tool("ncu", HELP)
    launch = cut(command_line)
    whole = whole or records_all(launch)
    is_alone = not launch.rank_variable or ranks.isdecimal()
    log = folder / "ncu.log" if is_alone else None  # of several at once, each would overwrite the others'
    line = ncu_line(
        tool,
        target=target,
        output=str(folder / launch.report_name),
        log=log,
        section_set=section_set or ("basic" if kernel is None else "full"),
        is_whole=whole,
    )
    asked = {"steps": _STEPS, **chosen, "ranks": ranks if launch.rank_variable else "all", "tool": "ncu"}
    job = Job(
        tool=tool,
        words=placed(launch, (tool.path or "ncu", *line.flags), ranks),
        options=options_of(folder, asked, command_line),
        line=line,
        is_whole=whole,
    )
    if dry_run:
        show(job)
        return 0
    require(tool, needs_gpu=True, needs_counters=True)
    _remove_former(log)
    return _finish(run_job(job, REPORTS), folder, tool, log, is_whole=whole)


def _refuse_two_ways(kernel: str | None, command_line: tuple[str, ...], *, run_recorded: bool) -> None:
    """Raise UsageError where something that comes from the trace is given as well."""
    if kernel is not None:
        raise UsageError("--kernel and --from both name a kernel", hint="give one of them")
    if run_recorded and command_line:
        raise UsageError(
            "--run-recorded takes the command from a trace",
            hint="profkit ncu --from TRACE --run-recorded, and no command",
        )


def _remove_former(log: Path | None) -> None:
    """Remove the log of a former run; raises UsageError for what is no file."""
    try:
        if log is not None:
            log.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot replace {log}: {error.strerror}", hint="choose another folder with -o") from None


def _hottest(trace: str) -> tuple[str, int | None, CommandLine | None]:
    """The kernel with the most time, its typical launch in a step, and the command that the trace was made with.

    Raises UsageError for a trace without kernels.
    """
    from profkit.ingest.discover import find_sources
    from profkit.ingest.read import read_traces
    from profkit.pipeline import analyse

    shown = shown_url(trace)
    read = next(read_traces(find_sources([trace])[0]))  # the first rank's: under torchrun it is the one profiled
    kernels = analyse(read).results.get("kernels")
    if kernels is None or kernels.scope.is_cpu or not kernels.top:
        raise UsageError(
            f"{shown} holds no kernels", hint="ncu profiles GPU kernels; profkit triage analyses this trace"
        )
    top = kernels.top[0]
    say(f"hottest in {shown}: {top.name[:100]}, {top.count} launches")
    return top.name, top.typical_launch, recorded(read.meta.metadata.get("profkit_command"))


def _recorded(trace: str, known: CommandLine | None, *, may_run: bool) -> tuple[str, ...]:
    """Print the command in a trace and give its words; raises UsageError unless the user has asked for it to be run.

    Whoever wrote the trace chose it: it may be anything. It is run as its words, by no shell.
    """
    from profkit.capture.command import REDACTED

    shown = shown_url(trace)
    yours = line_of("profkit ncu --from", path_word(shown), "--").text
    if known is None:
        raise UsageError(f"{shown} names no command that can be run", hint=f"give it: {yours} COMMAND")
    say(f"{shown} was recorded with: {known.text}")
    if any(REDACTED in word for word in known.words):
        raise UsageError("secrets were removed from that command", hint=f"give the whole command: {yours} COMMAND")
    if not may_run:
        raise UsageError(
            "profkit runs a command from a trace only with --run-recorded",
            hint=f"read it, then add --run-recorded, or: {yours} COMMAND",
        )
    return known.words


def _finish(done: Done, folder: Path, tool: Any, log: Path | None, *, is_whole: bool) -> int:
    """Print the raw page beside each report and say what to run next; 4 where ncu could not do its part."""
    from profkit.capture.tools.nsight import counters_error

    said = "" if log is None else _log_of(log)
    if "ERR_NVGPUCTRPERM" in said:
        raise counters_error()
    if not done.reports:
        errors = [line for line in said.splitlines() if line.startswith("==ERROR==")] or [
            "no launch matched" if log is not None else "see the output of ncu above"
        ]
        say(f"ncu left no report in {folder}: {errors[0]}")
        no_match = _NO_MATCH.format("" if is_whole else ", or --whole")
        say_below(f"hint: {_IN_USE if 'driver resource' in errors[0] else no_match}")
        return done.code or 4
    for report in done.reports:
        _write_page(tool, report)
    tell_reports(done, folder, "profkit kernels", done.reports[0] if len(done.reports) == 1 else folder)
    return done.code


def _log_of(log: Path) -> str:
    """The end of what ncu has logged; nothing of what is no file of its own."""
    with suppress(OSError), files.open_file(log, follow=False) as file:
        file.seek(max(file.seek(0, os.SEEK_END) - _MOST_LOG_BYTES, 0))
        return file.read(_MOST_LOG_BYTES).decode(errors="replace")
    return ""


def _write_page(tool: Any, report: Path) -> None:
    """Write the raw page of a report beside it, as ncu prints it."""
    from profkit.capture.tools.ncu import page_line

    page = subprocess.run(page_line(tool, report), check=False, capture_output=True)  # noqa: S603
    if page.returncode or not page.stdout:
        return
    target = report.with_suffix(".csv")
    try:
        files.write_whole(target, page.stdout)
    except OSError as error:
        say(f"{target.name} could not be written: {error.strerror}")
