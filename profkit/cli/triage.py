"""`profkit triage`: from traces to a verdict, and the gate: which findings fail it, and over which limit."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from profkit.allocator import collector_paused
from profkit.cli.shared.command import Command
from profkit.cli.shared.newest import newest_capture
from profkit.cli.shared.numeric import load_numpy
from profkit.cli.shared.options import (
    PLACE,
    Option,
    count_option,
    lenient_option,
    report_options,
    showing,
    step_range_option,
)
from profkit.cli.shared.output import Showing, show
from profkit.cli.shared.progress import ReadingProgress
from profkit.cli.shared.say import say, say_below
from profkit.cli.shared.settings import NEVER, Settings, settings
from profkit.errors import ProfkitError, UsageError, blamed
from profkit.model.finding import SEVERITY_FROM, Finding, Severity, severity_of
from profkit.units import format_fraction

if TYPE_CHECKING:
    from profkit.crosscheck.sources import Sources
    from profkit.model.documents.probe import ProbeReport
    from profkit.model.documents.report import Report
    from profkit.ranks.reduce.options import Options

SEVERITIES: Final = (*(one.value for one in Severity), NEVER)
_SHOWN: Final = 5
_LONGEST: Final = 240
_PARALLEL_FROM_BYTES = 2 * 2**20  # compressed; below, starting threads or processes costs more than it gives
_MAX_AUTO_JOBS = 4
_M_MMAP_THRESHOLD = -3  # of <malloc.h>
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_KEPT_BYTES = 32 * 2**20  # the most that glibc takes as a threshold of mmap


@click.command("triage", cls=Command, short_help="The verdict on one trace or several.")
@click.argument("paths", nargs=-1, type=click.Path(allow_dash=True), metavar="[TRACE]...")
@report_options("triage")
@step_range_option
@click.option(
    "--command",
    metavar="COMMAND",
    help="Name your command (python train.py ...) in the next commands: one program and its arguments.",
)
@click.option(
    "--fail-on",
    cls=Option,
    type=click.Choice(SEVERITIES),
    metavar="SEVERITY",
    show_default="as [tool.profkit] in pyproject.toml has it",
    help=f"Exit 1 if a finding has this severity or a higher one, and say which: {', '.join(SEVERITIES)}.",
)
@lenient_option
@count_option(
    "-j",
    "--jobs",
    what="Read in so many threads, or processes where Python reads alone.",
    default="0, by size",
    value=0,
    least=0,
)
@click.option(
    "--probe",
    type=click.Path(path_type=Path),
    metavar=PLACE,
    help="Use what profkit probe -o FILE.json measured of the same job; else probe.json in the folder of traces.",
)
@click.option(
    "--cache",
    cls=Option,
    type=click.Path(file_okay=False, path_type=Path),
    metavar=PLACE,
    show_default="~/.cache/profkit, if there is much to read",
    help="Keep finished ranks in this folder.",
)
@click.option("--no-cache", is_flag=True, help="Neither keep finished ranks nor use kept ones.")
@click.option(
    "--fail-fast",
    "strict",
    cls=Option,
    old=("--strict",),
    is_flag=True,
    help="Stop at the first source that cannot be read; else the report names it.",
)
@click.option("--dask", metavar="ADDRESS", help="Read ranks on a distributed cluster (tcp://host:8786).")
@showing("triage", verbose="every table (kernels, operators, calls, checks)")
def command(
    how: Showing,
    paths: tuple[str, ...],
    step_text: str | None,
    command: str | None,
    fail_on: str | None,
    probe: Path | None,
    lenient: bool,
    jobs: int,
    cache: Path | None,
    no_cache: bool,
    strict: bool,
    dask: str | None,
) -> int:
    """Read traces and say where the step time goes, what limits it, and what to run next.

    TRACE is a .json, .json.gz or .json.zst that torch.profiler wrote, an .sqlite that nsys exported, an .nsys-rep where
    nsys is installed, a folder of them, or - for standard input (JSON only). Given with a trace, another tool's
    recording of the same job (an nsys export, an ncu report) is compared with it: does it confirm the verdict?
    Without TRACE: the newest capture below this folder.

    \b
    Examples:
      profkit triage                                       what profkit capture has just recorded
      profkit triage trace.json.gz
      profkit triage trace.json.gz -v                      with all tables
      profkit triage trace.json.gz -f json | jq .verdict
      profkit triage runs/ -o report.html                  all ranks of a job, as a page that opens offline
      profkit triage runs/ -o report.md                    as markdown for an issue
      profkit triage 'runs/*rank*.json.gz' s3://b/run7/    globs; URLs (pip install 'profkit[remote]')
      profkit triage report.sqlite                         an nsys export: one rank per process
      profkit triage trace.json.gz report.sqlite           does nsys confirm what torch.profiler says?
      profkit triage trace.json.gz kernels.ncu-rep         what limits the kernels that the step goes to
      profkit triage trace.json.gz --probe probe.json      ceilings as profkit probe measured them
      profkit triage trace.json.gz --fail-on high          a gate for CI: exit code 1
      ssh node cat trace.json.gz | profkit triage -
    """
    # imports make much that stays, one trace's analysis makes no cycles worth looking for
    click.get_current_context().with_resource(collector_paused(is_last=True))
    load_numpy()
    from profkit.crosscheck.sources import sources_of
    from profkit.ranks.reduce.options import Options

    gate = gate_of(fail_on)
    paths = paths or (newest_capture(),)
    sources = sources_of(paths)
    room = _room(sources) if how.fmt == "html" else 0
    options = Options(lenient=lenient, step_range=parsed_steps(step_text), command=command, tracks_room=room)
    keeping = {"cache": cache, "is_cached": not no_cache, "is_strict": strict, "dask": dask}
    report = report_of(sources, options, jobs, keeping, probe_in(probe, paths))
    show("triage", report, how, source=report.verdict.source)
    return int(not passed(report, gate))


def probe_in(given: Path | None, paths: Sequence[str]) -> ProbeReport | None:
    """The probe to set beside the trace: the one given, else `probe.json` in a folder of traces, where that is one.

    It is read first, so that a wrong file is told before the traces are read.
    """
    beside = [Path(path) / "probe.json" for path in paths if os.path.isdir(path)]  # noqa: PTH112 - as above
    if given is None and not any(os.path.isfile(path) for path in beside):  # noqa: PTH113 - as above
        return None
    from profkit.probe.against_trace import read_probe

    if given is not None:
        return read_probe(given)
    for path in beside:
        with suppress(ProfkitError):
            return read_probe(path)
    return None


def _room(given: Sources) -> int:
    from profkit.api import room_for

    return room_for(len(given.first))


def report_of(
    given: Sources, options: Options, jobs: int, keeping: Mapping[str, Any], measured: ProbeReport | None
) -> Report:
    """The report on what was given, with what was measured beside it.

    `keeping` is for many ranks: what is kept of them, and who reads them.
    """
    sources = list(given.first)
    _tune_malloc(_largest_bytes(sources))
    with ReadingProgress() as progress:
        if len(sources) == 1:
            from profkit.api import triage

            report = triage(
                sources,
                lenient=options.lenient,
                jobs=jobs or jobs_for(sources),
                step_range=options.step_range,
                command=options.command,
                progress=progress,
                with_tracks=bool(options.tracks_room),
            )
        else:
            from profkit.cli.shared.ranks import Plan, report_on

            gc.enable()
            report = report_on(sources, options, Plan(n_workers=jobs, **keeping))
        if given.has_second:
            from profkit.crosscheck.run import Reading, handed_over

            reading = Reading(options=options, jobs=jobs or jobs_for(sources), progress=progress)
            with blamed("setting the other tool beside it", sources[0]):
                report = handed_over(report, given, reading)
    if measured is None:
        return report
    from profkit.probe.against_trace import with_probe

    return with_probe(report, measured)


def parsed_steps(text: str | None) -> tuple[int, int] | None:
    """The steps of `--step-range`, the second one excluded; raises UsageError for another form than A:B."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d*):(\d*)", text)
    if match is None:
        raise UsageError(f"--step-range {text!r} is not of the form A:B", hint="--step-range 2:8 analyses steps 2 to 7")
    return int(match[1] or 0), int(match[2]) if match[2] else sys.maxsize


