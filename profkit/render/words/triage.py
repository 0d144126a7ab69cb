"""What the text renderers share: words for parts, shares that add up, sentences; names are made harmless by `clean`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Final

import msgspec

from profkit.findings import KINDS, shown_share
from profkit.findings.capture import QUALITY
from profkit.findings.kind import Way
from profkit.model.budget import HOST_PARTS, IDLE_PARTS, PARTS, WORK_PARTS, column, label
from profkit.model.documents.rank_report import UNEVEN, Check, DeviceReport, RankReport, Steps
from profkit.model.documents.report import LEAST_LEFT, Bottleneck, Report, Verdict
from profkit.model.finding import Evidence, Finding, Severity, confidence_label
from profkit.model.names import short_name
from profkit.model.trace import DEVICE_STEPS
from profkit.plain import told_apart
from profkit.shell import clean, stand_in
from profkit.units import format_bytes, format_ceiling, format_count, format_fraction, format_ns

_MAX_MAIN_EVIDENCE: Final = 4
_TRACE_SUFFIX: Final = re.compile(r"(?:\.pt)?(?:\.trace)?(?:\.json|\.sqlite|\.nsys-rep)(?:\.gz|\.zst)?$")
_MIN_LABEL: Final = 16
_FEW_STEPS: Final = 6  # fewer are listed; chosen: what fits on the line
_COMMAND_SHOWN: Final = 200  # characters of a command that somebody else recorded
_COMMAND_IN_SHORT: Final = 60  # where it should be a line or two; chosen
_PLACE: Final = re.compile(r"(?:\(\)|>) (?:\([^()<>]+:\d+\)|in \S+\.\w)|:\d+ in \S|\.\w+ outside functions")
"""How `CodePlace.name` says where something is."""
_NAMESPACES: Final = re.compile(r"^(?:\w+::)+(?=\w)")


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with the statements that are shown for it."""

    finding: Finding
    statements: tuple[str, ...]


def labels_of(device: DeviceReport, *, is_beside_ranks: bool = False) -> Mapping[str, str]:
    """The words for the parts of a device's budget; what is idle time on a GPU is the host's own on a CPU.

    Beside the table of ranks (`is_beside_ranks`) they say which of them its column "host" adds up.
    """
    labels = part_labels(is_cpu=device.kind == "cpu")
    if not is_beside_ranks:
        return labels
    return {
        name: f"host: {said}" if name in HOST_PARTS and "host" not in said else said for name, said in labels.items()
    }


def part_labels(*, is_cpu: bool) -> Mapping[str, str]:
    """The words for the parts of a budget, of a CPU's or of a GPU's."""
    return {name: label(name, is_cpu=is_cpu) for name in PARTS}


def percent(tenths: int) -> str:
    """Tenths of a percent as people read them: `46.1 %`."""
    return format_fraction(tenths / 1000)


def cell(value: object, unit: str) -> str:
    """A table cell in its column's unit (ns, fraction, count, bytes, text); "-" for what is absent."""
    if value is None:
        return "-"
    formats = {"ns": format_ns, "fraction": format_fraction, "count": format_count, "bytes": format_bytes}
    if unit not in formats or not isinstance(value, (int, float)):
        return clean(str(value))
    return formats[unit](value)


def name_cell(name: str) -> str:
    """A kernel's, operator's or call's name on one line; a C++ one without namespaces and template arguments.

    A copy's is whole: from which memory it comes is what one looks for. So is a place in the user's code.
    """
    if ("<" not in name and "(" not in name) or name.startswith(("Memcpy ", "Memset ")) or _PLACE.search(name):
        return clean(name)
    return clean(_NAMESPACES.sub("", short_name(name, 200)))


def no_tool_needed(verdict: Verdict) -> str:
    """What comes before the next tool where nothing is wrong."""
    return "nothing is needed; to look further, " if verdict.is_healthy else ""


def verdict_name(verdict: Verdict) -> str:
    """The verdict's word: `OVERHEAD-BOUND`, `HEALTHY (kernel-bound)`, `INCONCLUSIVE`."""
    return f"HEALTHY ({verdict.bottleneck.value})" if verdict.is_healthy else verdict.bottleneck.value.upper()


