"""Outcomes of many ranks to one report: what they show together, and the tables of it.

Where each rank's step goes, what the groups carry, how the clocks lie.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from profkit.analyzers.base import Scope
from profkit.errors import InternalError, blamed
from profkit.model.arrays import median
from profkit.model.documents.fleet import ClockRow, Fleet, GroupRow, RankRow
from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.report import Bottleneck, Failure, Report
from profkit.model.finding import Finding, Skipped
from profkit.model.intervals import from_where_alone
from profkit.ranks.align.clocks import MIN_ENDS
from profkit.ranks.align.membership import Census, census
from profkit.ranks.findings import (
    communication,
    late_cause,
    lateness,
    links,
    overall,
    pipeline_findings,
    rare_work,
    token_findings,
)
from profkit.ranks.measure.fleet_measures import Joint, budget_of, joined
from profkit.ranks.measure.replay import ReplayRefusal
from profkit.ranks.measure.stragglers import own_excess_ns
from profkit.ranks.measure.waits import GroupWaits
from profkit.ranks.measure.windows import gaps
from profkit.ranks.reduce.options import Options
from profkit.ranks.reduce.outcome import Outcome
from profkit.ranks.reduce.records import Group, RankSummary
from profkit.ranks.run.drawn import drawn
from profkit.shell import typed
from profkit.units import format_fraction, format_ns, format_numbers

MAX_GAPS: Final = 2
"""Groups of which it is said what their ranks' windows lack; of more it is the same reason."""
_DISPUTED: Final = 0.1
"""Of all waiting, from which it is said that clocks and durations disagree: below, the waits that are shown stand.
Chosen."""
_Place = tuple[GroupWaits, int, int]
"""A group of a rank, the rank's column there, and how often the others waited for it."""
_MAX_SINGLE: Final = 8
"""Ranks up to which each has a row for people; of more, those without a cause share one."""


def report_of(outcomes: Sequence[Outcome], failures: Iterable[Failure], options: Options) -> Report:
    """The report on outcomes: of one alone its own, of several what they show together."""
    if len(outcomes) == 1:
        return _alone(outcomes[0], failures)
    failures = tuple(failures)
    try:
        with blamed("comparing the ranks", ""):
            taken = census(outcomes)
            if len(taken.present) < 2:
                return _apart(outcomes, taken, failures)
            return _joined_report(taken, failures, options)
    except InternalError as told:
        failure = Failure(source="all ranks together", error=type(told).__name__, message=told.message)
    nobody = Census(present=(), left_out=(), missing=(), n_missing=0, world_size=None)
    return _apart(outcomes, nobody, (*failures, failure))


def _joined_report(taken: Census, failures: Iterable[Failure], options: Options) -> Report:
    """The report on ranks that are compared."""
    joint = joined(taken.present)
    scope = _scope(joint, options)
    across: list[Finding] = [
        *lateness.findings(joint, scope),
        *rare_work.findings(joint, scope),
        *token_findings.findings(joint, scope),
        *pipeline_findings.findings(joint, scope),
        *communication.findings(joint, scope),
        *links.findings(joint, scope),
    ]
    causes = pipeline_findings.stage_causes(joint) | {
        rank: late_cause.cause_of(late) for rank, late in lateness.late_ranks(joint).items()
    }
    by_rank = _rank_rows(joint, causes)
    answer = overall.overall(joint, across, by_rank)
    fleet = replace(_fleet(joint, taken, by_rank, answer.explained), shown=_shown_rows(by_rank, causes))
    verdict = replace(answer.verdict, caveats=(*_limits(joint, fleet), *answer.verdict.caveats))
    reports = tuple(item.report for item in taken.present)
    return Report(
        verdict=verdict,
        ranks=reports,
        findings=answer.findings,
        skipped=tuple(dict.fromkeys((*_skipped(reports), *token_findings.skipped(joint)))),
        failures=tuple(failures),
        fleet=fleet,
        tracks=drawn(joint, answer.findings) if options.tracks_room else (),
    )


def _scope(joint: Joint, options: Options) -> Scope:
    """Over what measurements across ranks are: the median rank's window and steps."""
    scopes = [outcome.case.scope for outcome in joint.outcomes]
    return replace(
        scopes[0],
        window_ns=joint.window_ns,
        n_steps=joint.n_steps,
        has_steps=joint.step_ns is not None,
        is_cpu=all(scope.is_cpu for scope in scopes),
        is_of_ranks=True,
        command=typed(options.command) if options.command else scopes[0].command,
    )


