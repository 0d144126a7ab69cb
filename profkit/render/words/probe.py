"""Sentences on slopes: what each says of its place, the sum that checks them, what the probe cost."""

from __future__ import annotations

from typing import Final

from profkit.findings.probe import PROBE_SLOPE
from profkit.model.documents.probe import ProbeReport, Reading, Slope
from profkit.units import format_change, format_count, format_fraction, format_ns

HEADERS: Final = ("place", "slope", "95 % interval", "reading", "per step", "worth", "delays")
IS_TEXT: Final = (True, False, False, True, False, False, False)
_NAMES: Final = {
    "input": "fetching a batch",
    "forward": "the host before backward",
    "backward": "the host from backward to the optimizer",
    "optimizer": "the host from the optimizer's step on",
    "host": "its work after the fetch",
    "device": "the device's work",
    "copy": "copies to the device",
    "comm": "collectives",
}
_OF_HOST: Final = ("forward", "backward", "optimizer")
_READINGS: Final = {
    Reading.CRITICAL: "critical path",
    Reading.PARTLY: "partly",
    Reading.HIDDEN: "hidden",
    Reading.INCONCLUSIVE: "inconclusive",
}

_MOST_STEPS: Final = 10_000
_TOO_WIDE: Final = 0.5
"""Half-width of the sum's interval from which it checks nothing: it would hold both 0.5 and 1.5 (chosen)."""


def number(value: float) -> str:
    """A slope: two decimals, no minus zero."""
    return f"{value + 0.0:.2f}".replace("-0.00", "0.00")


def interval(ends: tuple[float, float]) -> str:
    """An interval of slopes."""
    return f"{number(ends[0])} to {number(ends[1])}"


def name(slope: Slope) -> str:
    """What a place is, in words."""
    if slope.place.startswith("rank"):
        return f"rank {slope.place.removeprefix('rank')} alone"
    return _NAMES.get(slope.place, slope.place)


def row(slope: Slope) -> tuple[str, ...]:
    """A place as a row under `HEADERS`."""
    return (
        slope.place,
        number(slope.slope),
        interval(slope.interval),
        _READINGS[slope.reading],
        "-" if slope.time_ns is None else format_ns(slope.time_ns),
        "-" if slope.worth_ns is None or slope.reading is Reading.INCONCLUSIVE else format_ns(slope.worth_ns),
        format_count(slope.n_treated),
    )


def rows_of(report: ProbeReport) -> list[Slope]:
    """The places of the table: each, and the host's together."""
    return [*report.slopes, *([report.host] if report.host is not None else [])]


def told(report: ProbeReport) -> list[Slope]:
    """The places that have a sentence: for the host one, and for a part of it where that part reads otherwise."""
    host = report.host
    if host is None or host.reading is Reading.INCONCLUSIVE:
        return list(report.slopes)
    alike = (host.reading, Reading.INCONCLUSIVE)
    kept = [slope for slope in report.slopes if slope.place not in _OF_HOST or slope.reading not in alike]
    return [*kept, host]


def sentence(slope: Slope) -> str:
    """What a slope says of its place."""
    place = f"{slope.place} ({name(slope)})"
    match slope.reading:
        case Reading.CRITICAL:
            return f"{place} is on the critical path: each 1 ms saved there shortens the step by about {_effect(slope)}"
        case Reading.HIDDEN:
            return f"{place} is hidden: saving time there does not shorten the step{_slack(slope)}"
        case Reading.PARTLY:
            return (
                f"{place} is partly on the critical path: each 1 ms saved there shortens the step by about"
                f" {_effect(slope)}{_slack(slope)}"
            )
    low, high = slope.interval
    why = "contains both 0 and 1" if low <= 0 and high >= 1 else f"is {interval(slope.interval)}, too wide to tell"
    if slope.more_steps is None:
        more = ""
    elif slope.more_steps > _MOST_STEPS:
        more = f"; steps vary so much that even {format_count(_MOST_STEPS)} more would not settle it"
    else:
        more = f"; about {format_count(slope.more_steps)} more steps would settle it"
    return f"{place} is inconclusive: its interval {why}{more}"


def _effect(slope: Slope) -> str:
    return f"{number(min(max(slope.slope, 0.0), 1.0))} ms"


def _slack(slope: Slope) -> str:
    if not slope.slack_least_ns:
        return ""
    return f"; it could take at least {format_ns(slope.slack_least_ns)} longer for free"


def headline(report: ProbeReport) -> str:
    """The answer: the places of the critical path, the one with most time first."""
    found = [slope for slope in told(report) if slope.reading is Reading.CRITICAL]
    found.sort(key=lambda slope: -(slope.worth_ns or 0))
    if found:
        names = ", ".join(slope.place for slope in found)
        worth = [f"{slope.place} {format_ns(slope.worth_ns)}" for slope in found if slope.worth_ns]
        said = f"; per step they are worth at most: {', '.join(worth)}" if worth else ""
        return f"on the critical path: {names}{said}"
    if any(slope.reading is Reading.PARTLY for slope in told(report)):
        return "no place is on the critical path alone; some are partly"
    if all(slope.reading is Reading.HIDDEN for slope in told(report)):
        return "every probed place is hidden: something that was not probed limits the step"
    return "inconclusive: no place is shown to be on the critical path"


def total(report: ProbeReport) -> str:
    """The sum check, "" where there is none."""
    if report.total is None or report.total_interval is None:
        return ""
    low, high = report.total_interval
    said = f"slope x time over all places is {number(report.total)} of the step ({interval(report.total_interval)})"
    if (high - low) / 2 > _TOO_WIDE:
        return f"{said}; too wide to check anything"
    if low <= 1 <= high or abs(report.total - 1) <= PROBE_SLOPE.limit("total"):
        return f"{said}; 1 is expected"
    if high < 1:
        return f"{said}; below 1, so something that was not probed is on the critical path too"
    return f"{said}; above 1, so several places are critical at once, and saving in one alone gives less"


def cost(report: ProbeReport) -> str:
    """What the probe cost, and what it was to cost at most."""
    said = f"delays were {format_fraction(report.cost)} of the probed steps' time"
    planned = f"planned: at most {format_fraction(report.most_cost)}"
    cut = "" if report.n_probed == report.n_planned else f"; the run ended before the {report.n_planned} steps planned"
    return f"{said} ({planned}) in {report.n_probed} steps{cut}"


def untouched(report: ProbeReport) -> str:
    """The steps before and after the probed ones."""
    said = f"{report.n_before} before: {format_ns(report.step_ns)}; probed: {format_ns(report.probed_ns)}"
    if report.after_ns is None:
        return said
    drift = format_change(report.after_ns / report.step_ns - 1)
    return f"{said}; {report.n_after} after: {format_ns(report.after_ns)} ({drift} against before)"


def setting(report: ProbeReport) -> str:
    """How it was probed."""
    doses = " and ".join(map(format_ns, report.doses_ns))
    ranks = f"{report.n_ranks} ranks, " if report.n_ranks > 1 else ""
    workers = f"{report.n_workers} loader worker{'s' * (report.n_workers != 1)}, " if report.n_workers else ""
    return f"{ranks}{workers}delays of {doses}, seed {report.seed}; steps by {report.step_source}"