def of_rank(report: Report) -> str:
    """`, rank 3` where the verdict is one rank's: of all ranks together only a late one's is."""
    verdict, fleet = report.verdict, report.fleet
    if len(report.ranks) < 2 or verdict.rank is None:
        return ""
    is_of_all = fleet is not None and fleet.rows and not (verdict.findings and verdict.findings[0].rank == verdict.rank)
    return "" if is_of_all else f", rank {verdict.rank}"


def tone(verdict: Verdict) -> str:
    """good, open or bad."""
    return "open" if verdict.bottleneck is Bottleneck.INCONCLUSIVE else "good" if verdict.is_healthy else "bad"


def sureness(report: Report) -> str:
    """`confidence high, rank 3`; "" of an open verdict."""
    if report.verdict.bottleneck is Bottleneck.INCONCLUSIVE:
        return ""
    return f"confidence {confidence_label(report.verdict.confidence)}{of_rank(report)}"


def headline(verdict: Verdict) -> str:
    """The one line of meaning, without the word that the verdict's name already says."""
    return clean(verdict.headline).removeprefix("healthy: ")


def _few_steps(steps: Steps, varies: float | None) -> str:
    """` of 141 ms, 370 ms and 138 ms`; "" where there are more, or where a mean says as much."""
    if not 1 < steps.n < _FEW_STEPS or len(steps.durations_ns) != steps.n or (varies or 0.0) <= UNEVEN:
        return ""
    *others, last = map(format_ns, steps.durations_ns)
    return f" of {', '.join(others)} and {last}"


def step_sentence(report: Report) -> str:
    """`Step 41.2 ms (5 steps, varies by 2.0 %)`, or what stands for it without steps; "" without any rank."""
    rank = shown_rank(report)
    if rank is None:
        return ""
    if report.verdict.step_ns is None:
        return f"Window {format_ns(rank.window_ns[1] - rank.window_ns[0])}, no steps found"
    known = [f"{rank.steps.n} step" + ("s" if rank.steps.n != 1 else "")]
    varies = step_variation(report)
    listed = _few_steps(rank.steps, varies) if report.verdict.recorded_step_ns is None else ""
    if rank.steps.n > 1 and not listed and varies is not None:
        known.append(f"varies by {format_fraction(varies)}")
    known[0] += listed
    if rank.steps.source == "period":
        known.append("found by their period")
    if rank.steps.source == DEVICE_STEPS:
        known.append("measured on the GPU")
    if report.verdict.recorded_step_ns is not None:
        known[0] += f" recorded, {format_ns(report.verdict.recorded_step_ns)} with the profiler"
    has_rare = any(one.id in KINDS and KINDS[one.id].is_of_run for one in report.findings)
    mean = " on average" if listed or has_rare else ""
    return f"Step {format_ns(report.verdict.step_ns)}{mean} ({', '.join(known)})"


def step_variation(report: Report) -> float | None:
    """The standard deviation of the steps over their mean; of many ranks the median, as their step time is."""
    rank = shown_rank(report)
    ranks = report.ranks if is_joint(report) else [] if rank is None else [rank]
    known = [each.steps.cv for each in ranks if each.steps.cv is not None]
    if len(known) <= 1:
        return known[0] if known else None
    from statistics import median

    return median(known)


def gain_sentence(verdict: Verdict) -> str:
    """What fixing the cause could give at most, "" where nothing is to be gained."""
    if verdict.recoverable_ns <= 0:
        return ""
    saved = format_ns(verdict.recoverable_ns) + (" per step" if verdict.step_ns is not None else "")
    if verdict.most_recoverable_ns is not None:
        faster = f" ({format_ceiling(verdict.speedup_ceiling)} faster)" if verdict.speedup_ceiling is not None else ""
        return f"A fix saves about {saved}{faster}, {format_ns(verdict.most_recoverable_ns)} at most"
    if verdict.speedup_ceiling is None:
        whole_ns = verdict.step_ns or 0
        if verdict.recoverable_ns <= (1 - LEAST_LEFT) * whole_ns or not whole_ns:
            return f"A fix saves at most {saved}"
        part = f"{format_ns(verdict.recoverable_ns)} of the {format_ns(whole_ns)} per step"
        return f"A fix saves at most {part}: what must remain cannot be told"
    return f"At best {format_ceiling(verdict.speedup_ceiling)} faster: a fix saves at most {saved}"


