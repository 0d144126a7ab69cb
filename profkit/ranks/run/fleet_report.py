"""Outcomes of many ranks to one report: what they show together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from msgspec.structs import replace

from profkit.analyzers.base import Scope
from profkit.errors import InternalError, blamed
from profkit.model.documents.fleet import Fleet, RankRow
from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.report import Bottleneck, Failure, Report
from profkit.model.finding import Finding, Skipped
from profkit.ranks.align.membership import Census, census
from profkit.ranks.findings import (
    communication as collectives,
)
from profkit.ranks.findings import late_cause, lateness, overall, rare_work, slow_link
from profkit.ranks.findings import (
    pipeline_findings as stages,
)
from profkit.ranks.findings import (
    token_findings as load,
)
from profkit.ranks.measure.fleet_measures import Joint, joined
from profkit.ranks.measure.replay import ReplayRefusal
from profkit.ranks.measure.windows import gaps
from profkit.ranks.reduce.options import Options
from profkit.ranks.reduce.outcome import Outcome
from profkit.ranks.reduce.records import Group
from profkit.ranks.run import report_tables as rows
from profkit.ranks.run.drawn import drawn
from profkit.shell import typed
from profkit.units import format_fraction, format_numbers

MAX_GAPS: Final = 2
"""Groups of which it is said what their ranks' windows lack; of more it is the same reason."""
_DISPUTED: Final = 0.1
"""Of all waiting, from which it is said that clocks and durations disagree: below, the waits that are shown stand.
Chosen."""


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
        *load.findings(joint, scope),
        *stages.findings(joint, scope),
        *collectives.findings(joint, scope),
        *slow_link.findings(joint, scope),
    ]
    causes = stages.stage_causes(joint) | {
        rank: late_cause.cause_of(straggler, waits, joint)
        for rank, (straggler, waits, _) in lateness.stragglers_of(joint).items()
    }
    by_rank = rows.rank_rows(joint, causes)
    answer = overall.overall(joint, across, by_rank)
    fleet = replace(_fleet(joint, taken, by_rank, answer.explained), shown=rows.shown_rows(by_rank, causes))
    verdict = replace(answer.verdict, caveats=(*_limits(joint, fleet), *answer.verdict.caveats))
    reports = tuple(item.report for item in taken.present)
    return Report(
        verdict=verdict,
        ranks=reports,
        findings=answer.findings,
        skipped=tuple(dict.fromkeys((*_skipped(reports), *load.skipped(joint)))),
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
    clocks = rows.clock_rows(joint)
    return Fleet(
        world_size=taken.world_size,
        ranks=tuple(outcome.summary.rank for outcome in taken.present),
        missing=taken.missing,
        n_missing=taken.n_missing,
        left_out=taken.left_out,
        rows=by_rank,
        shown=(),
        groups=rows.group_rows(joint),
        clocks=clocks,
        clock_note=rows.clock_note(clocks, joint) if joint.waits else "",
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
