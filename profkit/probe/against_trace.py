"""A probe beside the report on a trace: ceilings become measured ones, a verdict may be overturned."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from profkit.errors import TraceFormatError, TraceNotFoundError
from profkit.files import open_file
from profkit.findings import kind_of
from profkit.findings.probe import PROBE_OVERTURNED
from profkit.findings.ranks.stragglers import LATE_RANK
from profkit.model.documents.probe import ProbeReport, Reading, Slope
from profkit.model.documents.report import Bottleneck, Report, Verdict, speedup
from profkit.model.finding import Evidence, Finding, NextTool
from profkit.shell import stand_in
from profkit.units import format_count, format_ns

SCHEMA_ID: Final = "profkit.probe/1"
_PLACES: Final = {Bottleneck.DATA: "input", Bottleneck.OVERHEAD: "host", Bottleneck.COMM: "comm"}
_MOST_BYTES: Final = 16 * 2**20
_SAYS: Final = {
    Reading.CRITICAL: "is on the critical path",
    Reading.PARTLY: "is partly on the critical path",
    Reading.HIDDEN: "is hidden",
}


class _Schema(msgspec.Struct):
    schema: str


def read_probe(path: Path) -> ProbeReport:
    """What `profkit probe -o probe.json` wrote. Raises TraceNotFoundError, TraceFormatError."""
    try:
        with open_file(path) as file:
            data = file.read(_MOST_BYTES)
    except OSError as error:
        raise TraceNotFoundError(f"cannot read {path}: {error.strerror}", hint="profkit probe -o probe.json") from None
    try:
        if msgspec.json.decode(data, type=_Schema).schema == SCHEMA_ID:
            return msgspec.json.decode(data, type=ProbeReport)
    except (msgspec.MsgspecError, RecursionError):
        pass
    raise TraceFormatError(f"{path} is not what profkit probe writes", hint="profkit probe -o probe.json -- COMMAND")


def with_probe(report: Report, probe: ProbeReport) -> Report:
    """The report with what the probe measured; where they are of two jobs, with a caveat and nothing else changed."""
    verdict = report.verdict
    step_ns = verdict.unprofiled_step_ns or verdict.step_ns
    apart = PROBE_OVERTURNED.limit("other_job")
    if step_ns and not 1 / apart < probe.step_ns / step_ns < apart:
        said = f"the probe's steps take {format_ns(probe.step_ns)}, those of the trace {format_ns(step_ns)}"
        return _with_caveat(report, f"{said}: another job or machine, so its slopes are left out")
    measured = tuple(_measured(finding, probe) for finding in verdict.findings)
    report = replace(report, findings=tuple(_measured(finding, probe) for finding in report.findings))
    report = replace(report, verdict=replace(verdict, findings=measured))
    top = verdict.findings[0] if verdict.findings and verdict.recoverable_ns else None
    slope = None if top is None else slope_of(top, probe)
    if top is None or slope is None:
        return report
    if slope.reading is Reading.INCONCLUSIVE:
        more = (
            "" if slope.more_steps is None else f"; about {format_count(slope.more_steps)} more steps would settle it"
        )
        return _with_caveat(report, f"the probe of {slope.place} is inconclusive ({_numbers(slope)}){more}")
    if slope.reading is Reading.HIDDEN:
        return replace(report, verdict=_overturned(report.verdict, slope, probe))
    return replace(report, verdict=_limited(report.verdict, slope))


def slope_of(finding: Finding, probe: ProbeReport) -> Slope | None:
    """The slope of the place that a finding is about, None where it has none or that was not probed."""
    kind = kind_of(finding.id)
    if kind is LATE_RANK:
        return probe.slope_of(f"rank{finding.rank}")
    if finding.id == "h2d.exposed":
        return probe.slope_of("copy")
    return None if kind.bottleneck is None else probe.slope_of(_PLACES.get(kind.bottleneck, ""))


def _measured(finding: Finding, probe: ProbeReport) -> Finding:
    """A finding whose ceiling is the upper end of slope x cost; as it was where the slope tells nothing."""
    slope = slope_of(finding, probe)
    if slope is None or slope.reading is Reading.INCONCLUSIVE or not finding.recoverable_ns:
        return finding
    worth = [round(_share(end) * finding.recoverable_ns) for end in (slope.slope, *slope.interval)]
    said = (
        f"probe: {slope.place} {_SAYS[slope.reading]}, {_numbers(slope)}; slope x cost is {format_ns(worth[0])}"
        f" per step ({format_ns(worth[1])} to {format_ns(worth[2])}),"
        f" where the trace says {format_ns(finding.recoverable_ns)}"
    )
    evidence = Evidence(statement=said, metric="probe_slope", value=slope.slope, unit="ns/ns")
    most_ns = _part(finding.most_recoverable_ns, slope.interval[1])
    return replace(
        finding, recoverable_ns=worth[2], most_recoverable_ns=most_ns, evidence=(*finding.evidence, evidence)
    )


def _part(most_ns: int | None, slope: float) -> int | None:
    """What a fix saves at most on a CPU, of a cause that limits the step by this slope."""
    return None if most_ns is None else round(_share(slope) * most_ns)


def _limited(verdict: Verdict, slope: Slope) -> Verdict:
    """The verdict with the ceiling that the slope allows, where that is a lower one."""
    gain_ns = round(_share(slope.interval[1]) * verdict.recoverable_ns)
    said = f"the ceiling is measured: the probe of {slope.place} has {_numbers(slope)}"
    ceiling = verdict.speedup_ceiling
    whole_ns = verdict.step_ns or (verdict.recoverable_ns / (1 - 1 / ceiling) if ceiling and ceiling > 1 else 0)
    if whole_ns:
        ceiling = speedup(1 - gain_ns / whole_ns)
    return replace(
        verdict,
        recoverable_ns=gain_ns,
        most_recoverable_ns=_part(verdict.most_recoverable_ns, slope.interval[1]),
        speedup_ceiling=ceiling,
        caveats=(*verdict.caveats, said),
    )


def _overturned(verdict: Verdict, slope: Slope, probe: ProbeReport) -> Verdict:
    """No verdict: the experiment shows that what the trace blames does not lengthen the step."""
    known = [*probe.slopes, *([probe.host] if probe.host is not None else [])]
    critical = [one.place for one in known if one.reading is Reading.CRITICAL]
    instead = f"; on the critical path: {', '.join(critical)}" if critical else ""
    job = stand_in(probe.command, probe.n_ranks)
    return replace(
        verdict,
        bottleneck=Bottleneck.INCONCLUSIVE,
        headline=f"{verdict.bottleneck.value} by the trace, overturned by the probe: {slope.place} is hidden,"
        f" {_numbers(slope)}{instead}",
        recoverable_ns=0,
        most_recoverable_ns=None,
        speedup_ceiling=None,
        next_tool=NextTool(
            name="torch.profiler",
            line=job.under("profkit run"),
            purpose=f"which lines of the code is the time of {critical[0] if critical else 'the step'} spent at?",
            look_for="the lines under 'where', and the parts of the budget that a new verdict names",
        ),
        fixes=(),
        proof="",
        caveats=(
            *verdict.caveats,
            f"the trace alone says {verdict.bottleneck.value}: {verdict.headline}",
        ),
    )


def _with_caveat(report: Report, said: str) -> Report:
    return replace(report, verdict=replace(report.verdict, caveats=(*report.verdict.caveats, said)))


def _numbers(slope: Slope) -> str:
    low, high = slope.interval
    return f"slope {slope.slope:.2f} ({low:.2f} to {high:.2f})"


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)