def finding_saves(finding: Finding, report: Report) -> str:
    """What a finding's fix saves, "" where nothing; on a CPU that is no bound."""
    if finding.recoverable_ns <= 0:
        return ""
    per = "" if report.verdict.step_ns is None else " per step"
    saved = f"{format_ns(finding.recoverable_ns)}{per}"
    if finding.most_recoverable_ns is None:
        return f"saves at most {saved}"
    return f"saves about {saved}, {format_ns(finding.most_recoverable_ns)} at most"


def is_cpu(rank: RankReport | None) -> bool:
    """Whether the CPU is the device of a rank."""
    device = main_device(rank) if rank is not None else None
    return device is not None and device.kind == "cpu"


def spread_sentence(rank: RankReport, *, is_of_many: bool = False) -> str:
    """The step times of a rank, of many one that is named; "" where there are too few to speak of."""
    steps = rank.steps
    if steps.n < 2 or steps.mean_ns is None:
        return ""
    times = (("mean", steps.mean_ns), ("p50", steps.p50_ns), ("p95", steps.p95_ns))
    shown = [f"{name} {format_ns(value)}" for name, value in times if value is not None]
    of = f" of rank {rank.rank}" if is_of_many and rank.rank is not None else ""
    return f"{steps.n}{of} from {clean(steps.source)}: {', '.join(shown)}"


def roof_sentence(report: Report, rank: RankReport) -> str:
    """How far the work is from what the device can do, or why that is not known where it matters; else ""."""
    if rank.roof:
        return clean(rank.roof if not is_joint(report) else f"rank {rank_label(rank)}: {rank.roof}")
    device = main_device(rank)
    missing = next((skip for skip in report.skipped if skip.analyzer == "roof"), None)
    if missing is None or report.verdict.bottleneck is not Bottleneck.KERNEL or device is None or device.kind == "cpu":
        return ""
    return clean(f"{missing.reason} ({missing.how_to_get})" if missing.how_to_get else missing.reason)


def shown_rank(report: Report) -> RankReport | None:
    """The rank that the verdict speaks of."""
    wanted = (report.verdict.source, report.verdict.rank)
    exact = [rank for rank in report.ranks if (rank.source, rank.rank) == wanted]
    near = [rank for rank in report.ranks if rank.source == report.verdict.source]
    return next(iter((*exact, *near, *report.ranks)), None)


def main_device(rank: RankReport) -> DeviceReport | None:
    """The busiest device: the one the verdict speaks of."""
    return max(rank.devices, key=lambda device: device.busy_any_ns, default=None)


def reasons(verdict: Verdict, *, is_full: bool = False, n_findings: int | None = None) -> list[Reason]:
    """The verdict's first findings with their statements: the first finding's four, one of each other, or all."""
    seen: set[str] = set()
    shown = []
    for place, finding in enumerate(verdict.findings[:n_findings]):
        most = len(finding.evidence) if is_full else _MAX_MAIN_EVIDENCE if place == 0 else 1
        statements = [statement(item, is_full=is_full) for item in finding.evidence[:most]]
        new = tuple(text for text in dict.fromkeys(statements) if text not in seen)
        seen.update(new)
        shown.append(Reason(finding=finding, statements=new))
    return shown


def statement(evidence: Evidence, *, is_full: bool) -> str:
    """What was seen, and in full also what was expected."""
    expected = f" (expected {evidence.expected})" if is_full and evidence.expected else ""
    return clean(evidence.statement + expected)


def is_explained(verdict: Verdict) -> bool:
    """Whether the verdict's findings are why it was given; otherwise they are only what was seen."""
    return verdict.bottleneck is not Bottleneck.INCONCLUSIVE and verdict.recoverable_ns > 0


def other_findings(report: Report) -> list[Finding]:
    """The findings that the verdict does not stand on, one of each id, the worst first."""
    shown = {finding.id for finding in report.verdict.findings} | {QUALITY.id}
    top = KINDS.get(report.verdict.findings[0].id) if report.verdict.findings else None
    if top is not None:  # the first reasons of what it joins are among the headline's
        shown |= {rule.id for rule in top.supersedes if rule.way is Way.JOINED}
    said = "\n".join(item.statement for finding in report.verdict.findings for item in finding.evidence)
    shown |= {one.id for one in report.findings if one.rank == report.verdict.rank and one.measure.statement in said}
    ordered = sorted(report.findings, key=lambda finding: (finding.severity.rank, -finding.fraction))
    return list({finding.id: finding for finding in reversed(ordered) if finding.id not in shown}.values())[::-1]