def jobs_for(sources: list[str]) -> int:
    """In how many threads or processes to read these files: one where more would cost more than they give."""
    if _largest_bytes(sources) < _PARALLEL_FROM_BYTES:
        return 1
    from profkit.cli.shared.ranks import n_cores

    return min(n_cores(), _MAX_AUTO_JOBS)


def _largest_bytes(sources: list[str]) -> int:
    # not pathlib's, which raises for what is longer than a name may be
    files = [Path(source) for source in sources if source != "-" and os.path.isfile(source)]  # noqa: PTH113
    return max((file.stat().st_size for file in files), default=0)


def _tune_malloc(n_bytes: int) -> None:
    """Set glibc's allocator to a largest file of `n_bytes`; a small one is not worth the import.

    What is freed is kept for what comes next: a page that goes back to the system is made anew when it
    comes again. Only the largest columns go back when they are freed.
    Here, not in the library: the allocator belongs to the process, and this process is ours.
    """
    if sys.platform != "linux" or n_bytes < _PARALLEL_FROM_BYTES:
        return
    import ctypes  # 5 ms that a small trace need not pay

    with suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * _KEPT_BYTES)
        libc.mallopt(_M_TOP_PAD, 2 * _KEPT_BYTES)


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """What fails a report: a severity, or of some findings a share of the window."""

    fail_on: Severity | None
    asked: str
    """How that was asked for."""
    settings: Settings

    @property
    def is_open(self) -> bool:
        """Whether nothing can fail."""
        return self.fail_on is None and not self.settings.limits

    def fails(self, finding: Finding) -> bool:
        """Whether a finding does: by its own limit where it has one, else by its severity."""
        if finding.id in self.settings.limits:
            limit = self.settings.limits[finding.id]
            return limit is not None and finding.fraction > limit
        return self.fail_on is not None and finding.severity.rank <= self.fail_on.rank


