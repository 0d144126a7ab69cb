"""`profkit nsys`: a few steady steps of a training job on Nsight Systems' timeline."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import click

from profkit.cli.capture import options_of
from profkit.cli.shared.command import Launcher, command_line_argument, required
from profkit.cli.shared.nsight import (
    Done,
    Job,
    output_folder,
    records_all,
    run_job,
    runs_python,
    show,
    tell_reports,
    tool_options,
)
from profkit.cli.shared.options import output_option, ranks_option, steps_option
from profkit.cli.shared.say import say, say_below
from profkit.errors import UsageError

DEFAULT_FOLDER = "profkit-nsys"
MARKED_STEPS = 20
"""Steps marked in a run that is recorded whole (chosen: as many as of ranks with short steps)."""


@click.command("nsys", cls=Launcher, short_help="Record steady steps with Nsight Systems.")
@output_option("a folder, for the reports", default=DEFAULT_FOLDER, is_file=False)
@steps_option("5, in whole rounds of the loader's workers")
@click.option(
    "--also", default="", metavar="waits,python,...", help="What else to record; --also help lists the words."
)
@click.option("--trace", metavar="cuda-sw,nvtx", help="What nsys traces, passed on as --trace.")
@ranks_option("all")
@tool_options
@command_line_argument()
def command(
    output: Path | None,
    also: str,
    trace: str | None,
    ranks: str,
    whole: bool,
    overwrite: bool,
    dry_run: bool,
    command_line: tuple[str, ...],
    **chosen: Any,
) -> int:
    """Run COMMAND under nsys, recording a few of its steady training steps, and export them for profkit triage.

    Nothing in the script changes; the job runs on when the recording ends; under torchrun every rank has a report. The
    exit code is COMMAND's own, 4 where nsys or a GPU is missing.

    \b
    Examples:
      profkit nsys -- python train.py --lr 3e-4
      profkit nsys --also waits -- python train.py          what the host waits for
      profkit nsys --dry-run -- torchrun --nproc-per-node 4 train.py
    """
    from profkit.capture.tools.launchers import cut, placed
    from profkit.capture.tools.nsight import find_tool, require
    from profkit.capture.tools.nsys import HELP, REPORTS, nsys_line

    wanted = _wanted(also)
    required(command_line, "profkit nsys -- python train.py")
    folder = output_folder(output, DEFAULT_FOLDER, overwrite=overwrite, is_dry=dry_run)
    tool = find_tool("nsys", HELP)
    launch = cut(command_line)
    whole = whole or records_all(launch)
    marked = _marked(chosen) if whole and runs_python(launch) else {}
    line = nsys_line(tool, target=str(folder / launch.report_name), also=wanted, trace=trace, is_whole=whole)
    job = Job(
        tool=tool,
        words=placed(launch, (tool.path or "nsys", "profile", *line.flags), ranks),
        options=options_of(folder, {**chosen, **marked, "ranks": ranks, "tool": "nsys"}, command_line),
        line=line,
        is_whole=whole,
    )
    if dry_run:
        show(job)
        return 0
    require(tool, needs_gpu=not whole, needs_counters="counters" in wanted)
    return _finish(run_job(job, REPORTS), folder, tool, is_whole=whole)


def _marked(chosen: dict[str, Any]) -> dict[str, Any]:
    """The window in which steps of a run recorded whole are marked: early, and many, since a mark costs little."""
    numbers = {"baseline": 1, "steps": MARKED_STEPS}
    return {"marks_only": True} | {name: chosen.get(name) or number for name, number in numbers.items()}


def _wanted(also: str) -> tuple[str, ...]:
    from profkit.capture.tools.nsys import ALSO

    wanted = tuple(part.strip() for part in also.split(",") if part.strip())
    if wanted == ("help",):
        for name, meaning in ALSO.items():
            click.echo(f"{name:10} {meaning}")
        raise click.exceptions.Exit(0)
    unknown = [name for name in wanted if name not in ALSO]
    if unknown:
        known = "; ".join(f"{name}: {meaning}" for name, meaning in ALSO.items())
        raise UsageError(f"--also {unknown[0]} is unknown", hint=known)
    return wanted


def _finish(done: Done, folder: Path, tool: Any, *, is_whole: bool) -> int:
    """Export the reports and say what to run next; 4 where the command went well and nsys left nothing."""
    from profkit.capture.tools.nsight import flags_of
    from profkit.capture.tools.nsys import EXPORT_HELP, export_line

    if not done.reports:
        say(f"nsys left no report in {folder}")
        for orphan in done.orphans:
            say(f"removed {orphan}: a recording without a report, which holds the environment of the run")
        hint = "" if is_whole else "--whole waits for no range of steps; "
        say_below(f"hint: {hint}nsys status --environment checks the machine")
        return done.code or 4
    exporter = flags_of(tool, EXPORT_HELP)
    exported = []
    for report in done.reports:
        export = subprocess.run(export_line(exporter, report), check=False, capture_output=True)  # noqa: S603
        if export.returncode:
            said = (export.stderr or export.stdout).decode(errors="replace")
            last = said.strip().splitlines()[-1:] or ["no word"]
            say(f"{report.name} could not be exported ({last[0]})")
        else:
            exported.append(report.with_suffix(".sqlite"))
    tell_reports(done, folder, "profkit triage", (exported[0] if len(exported) == 1 else folder) if exported else None)
    return done.code