def budget_title(report: Report, rank: RankReport) -> str:
    """What the bar of a rank's budget shows."""
    if report.verdict.bottleneck is Bottleneck.INCONCLUSIVE:
        return "what was recorded"
    return "where the step goes" if rank.steps.n else "where the window goes"


def budget_of(report: Report, rank: RankReport, device: DeviceReport) -> str:
    """Whose budget it is: of many ranks which one, of several devices which one."""
    of = f"device {device.device}, {device.name}" if len(rank.devices) > 1 else device.name
    if not is_joint(report):
        return of
    is_named = any(finding.rank == rank.rank for finding in report.verdict.findings)
    return f"rank {rank_label(rank)}{'' if is_named else ' (a typical rank)'}" + (f", {of}" if of else "")


def share_of(finding: Finding, report: Report) -> str:
    """A finding's share of the window, "" for none: with one rank alone as the bar has it."""
    if finding.fraction <= 0:
        return ""
    device = main_device(report.ranks[0]) if len(report.ranks) == 1 else None
    return format_fraction(shown_share(finding, None if device is None else device.budget))


SIZES: Final = {
    Severity.HIGH: "large",
    Severity.MEDIUM: "moderate",
    Severity.LOW: "small",
    Severity.INFO: "worth knowing",
}
"""How large a finding is, in words that are not those of confidence."""


def weight(finding: Finding, report: Report, *, of: str = " of the window") -> str:
    """How much a finding weighs: `moderate, 6.1 % of the window`."""
    if of and (kind := KINDS.get(finding.id)) is not None and kind.is_of_run:
        of = " of the run"
    share = f", {said}{of}" if (said := share_of(finding, report)) else ""
    return SIZES[finding.severity] + share


def caveats(report: Report) -> list[str]:
    """The failing checks of the shown rank, then what else limits the verdict; nothing that the headline says."""
    rank = shown_rank(report)
    failing = [check for check in rank.checks if not check.ok] if rank is not None else []
    said = {check.message for check in failing}
    rest = [note for note in report.verdict.caveats if note not in said]
    new = [check_sentence(check) for check in failing if check.message not in report.verdict.headline]
    return [*new, *(clean(note) for note in rest if note not in report.verdict.headline)]


def check_sentence(check: Check) -> str:
    """A failing check with its name, for `profkit explain`."""
    return clean(f"{check.message} (check {check.id})")


RANK_HEADERS: Final = ("rank", "step", "compute", "comm", "copies", "idle", "most idle")
"""Columns of `rank_row`; `comm` and `copies` are the exposed parts."""


def rank_row(rank: RankReport, label: str) -> tuple[str, ...]:
    """A rank's step time, shares that add up to 100 %, and its largest cause of idle time."""
    step = "-" if rank.steps.mean_ns is None else format_ns(rank.steps.mean_ns)
    device = main_device(rank)
    return (label, step, *(device_shares(device) if device is not None else ("-",) * 5))


def rank_table(ranks: Sequence[RankReport]) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
    """Title, headings and a row for each of several ranks that were not judged together; all but the ends numbers."""
    what, labels = rank_labels(ranks)
    rows = [rank_row(rank, label) for rank, label in zip(ranks, labels, strict=True)]
    title = f"{len(ranks)} {what}s, each over its own window; comm and copies: the exposed part"
    return title, (what, *RANK_HEADERS[1:]), rows


def rank_labels(ranks: Sequence[RankReport]) -> tuple[str, tuple[str, ...]]:
    """What stands side by side, ranks or traces of anything, in the singular, and a label for each of its own."""
    numbers = {rank.rank for rank in ranks}
    if None not in numbers and len(numbers) == len(ranks):
        return "rank", tuple(str(rank.rank) for rank in ranks)
    whole = source_names(rank.source for rank in ranks)
    names = [_TRACE_SUFFIX.sub("", name) for name in whole]
    if len(set(names)) < len(set(whole)):
        names = list(whole)
    if len(set(names)) < len(names):  # processes of one file
        names = [f"{number} {name}" for number, name in enumerate(names, 1)]
    for size in range(_MIN_LABEL, max(map(len, names), default=0)):
        heads = tuple(name if len(name) <= size else f"{name[: size - 1]}…" for name in names)
        if len(set(heads)) == len(heads):
            return "trace", heads
    return "trace", tuple(names)