def _alone(outcome: Outcome, failures: Iterable[Failure]) -> Report:
    report = outcome.report
    return Report(
        verdict=outcome.verdict,
        ranks=(report,),
        findings=report.findings,
        skipped=report.skipped,
        failures=tuple(failures),
        tracks=() if outcome.tracks is None else (outcome.tracks,),
    )


def _apart(outcomes: Sequence[Outcome], taken: Census, failures: Iterable[Failure]) -> Report:
    """The report on traces that are not ranks of one job: the verdict of the slowest that has one."""
    verdicts = [outcome.verdict for outcome in outcomes]
    conclusive = [outcome for outcome in outcomes if outcome.verdict.bottleneck is not Bottleneck.INCONCLUSIVE]
    chosen = max(conclusive or outcomes, key=_length_ns).verdict
    n_with_steps = sum(outcome.verdict.step_ns is not None for outcome in outcomes)
    of = "window" if n_with_steps == 0 else "step" if n_with_steps == len(outcomes) else "step or window"
    counts = Counter(verdict.bottleneck.value for verdict in verdicts)
    seen = ", ".join(f"{name} on {count}" for name, count in sorted(counts.items()))
    note = f"{len(verdicts)} traces, each judged alone ({seen}); this report shows the one with the longest {of}"
    reports = tuple(outcome.report for outcome in outcomes)
    return Report(
        verdict=replace(chosen, caveats=(note, *chosen.caveats)),
        ranks=reports,
        findings=tuple(finding for report in reports for finding in report.findings),
        skipped=_skipped(reports),
        failures=tuple(failures),
        fleet=Fleet(
            world_size=taken.world_size,
            ranks=(),
            missing=(),
            left_out=taken.left_out,
            rows=(),
            shown=(),
            groups=(),
            clocks=(),
            clock_note="",
            refusals=(),
            explained=(),
        ),
        tracks=tuple(outcome.tracks for outcome in outcomes if outcome.tracks is not None),
    )


def _length_ns(outcome: Outcome) -> int:
    low, high = outcome.report.window_ns
    return outcome.verdict.step_ns or high - low


def _skipped(reports: Sequence[RankReport]) -> tuple[Skipped, ...]:
    return tuple(dict.fromkeys(skip for report in reports for skip in report.skipped))


def _fleet(joint: Joint, taken: Census, by_rank: tuple[RankRow, ...], explained: tuple[str, ...]) -> Fleet:
    clocks = _clock_rows(joint)
    return Fleet(
        world_size=taken.world_size,
        ranks=tuple(outcome.summary.rank for outcome in taken.present),
        missing=taken.missing,
        n_missing=taken.n_missing,
        left_out=taken.left_out,
        rows=by_rank,
        shown=(),
        groups=_group_rows(joint),
        clocks=clocks,
        clock_note=_clock_note(clocks, joint) if joint.waits else "",
        refusals=_refusals(joint),
        explained=explained,
        hosts=_hosts(joint),
        **_prediction(joint),
    )


def _hosts(joint: Joint) -> tuple[str, ...]:
    """The names of the hosts, where there are several; of one alone no sentence speaks."""
    names = sorted({summary.host for summary in joint.summaries} - {""})
    return tuple(names) if len(names) > 1 else ()


def _prediction(joint: Joint) -> dict[str, Any]:
    """The replay's answer, or why there is none; neither where nobody is late."""
    found = joint.prediction
    if not any(answer.named for answer in joint.stragglers):
        return {}
    if isinstance(found, ReplayRefusal):
        return {"prediction_note": f"no prediction by replay: {found.reason}"}
    return {"prediction": found}


def _refusals(joint: Joint) -> tuple[str, ...]:
    """What could not be matched, groups with one reason drawn together."""
    groups: dict[str, list[Group]] = {}
    n_rows: Counter[str] = Counter()
    for refusal in joint.matching.refusals:
        groups.setdefault(refusal.reason, []).append(refusal.group)
        n_rows[refusal.reason] += refusal.n_rows
    return tuple(
        f"{n_rows[reason]:,} collectives of {_groups_text(found)} are not matched across ranks: {reason}"
        for reason, found in groups.items()
    )