def gate_of(flag: str | None) -> Gate:
    """The gate of a command: `--fail-on`, else the settings; raises UsageError as `settings` does."""
    if flag == NEVER:
        return Gate(fail_on=None, asked="", settings=Settings())
    found = settings()
    if flag is not None:
        return Gate(fail_on=Severity(flag), asked=f"--fail-on {flag}", settings=found)
    named = f"fail-on = {found.fail_on.value!r}" if found.fail_on is not None else "limits"
    return Gate(fail_on=found.fail_on, asked=f"{named} of {found.origin}", settings=found)


def passed(report: Report, gate: Gate) -> bool:
    """Whether a report passes, said with the numbers; without a word where nothing can fail."""
    if gate.is_open:
        return True
    failing = _worst_of_each([finding for finding in report.findings if gate.fails(finding)])
    if not failing:
        say(f"{gate.asked}: {_nothing(report, gate)}; exit code 0")
        return True
    n_failing = len(failing)
    say(f"{gate.asked}: {n_failing} finding{'s fail' if n_failing > 1 else ' fails'}; exit code 1")
    for finding in failing[:_SHOWN]:
        say_below(_why(finding, report, gate))
    if n_failing > _SHOWN:
        say_below(f"and {n_failing - _SHOWN} more")
    return False


def _worst_of_each(findings: list[Finding]) -> list[Finding]:
    """Of each id the largest, the worst first: ranks share most of their findings."""
    ordered = sorted(findings, key=lambda one: (one.severity.rank, -one.fraction))
    return list({one.id: one for one in reversed(ordered)}.values())[::-1]


def _why(finding: Finding, report: Report, gate: Gate) -> str:
    of_rank = f" of rank {finding.rank}" if finding.rank is not None and len(report.ranks) > 1 else ""
    said = finding.measure.statement
    said = said if len(said) <= _LONGEST else f"{said[: _LONGEST - 3]}..."
    return f"{finding.id}{of_rank}: {_over(finding, report, gate)}: {said}"


def _over(finding: Finding, report: Report, gate: Gate) -> str:
    """Its number and the limit that it is over."""
    limit = gate.settings.limits.get(finding.id)
    if limit is not None:
        return f"{_share(finding, report)}, limit {format_fraction(limit)} ({gate.settings.origin})"
    assert gate.fail_on is not None  # noqa: S101 - it fails by its severity
    least = SEVERITY_FROM.get(gate.fail_on)
    if severity_of(finding.fraction) is finding.severity and least is not None:
        return f"{_share(finding, report)}, {gate.fail_on.value} is from {format_fraction(least)}"
    return f"severity {finding.severity.value}, whatever its share"


def _share(finding: Finding, report: Report) -> str:
    from profkit.render.words.triage import share_of  # of numpy, too, which other commands need not load

    return f"{share_of(finding, report) or format_fraction(finding.fraction)} of the window"


def _nothing(report: Report, gate: Gate) -> str:
    """Why nothing fails: the largest of what was found, and its limit."""
    largest = next(iter(_worst_of_each(list(report.findings))), None)
    if largest is None:
        return "nothing was found"
    said = f"{largest.severity.value}, {_share(largest, report)}"
    limits = ", ".join(_limits_of(largest, gate))
    return f"no finding fails; the largest is {largest.id} ({said}{f'; {limits}' if limits else ''})"


def _limits_of(finding: Finding, gate: Gate) -> Iterator[str]:
    if finding.id in gate.settings.limits:
        limit = gate.settings.limits[finding.id]
        yield f"limit {format_fraction(limit)}" if limit is not None else "it never fails"
    elif gate.fail_on is not None and (least := SEVERITY_FROM.get(gate.fail_on)) is not None:
        yield f"{gate.fail_on.value} is from {format_fraction(least)}"
