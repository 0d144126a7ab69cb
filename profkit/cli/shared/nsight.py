"""What `profkit nsys` and `profkit ncu` share: the window, the line as it is shown, and how a run went."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from profkit import files, signing
from profkit.cli.capture import folder_for
from profkit.cli.shared.options import common_options, overwrite_option, step_on_option, together, window_steps
from profkit.cli.shared.say import say, say_below
from profkit.errors import UsageError
from profkit.shell import line_of, may_run_python, path_word

_DISCARD: Final = "--discard-environment=true"
_DISCARD_IF_KNOWN: Final = f"$(nsys profile --help 2>&1 | grep -q discard-environment && echo {_DISCARD})"
"""The flag as a shell finds it out where it is not known what the installed nsys can do."""
UNBUFFERED: Final = {"PYTHONUNBUFFERED": "1"}  # under a tool stdout is a pipe
_RUN: Final = "PROFKIT_RUN"
"""Tells the recordings of this run from others in the temporary folder: they hold the environment."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is run: the user's command inside the tool's, what the traced process is told, and why each flag."""

    tool: Any
    words: tuple[str, ...]
    options: Any
    line: Any
    is_whole: bool

    @property
    def has_hooks(self) -> bool:
        """Whether the hooks of `profkit capture` go into the traced process: to open the range, or to mark steps."""
        return not self.is_whole or bool(self.options.marks_only)

    @property
    def variables(self) -> dict[str, str]:
        """The variables that the printed line sets."""
        from profkit.capture.runner import environment

        return UNBUFFERED | (environment(self.options, os.environ) if self.has_hooks else {})


tool_options: Final = together(
    step_on_option,
    window_steps,
    click.option("--whole", is_flag=True, help="Record the whole run, not only steady steps; works without CUDA."),
    overwrite_option,
    click.option(
        "--dry-run",
        is_flag=True,
        help="Print the command line, and on stderr the reason for each flag; run nothing.",
    ),
    common_options,
)
"""The options that `nsys` and `ncu` both have."""


def runs_python(launch: Any) -> bool:
    """Whether the command may run Python, in which alone profkit finds steps."""
    return not _is_without_python((*launch.before, *launch.program), launch.program[0])


def records_all(launch: Any) -> bool:
    """Whether the whole run must be recorded, since no Python opens the range of its steps; says so."""
    if runs_python(launch):
        return False
    say(f"{Path(launch.program[0]).name} is not Python, and nothing else opens a range of steps: as with --whole")
    return True


def _is_without_python(words: Sequence[str], program: str) -> bool:
    """Whether neither the words of a command nor the head of its program name Python.

    What is not found here, or is a script of another kind, may start Python all the same.
    """
    if may_run_python(words):
        return False
    path = shutil.which(program)
    try:
        return path is not None and not files.read_head(Path(path), 2).startswith(b"#!")
    except OSError:
        return False


def output_folder(output: Path | None, name: str, *, overwrite: bool, is_dry: bool) -> Path:
    """The folder for reports; a dry run takes the name as it is."""
    if is_dry:
        return (output or Path(name)).absolute()
    return folder_for(output, overwrite=overwrite, default=name)


def show(job: Job) -> None:
    """Print the line so that it can be pasted, without the secrets in it, and why it is as it is on stderr."""
    from profkit.capture.command import redacted_command

    made = redacted_command(["mkdir", "-p", job.options.folder])  # the tools do not make it
    variables = " ".join(_assignment(name, value) for name, value in job.variables.items())
    line = f"{made} && {variables} {redacted_command(job.words)}"
    name = job.tool.name
    if job.tool.flags is None:
        line = line.replace(_DISCARD, _DISCARD_IF_KNOWN, 1)
    click.echo(line)
    if not job.tool.path:
        say(f"no {name} on PATH: these are the flags of the newest version; run it where {name} is installed")
    elif job.tool.flags is None:
        say(f"{name} did not list its flags: these are the flags of the newest version")
    else:
        say(f"flags of {name} {job.tool.version}")
    for flag, why in job.line.reasons:
        say_below(f"{flag:44} {why}")
    if _DISCARD_IF_KNOWN in line:
        say("old versions have no --discard-environment: the line asks nsys; without it, do not share the report")
    tell_left_out(job)