def _groups_text(groups: Sequence[Group]) -> str:
    names = [f"group {group.name}" if group.name else "the group" for group in groups]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more groups"


def _limits(joint: Joint, fleet: Fleet) -> Iterable[str]:
    """What limits a statement on all ranks, each with its number."""
    if fleet.missing:
        yield (
            f"{fleet.n_missing:,} of {fleet.world_size:,} ranks are missing ({_shortened(fleet.missing)}):"
            " one of them may be later than these"
        )
    if not joint.waits:
        yield "no collective is matched across ranks: which rank waits for which is unknown"
    yield from fleet.refusals
    yield from islice(gaps(joint.matching), MAX_GAPS)
    disputed = [waits.disputed_fraction for waits in joint.waits if waits.is_disputed]
    if max(disputed, default=0) >= _DISPUTED:
        yield f"clocks may be wrong: durations give waits that differ by {format_fraction(max(disputed))}"
    for answer in joint.stragglers:
        if answer.barrier_note:
            yield answer.barrier_note
        if answer.hidden:
            late = format_numbers(sorted(item.rank for item in answer.hidden))
            who, they = (f"ranks {late} are", "they") if len(answer.hidden) > 1 else (f"rank {late} is", "it")
            yield f"{who} late as well, but nearly always behind a later rank: {they} will appear once that is fixed"


def _shortened(numbers: Sequence[int]) -> str:
    text = format_numbers(numbers)
    return text if len(text) <= 60 else text[:60].rpartition(",")[0] + ", ..."


# -------------------------------------------------------------------------------------------------------- the tables


def _rank_rows(joint: Joint, causes: Mapping[int, str]) -> tuple[RankRow, ...]:
    """One row for each rank; `causes` by rank, of those that are late."""
    groups: dict[int, list[_Place]] = defaultdict(list)
    for waits in joint.waits:
        n_last = (own_excess_ns(waits) > 0).sum(axis=0).tolist()
        for column, rank in enumerate(waits.ranks):
            groups[rank].append((waits, column, n_last[column]))
    return tuple(
        _rank_row(outcome, groups.get(outcome.summary.rank, []), joint.n_steps, causes) for outcome in joint.outcomes
    )


def _shown_rows(rows: Sequence[RankRow], causes: Mapping[int, str]) -> tuple[RankRow, ...]:
    """The rows for people: late ranks first, in the order of `causes`; of many ranks the others in one row."""
    late = sorted((row for row in rows if row.cause), key=lambda row: list(causes).index(row.ranks[0]))
    rest = [row for row in rows if not row.cause]
    if len(rows) <= _MAX_SINGLE or len(rest) < 2:
        return (*late, *rest)
    return (*late, _folded(rest))


def _exposed_waiting_ns(summary: RankSummary, groups: Sequence[_Place]) -> int:
    """At least so much of a rank's time is exposed waiting; what it waits for in two groups at once counts once."""
    begun, lasts, hidden, shown = [], [], [], []
    for waits, column, _ in groups:
        rows = np.flatnonzero(waits.present[:, column])
        begun.append(summary.collectives.start_ns[waits.rows[rows, column]])
        lasts.append(np.minimum(waits.wait_ns, waits.duration_ns)[rows, column])
        hidden.append(waits.hidden_ns[rows, column])
        shown.append(waits.exposed_ns[rows, column])
    start = np.concatenate(begun)
    end = start + np.concatenate(lasts)
    once = end - from_where_alone(start, end)
    return int(np.clip(once - np.concatenate(hidden), 0, np.concatenate(shown)).sum())