def device_shares(device: DeviceReport) -> tuple[str, ...]:
    """Compute, exposed communication, copies and idle in percent, and the largest cause of idle time."""
    shares = device.budget.tenths
    idle = {name: shares[name] for name in IDLE_PARTS}
    worst = max(idle, key=lambda name: idle[name])
    cause = f"{column(worst, is_cpu=device.kind == 'cpu')} {percent(idle[worst])}" if idle[worst] else "-"
    return (*(percent(shares[name]) for name in WORK_PARTS), percent(sum(idle.values())), cause)


def is_joint(report: Report) -> bool:
    """Whether many ranks were judged together."""
    return report.fleet is not None and bool(report.fleet.rows)


def rank_label(rank: RankReport) -> str:
    """The rank's number, or its file's name where it has none."""
    return source_name(rank.source) if rank.rank is None else str(rank.rank)


def source_name(source: str) -> str:
    """A source's file name, of one that stands alone."""
    return source_names([source])[0]


def source_names(sources: Iterable[str]) -> tuple[str, ...]:
    """The names of files that stand together: with the folders that tell them apart."""
    return tuple(map(clean, told_apart(sources)))


def origin(report: Report, rank: RankReport, *, is_full: bool = True) -> str:
    """What was read, in one line: file, rank, device, torch, number of events; of many ranks how many before it.

    Of many ranks, unless `is_full`, without the shown rank's file and events: the bar says which rank it shows.
    """
    device, of_many = main_device(rank), is_joint(report)
    sources = [each.source for each in report.ranks]
    parts = [dict(zip(sources, source_names(sources), strict=True)).get(rank.source) or source_name(rank.source)]
    if of_many:
        folders = {PurePath(each.source).parent.name for each in report.ranks}
        where = f" in {clean(*folders)}" if len(folders) == 1 and "" not in folders else ""
        parts = [f"{len(report.ranks)} traces{where}" + (f"; shown: {parts[0]}" if is_full else "")]
    if rank.rank is not None and (is_full or not of_many):
        parts.append(f"rank {rank.rank}" + (f" of {rank.world_size}" if rank.world_size else ""))
    if device is not None and device.name:
        parts.append(clean(device.name))
    if rank.torch_version:
        parts.append(f"torch {clean(rank.torch_version)}")
    if is_full or not of_many:
        parts.append(f"{format_count(rank.n_events)} events")
    return ", ".join(parts)


def recorded_sentence(rank: RankReport, *, is_full: bool = True) -> str:
    """The command that a file says it was recorded with, where no next command repeats it, and why none does."""
    command = clean(rank.recorded_command)
    if not command or rank.is_command_used:
        return ""
    most = _COMMAND_SHOWN if is_full else _COMMAND_IN_SHORT
    shown = command if len(command) <= most else f"{command[:most].rpartition(' ')[0] or command[:most]} ..."
    script = rank.stand_in or stand_in(rank.recorded_command, rank.world_size).words[-1]
    return f"with {shown} (says the file); --command puts yours in place of {script}"


def again_line(rank: RankReport) -> str:
    """Where lines and modules are from, and what that cost; "" where no steps were recorded once more."""
    again = rank.again
    if again is None:
        return ""
    source = source_name(again.source)
    if not again.matched:
        return f"none: the operators of the steps in {source} are not those of the timed steps"
    stacks = "the Python stack sampled every 2 ms" if again.is_sampled else "Python stacks"
    steps = f"{again.n_steps} later step{'s' * (again.n_steps != 1)} with {stacks}"
    took = f" ({format_ns(again.mean_step_ns)} each)" if again.mean_step_ns else ""
    waited = f"the script waited {format_ns(again.stalled_ns)} more for them; " if again.stalled_ns else ""
    found = f"{format_fraction(again.matched)} of the timed operators found there"
    return f"{source}: {steps}{took}, which no time above is from; {waited}{found}"