def _assignment(name: str, value: str) -> str:
    """A variable as a shell takes it; quoted whole, it would be the name of a program."""
    from profkit.redact import redacted_command

    shown = redacted_command([f"{name}={value}"])[0]
    return f"{name}={shlex.quote(shown.partition('=')[2])}"


def tell_left_out(job: Job) -> None:
    """Say what the installed version cannot do; a report with an environment in it is worth a warning."""
    if job.line.left_out:
        names = ", ".join(job.line.left_out)
        say(f"{job.tool.name} {job.tool.version} has no {names}: left out")
    if "--discard-environment" in job.line.left_out:
        say("do not share its reports: they hold the environment with its secrets")


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """How a run went: the exit code as a shell gives it, and the reports that it left."""

    code: int
    reports: list[Path]
    orphans: tuple[Path, ...]
    """Recordings without a report, which were removed."""


def run_job(job: Job, patterns: Sequence[str]) -> Done:
    """Run the line and say which steps it recorded; reports are the files of these patterns that are new or changed."""
    from profkit.capture import runner
    from profkit.capture.outcome import outcomes_of
    from profkit.capture.tools.nsys import remove_orphans

    folder = Path(job.options.folder)
    with runner.holding(job.options) as problem:
        if problem:
            raise UsageError(problem, hint="choose another folder with -o")
        tell_left_out(job)
        old = _stamps(folder, patterns)
        begun = time.time()
        variables = {**UNBUFFERED, _RUN: job.options.capture_id}
        ran = runner.run(job.words, options=job.options if job.has_hooks else None, variables=variables, has_group=True)
        new = _stamps(folder, patterns)
        reports = sorted(path for path, stamp in new.items() if stamp != old.get(path) and path.stat().st_size)
        details = {
            "exit_code": ran.code,
            "duration_ns": ran.duration_ns,
            "tool": f"{job.tool.name} {job.tool.version}",
            "command_mark": signing.mark_of(signing.COMMAND, job.options.command.encode()),
            "reports": [path.name for path in reports],
        }
        facts = outcomes_of(job.options, details=details)
    for told in steps_told(facts, job.tool.name, is_whole=job.is_whole) if job.has_hooks else []:
        say(told)
    orphans = () if reports else remove_orphans(folder, job.options.capture_id, begun)
    return Done(code=ran.code if ran.code >= 0 else 128 - ran.code, reports=reports, orphans=orphans)


def tell_reports(done: Done, folder: Path, reads: str, shown: Path | None) -> None:
    """Say how many reports there are, and the command that reads the one shown, or all."""
    say(f"{len(done.reports)} report{'s' * (len(done.reports) != 1)} in {folder}")
    if shown is not None:
        say_below(line_of(reads, path_word(str(shown))).text)


def _stamps(folder: Path, patterns: Sequence[str]) -> dict[Path, tuple[int, int]]:
    """What tells a file from the one a former run left there: its inode and its time."""
    found = [path for pattern in patterns for path in folder.glob(pattern)]
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def steps_told(facts: Sequence[dict[str, Any]], name: str, *, is_whole: bool = False) -> list[str]:
    """A line for each rank: which steps were recorded, and what the tool cost them; or why there are none.

    What it cost is not known where the whole run was recorded (`is_whole`), the steps before the marks as well.
    """
    from profkit.units import format_ns

    told = []
    for one in facts:
        rank = f"rank {one.get('rank', 0)}"
        before, under = one.get("baseline") or {"n": 0}, one.get("profiled") or {"n": 0}
        if not under.get("n"):
            told.append(f"{rank}: no steady steps: {one.get('reason') or 'the run ended before they came'}")
            continue
        first, n_steps = one["first_step"], one["n_steps"]
        marked = " are marked" if is_whole else ""
        cost = ""
        if before.get("n") and not is_whole:
            ratio = under["mean_ns"] / max(before["mean_ns"], 1)
            times = f"{format_ns(before['mean_ns'])} before, {format_ns(under['mean_ns'])} under {name}"
            cost = f"; a step took {times} ({ratio:.2f}x)"
        told.append(f"{rank}: steps {first} to {first + n_steps - 1}{marked}, by {one['step_source']}{cost}")
    return told