def _rank_row(outcome: Outcome, groups: Sequence[_Place], n_shared: int, causes: Mapping[int, str]) -> RankRow:
    """A rank's row; `n_shared`: the steps that waiting was measured in."""
    report, rank = outcome.report, outcome.summary.rank
    budget, n_steps = budget_of(report), max(report.steps.n, 1)
    step = budget.window_ns // n_steps
    comm_ns = budget.comm_exposed - outcome.summary.unasked_ns
    parts = (budget.idle_data, budget.compute, budget.copy_exposed, comm_ns, budget.idle_dependency)
    data, compute, copy, comm, device = (part // n_steps for part in parts)
    wait = None
    if groups:
        wait = min(_exposed_waiting_ns(outcome.summary, groups) // min(n_shared, n_steps), comm)
    return RankRow(
        ranks=(rank,),
        step_ns=step,
        data_ns=data,
        compute_ns=compute,
        host_ns=step - data - compute - copy - comm - device,
        copy_ns=copy,
        wait_ns=wait,
        transfer_ns=comm - (wait or 0),
        n_last=sum(n_last for _, _, n_last in groups),
        n_instances=sum(int(waits.present[:, column].sum()) for waits, column, _ in groups),
        cause=causes.get(rank, ""),
        device_ns=device,
    )


def _folded(rows: Sequence[RankRow]) -> RankRow:
    """The medians of rows in one."""
    names = ("step_ns", "data_ns", "compute_ns", "host_ns", "copy_ns", "transfer_ns", "device_ns")
    middles: dict[str, Any] = {name: median(np.array([getattr(row, name) for row in rows], np.int64)) for name in names}
    waits = [row.wait_ns for row in rows if row.wait_ns is not None]
    return RankRow(
        ranks=tuple(rank for row in rows for rank in row.ranks),
        wait_ns=median(np.array(waits, np.int64)) if waits else None,
        n_last=sum(row.n_last for row in rows),
        n_instances=max(row.n_instances for row in rows),
        **middles,
    )


def _group_rows(joint: Joint) -> tuple[GroupRow, ...]:
    """One row for each group whose collectives are matched, the longest exposed first."""
    matches = {(match.group, match.ranks): match for match in joint.matching.groups}
    rows = [
        GroupRow(
            name=limit.group.name,
            ranks=waits.ranks,
            size=limit.group.size,
            method=matches[waits.group, waits.ranks].method.value,
            n_instances=limit.n_instances,
            wait_ns=limit.wait_ns,
            transfer_ns=limit.transfer_ns,
            exposed_ns=limit.exposed_ns,
            bus_bytes_per_s=limit.bus_bytes_per_s if waits.is_whole else None,
            note=matches[waits.group, waits.ranks].note,
        )
        for waits, limit in zip(joint.waits, joint.limits, strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: -row.exposed_ns))


def _clock_rows(joint: Joint) -> tuple[ClockRow, ...]:
    """One row for each rank's clock."""
    return tuple(
        ClockRow(
            rank=clock.rank,
            offset_ns=round(clock.offset_ns),
            drift_ppm=clock.drift * 1e6,
            n_ends=clock.n_ends,
            residual_p95_ns=round(clock.residual_p95_ns),
            is_fitted=clock.is_fitted,
        )
        for clock in sorted(joint.clocks.ranks.values(), key=lambda clock: clock.rank)
    )


def _clock_note(rows: Sequence[ClockRow], joint: Joint) -> str:
    """How far the clocks can be trusted, in one line."""
    fitted = [row for row in rows if row.is_fitted]
    if not fitted:
        return f"not aligned: fewer than {MIN_ENDS} common collectives; waits are taken from durations alone"
    apart = max(row.offset_ns for row in fitted) - min(row.offset_ns for row in fitted)
    residual = max(row.residual_p95_ns for row in fitted)
    ends = max(row.n_ends for row in fitted)
    of = "" if len(fitted) == len(rows) else f" for {len(fitted)} of {len(rows)} ranks"
    moved = f", {format_ns(apart)} apart" if apart else ""
    if apart and _may_be_a_link(apart, joint):
        moved = (
            f"; the ends lie {format_ns(apart)} apart: the clocks differ, or a slow link lets one rank leave later than"
            " another"
        )
    return f"aligned on the ends of {ends:,} collectives{of}{moved}; 95 % agree within {format_ns(residual)}"


def _may_be_a_link(apart_ns: int, joint: Joint) -> bool:
    """Whether ranks may have left so long after one another: no longer than a transfer of gloo's takes over a network.

    gloo's rings pass the last pieces on from rank to rank; on hosts with one clock, with a link limited to 200 Mbit/s,
    they were seen to leave 45 ms apart (`analyses/netlab`). NCCL's leave within microseconds.
    """
    is_over_network = len({summary.host for summary in joint.summaries}) > 1
    longest = max((median(waits.transfer_ns) for waits in joint.waits if len(waits.rows)), default=0)
    return is_over_network and all(summary.is_cpu for summary in joint.summaries) and apart_ns <= longest
