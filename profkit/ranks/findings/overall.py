"""One answer for all ranks: who is late comes before whose communication is slow, and that before one rank's findings.

Communication symptoms are usually someone else's cause (docs/sources.md, rule 22): a victim's waiting is not its
own to win, so it is said once, with the late rank, and not counted again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePath
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from profkit.analyzers.tools import recapture
from profkit.findings import kind_of
from profkit.findings.communication import ASKED, EXPOSED, SENDS_METRIC, SKEW
from profkit.findings.kind import CONTAINED, Way
from profkit.model.documents.fleet import RankRow
from profkit.model.documents.report import Bottleneck, Verdict, speedup
from profkit.model.finding import Evidence, Finding, NextTool, severity_of
from profkit.ranks.findings.communication import LESS_TRANSFER, group_name, link_test, mostly
from profkit.ranks.findings.lateness import late_ranks
from profkit.ranks.findings.pipeline_findings import next_stage
from profkit.ranks.measure.fleet_measures import Joint, budget_of
from profkit.ranks.measure.stragglers import Stragglers, own_excess_ns
from profkit.ranks.measure.tokens import TokenSkew
from profkit.ranks.reduce.outcome import Outcome
from profkit.shell import line_of, path_word
from profkit.units import format_fraction, format_ns, format_numbers
from profkit.verdict import bounded, decide, in_unprofiled_time, of_mean_step, ruled_out
from profkit.verdict.case import UNEXPLAINED
from profkit.verdict.compete import superseding

_LONGEST: Final = 1.05
"""Of a step, what a finding may come to. Chosen: totals are of the median rank's window, the step is the mean of its
steps."""
_MOST_NAMED: Final = 8
_NEARLY_ALL_WAITING: Final = 0.9
"""Of waiting and transfer. Chosen: less may be transfer, and more steps only split it."""
_INTERVAL: Final = "comm.recoverable_interval_ns"
_SHARE_OF_LARGEST: Final = 0.1
"""Of its largest delay, from which a rank counts as late in a collective. Chosen: the rest is scatter."""


class Overall(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a fleet, its findings, and what of single ranks these explain."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    explained: tuple[str, ...]


def overall(joint: Joint, across: Sequence[Finding], rows: Sequence[RankRow]) -> Overall:
    """The verdict from findings across ranks and what the ranks agree on; all findings that are left."""
    across = [
        of_mean_step(finding, step_ns=joint.step_ns, n_steps=joint.n_steps, window_ns=joint.window_ns)
        for finding in across
    ]
    late = [finding for finding in across if finding.rank is not None]
    across, beyond = _within_a_step(joint, across)
    across, explained = _without_shadows(joint, across, late)
    single, more = _without_victims(joint, across, rows)
    usual = usual_outcome(joint, across)
    case = replace(
        usual.case,
        findings=(*across, *_agreed(joint, single, usual, {finding.rank for finding in late})),
        step_ns=joint.step_ns,
        refusals=(*usual.case.refusals, *_waits_of_one_pass(joint)),
        instead=usual.case.instead or _more_steps(joint),
        confidence_cap=1.0,  # each finding is capped by the captures it stands on
        is_alone=False,
    )
    if case.step_ns is not None:
        case = replace(case, step_ns=case.step_ns + case.rare_ns)
    verdict = decide(case)
    verdict = replace(verdict, caveats=(*beyond, *verdict.caveats))
    top = verdict.findings[0] if verdict.findings else None
    if top is not None and top.id == EXPOSED.id:
        verdict = replace(verdict, proof=_unsplit_proof(joint) or verdict.proof)
    is_across = top is not None and top.id in {finding.id for finding in across}
    if not is_across:
        verdict = replace(verdict, confidence=min(verdict.confidence, usual.case.confidence_cap))
    if top is not None and is_across and joint.step_ns is None:  # of the ranks' window, not of one rank's
        left = 1 - joint.fraction(top.recoverable_ns)
        if verdict.recoverable_ns == top.recoverable_ns:
            verdict = replace(verdict, speedup_ceiling=speedup(left))
    if top is not None and is_across and top.rank is not None:
        its = joint.outcome_of(top.rank)
        source = its.report.source
        phases = {late.phase for late in late_ranks(joint).values()}
        out = ruled_out(
            case,
            verdict.bottleneck,
            late_phases=phases if verdict.bottleneck is Bottleneck.STRAGGLER else (),
            late=budget_of(its.report),
        )
        verdict = replace(verdict, rank=top.rank, source=source, ruled_out=out)
    if verdict.bottleneck is not Bottleneck.INCONCLUSIVE:
        verdict = replace(verdict, ruled_out=(*verdict.ruled_out, *_equal_tokens(joint)))
    plain_ns = _unprofiled_ns(joint)
    verdict, findings = in_unprofiled_time(verdict, (*across, *single), case, plain_ns=plain_ns, profiled_ns=None)
    if verdict.recorded_step_ns is not None:
        verdict = replace(verdict, unprofiled_step_ns=plain_ns)
    verdict, findings = bounded(verdict, findings, is_cpu=case.is_cpu)
    return Overall(verdict=verdict, findings=findings, explained=(*explained, *more))


def _waits_of_one_pass(joint: Joint) -> Iterator[str]:
    """Why a pass that nobody marked shows no cause, where nearly all of its few collectives' time is waiting.

    Durations alone tell that: the shortest of each is transfer at most. Who is late again, another pass would show.
    """
    if joint.step_ns is not None or any(answer.named for answer in joint.stragglers) or _late_at_times(joint):
        return
    pairs = zip(joint.limits, joint.waits, strict=True)
    few = [limit for limit, waits in pairs if waits.is_whole and not limit.is_enough]
    most = max(few, key=lambda limit: limit.wait_exposed_ns, default=None)
    if most is None or len(few) < len(joint.limits):
        return
    if most.wait_fraction >= _NEARLY_ALL_WAITING and joint.fraction(most.wait_exposed_ns) >= UNEXPLAINED:
        yield (
            f"{format_fraction(most.wait_fraction)} of communication is waiting for ranks that come late, in"
            f" {most.n_instances} collectives of one pass: it does not show which rank is late in others"
        )


def _more_steps(joint: Joint) -> NextTool:
    least = int(SKEW.limit("matched"))
    scope = joint.outcomes[0].case.scope
    return recapture(
        scope, "record more steps of all ranks: which rank is late?", f"{least} collectives or more on every rank"
    )


def _unprofiled_ns(joint: Joint) -> int | None:
    """The step without the profiler, where every rank has timed its own: the longest, for they wait for each other.

    One that waits at rare collectives alone has few long steps, and usual ones that are shorter than those of the job.
    One that ran without a profiler throughout waits for those that had one.
    """
    known = [outcome.report.unprofiled_step_ns or 0 for outcome in joint.outcomes]
    return max(known) if all(known) else None


def _equal_tokens(joint: Joint) -> tuple[str, ...]:
    """Unequal tokens as something that is ruled out, where they were counted and are equal."""
    skew = joint.token_skew
    if not isinstance(skew, TokenSkew) or not skew.is_equal:
        return ()
    return (f"unequal tokens ({format_fraction(skew.skew_fraction)} above the mean)",)


def _within_a_step(joint: Joint, across: Sequence[Finding]) -> tuple[list[Finding], list[str]]:
    """Leave out what would save more time than a step has, and say so: it was measured beside the steps.

    A total over the collectives of a trace is more than its steps where most of them lie outside, or a clock jumps.
    """
    step_ns = joint.step_ns or joint.window_ns
    kept = [one for one in across if one.recoverable_ns <= _LONGEST * step_ns]
    notes = [
        f"{one.id} is left out: it adds up to {format_ns(one.recoverable_ns)} in a step of {format_ns(step_ns)}, so its"
        " collectives lie outside the steps, or a clock jumps"
        for one in across
        if one not in kept
    ]
    return [one.worth(min(one.recoverable_ns, step_ns)) for one in kept], notes


def usual_outcome(joint: Joint, across: Sequence[Finding] = ()) -> Outcome:
    """The rank that stands for all: its capture no worse than most, its share of compute the middle.

    None that others wait for, proven or not, and none behind a slow link.
    """
    late = {finding.rank for finding in across if finding.rank is not None}
    late |= {one.rank for answer in joint.stragglers for one in answer.hidden}
    late |= {one for waits in joint.waits if (one := mostly(waits)) is not None}
    late |= {rank for link in joint.slow_links for rank in link.ranks}
    candidates = [outcome for outcome in joint.outcomes if outcome.summary.rank not in late] or list(joint.outcomes)
    sound = [outcome for outcome in candidates if not outcome.case.refusals]
    if 2 * len(sound) >= len(candidates):
        candidates = sound
    ordered = sorted(candidates, key=lambda outcome: outcome.case.budget.fraction("compute"))
    return ordered[len(ordered) // 2]


def _without_shadows(
    joint: Joint, across: Sequence[Finding], late: Sequence[Finding]
) -> tuple[list[Finding], list[str]]:
    """Drop waiting that named stragglers, or unequal tokens, explain.

    `late`: the findings on late ranks, those too that are left out for what they come to.
    """
    explaining = [answer for answer in joint.stragglers if answer.named]
    most = max(map(_share, explaining), default=0.0)
    chiefly = {mostly(waits) for waits in joint.waits}

    def explained(one: Finding, _: Finding) -> float:
        if kind_of(one.id).is_of_run:
            return float(one.rank in chiefly)
        return most if one.rank is not None else 0.0

    kept, said = [], []
    for finding in across:
        by = superseding(
            finding,
            (*late, *across),
            Way.SAID_ONCE,
            explains=explained,
        )
        if by is None:
            kept.append(finding)
            continue
        if kind_of(by.id).is_of_run:
            why = by.title
        elif by.rank is not None:
            why = _explained(max((one for one in explaining if _share(one) >= CONTAINED), key=_excess_ns), joint)
        else:
            why = f"it follows token counts: {by.seen('tokens.correlation').statement}"
        said.append(f"{finding.measure.statement}; {why}")
    return kept, said


def _share(answer: Stragglers) -> float:
    """What part of a group's lateness its late ranks have."""
    return sum(item.share for item in (*answer.named, *answer.hidden))


def _excess_ns(answer: Stragglers) -> int:
    return sum(item.excess_ns for item in (*answer.named, *answer.hidden))


def _explained(answer: Stragglers, joint: Joint) -> str:
    late = sorted(item.rank for item in (*answer.named, *answer.hidden))
    n_members = next(len(waits.ranks) for waits in joint.waits if waits.group == answer.group)
    where = f" in {group_name(answer.group, n_members)}" if len(joint.waits) > 1 else ""
    verb = "causes" if len(late) == 1 else "cause"
    return f"{_ranks(late)} {verb} {format_fraction(_share(answer))} of the delay{where}"


def _without_victims(
    joint: Joint, across: Sequence[Finding], rows: Sequence[RankRow]
) -> tuple[list[Finding], list[str]]:
    """Drop each rank's `comm.exposed` that is waiting for a late rank, or that findings across ranks split."""
    late: list[int] = sorted({finding.rank for finding in across if finding.rank is not None})
    waiting = {row.ranks[0]: _wait_share(row) for row in rows}
    kept: list[Finding] = []
    waits_for_late: list[int] = []
    split: list[int] = []

    def explained(one: Finding, other: Finding) -> float:
        if kind_of(one.id).is_of_run:
            return 1.0  # of all ranks' runs
        if other.id == ASKED.id:
            return one.fraction / other.fraction
        is_its_own = one.rank is not None and other.rank in late
        return -1.0 if is_its_own or other.rank is None else waiting[other.rank]

    for outcome in joint.outcomes:
        rank = outcome.summary.rank
        for finding in outcome.report.findings:
            by = superseding(finding, across, Way.SAID_ONCE, explains=explained)
            if by is not None and kind_of(by.id).is_of_run:
                continue  # its evidence has it
            if by is not None:
                (split if by.rank is None else waits_for_late).append(rank)
            elif finding.id == EXPOSED.id and late and rank not in late and waiting[rank] > 0:
                waits_for_late.append(rank)
                kept.append(_without_waiting(finding, waiting[rank], late))
            else:
                kept.append(finding)
    said = []
    if waits_for_late:
        shares = [waiting[rank] for rank in waits_for_late]
        low, high = format_fraction(min(shares)), format_fraction(max(shares))
        between = low if low == high else f"{low} to {high}"
        said.append(f"exposed communication of {_ranks(waits_for_late)}: {between} of it is waiting for {_ranks(late)}")
    if split:
        said.append(f"exposed communication of {_ranks(split)}: the table of ranks splits it into waiting and transfer")
    return kept, said


def _without_waiting(finding: Finding, share: float, late: Sequence[int]) -> Finding:
    """A rank's exposed communication less the part that is waiting for a late rank."""
    fraction = finding.fraction * (1 - share)
    said = Evidence.share(
        "comm.wait_share",
        share,
        f"on rank {finding.rank}, {format_fraction(share)} of exposed communication is waiting"
        f" for {_ranks(late)}; the rest takes {format_fraction(fraction)} of the window",
    )
    return replace(
        finding.worth(int(finding.recoverable_ns * (1 - share))),
        fraction=fraction,
        severity=severity_of(fraction),
        evidence=(said, *finding.evidence),
    )


def _ranks(numbers: Sequence[int]) -> str:
    return ("rank " if len(numbers) == 1 else "ranks ") + format_numbers(numbers)


def _wait_share(row: RankRow) -> float:
    """Waiting as a share of exposed communication; -1 where it is not known."""
    if row.wait_ns is None:
        return -1.0
    exposed = row.wait_ns + row.transfer_ns
    return row.wait_ns / exposed if exposed else 0.0


def _agreed(joint: Joint, single: Sequence[Finding], usual: Outcome, late: Collection[int | None]) -> list[Finding]:
    """The findings that more than half of the ranks have, each once with the median share.

    A fix saves at most the most that any rank has which is not late, of what it does itself; of waiting, the median.
    """
    n_ranks = len(joint.outcomes)
    out = []
    for name in dict.fromkeys(finding.id for finding in single):
        found = {finding.rank: finding for finding in single if finding.id == name}
        if 2 * len(found) <= n_ranks:
            continue
        spread = [found[o.summary.rank].fraction if o.summary.rank in found else 0.0 for o in joint.outcomes]
        gains = {
            rank: _gain_ns(joint, outcome, found[rank]) if rank in found else 0
            for rank, outcome in joint.by_rank.items()
        }
        # a step waits for the rank that has most of what is its own
        of_usual = [ns for rank, ns in gains.items() if rank not in late] if kind_of(name).late_phase else []
        gain_ns = max(of_usual, default=int(np.median(list(gains.values()))))
        shown = found.get(usual.summary.rank) or next(iter(found.values()))
        shown = _said_of_rank(_unsplit(shown, joint) if name == EXPOSED.id else shown)
        seen = Evidence.count(
            f"{name}.n_ranks",
            len(found),
            f"found on {len(found)} of {n_ranks} ranks, median {format_fraction(float(np.median(spread)))}",
        )
        out.append(
            replace(
                shown.worth(gain_ns),
                rank=None,
                fraction=float(np.median(spread)),
                evidence=(*shown.evidence[:1], seen, *shown.evidence[1:])
                if kind_of(name).bottleneck
                else shown.evidence,
            )
        )
    return out


def _said_of_rank(finding: Finding) -> Finding:
    """A rank's finding whose first reason says of which rank its number is: that of all ranks is another."""
    if finding.rank is None or kind_of(finding.id).bottleneck is None:
        return finding
    of = f"on rank {finding.rank}"
    if finding.measure.statement.startswith(of):
        return finding
    first = replace(finding.measure, statement=f"{of}: {finding.measure.statement}")
    return replace(finding, evidence=(first, *finding.evidence[1:]))


def _gain_ns(joint: Joint, outcome: Outcome, finding: Finding) -> int:
    """What one rank's finding could save as the verdict counts it: per step where any rank has steps.

    A rank without steps counts its own over its whole window, which may be longer than any step.
    """
    if joint.step_ns is None or outcome.report.steps.mean_ns is not None:
        return finding.recoverable_ns
    low, high = outcome.report.window_ns
    return round(finding.recoverable_ns * joint.step_ns / (high - low)) if high > low else 0


# ------------------------------------------------- `comm.exposed` where it is not split into waiting and transfer


def _unsplit(finding: Finding, joint: Joint) -> Finding:
    """Give `comm.exposed` as it reads when all ranks were compared and still cannot say what it is made of."""
    if finding.has(SENDS_METRIC):  # of gloo's, no trace tells which belong together
        kept = [item for item in finding.evidence if item.metric != _INTERVAL]
        return replace(finding, evidence=tuple(kept), next_tools=(next_stage(joint.outcomes[0].case.scope),))
    least = int(SKEW.limit("matched"))
    is_named = any(answer.named for answer in joint.stragglers)
    longest = max(zip(joint.limits, joint.waits, strict=True), key=lambda pair: pair[0].exposed_ns, default=None)
    if is_named and longest is not None and longest[0].is_enough:  # its waiting is known, and what is left is transfer
        scope = joint.outcomes[0].case.scope
        return replace(finding, fix=LESS_TRANSFER, next_tools=(link_test(longest[1], joint, scope),))
    n_matched = max((int(waits.present.all(axis=1).sum()) for waits in joint.waits), default=0)
    absent = _missing_ranks(joint)
    why = (
        "some ranks are missing, and one of them may be the late one"
        if absent
        else f"{n_matched} collectives are matched on all ranks, but {least} are needed to separate waiting from"
        " transfer"
        if n_matched < least
        else f"neither waiting nor transfer alone takes {format_fraction(SKEW.limit('window'))} of the window"
    )
    said = Evidence.count("comm.n_matched", n_matched, why)
    kept = [item for item in finding.evidence if item.metric != _INTERVAL]
    finding = replace(finding, evidence=(*kept, said))
    more = _more_steps(joint)
    if late := _late_at_times(joint):
        rank, times = late
        return replace(
            finding,
            title=f"ranks wait, mostly for rank {rank}, late in {times}: too few to call it a straggler",
            fix=f"record more steps of all ranks: was rank {rank} late by chance, or is it in every step?",
            next_tools=(more,),
        )
    if absent:
        return _awaiting(finding, joint, absent)
    return replace(
        finding,
        fix="first record more steps of all ranks, to separate waiting from transfer; then tune bucket sizes, prefetch,"
        " gradient accumulation and communication precision",
        next_tools=(more,),
    )


def _unsplit_proof(joint: Joint) -> str:
    """What would prove `comm.exposed` as `_unsplit` words it; "" where its own proof stands."""
    if late := _late_at_times(joint):
        return f"Record 20 steps or more: if rank {late[0]} is late again in most of them, it is a straggler."
    if absent := _missing_ranks(joint):
        return f"With the trace of {absent}, the last rank in each collective is known."
    return ""


def _late_at_times(joint: Joint) -> tuple[int, str] | None:
    """The rank that most of the exposed time is spent waiting for, and how often it was late; None where it is not one.

    In the group that is exposed for longest, all of whose ranks are here, where no rank is called a straggler.
    """
    if any(answer.named for answer in joint.stragglers):
        return None
    pairs = [pair for pair in zip(joint.limits, joint.waits, strict=True) if pair[1].is_whole]
    limit, waits = max(pairs, key=lambda pair: pair[0].exposed_ns, default=(None, None))
    if limit is None or waits is None or 2 * limit.wait_exposed_ns < limit.exposed_ns:
        return None
    rank = mostly(waits)
    if rank is None:
        return None
    excess = own_excess_ns(waits)[:, waits.ranks.index(rank)]
    n_times = int((excess > _SHARE_OF_LARGEST * excess.max()).sum())
    return rank, f"{n_times:,} of {len(waits.rows):,} collectives"


def _missing_ranks(joint: Joint) -> str:
    """The ranks of the job whose traces are not here, as "rank 1" or "ranks 1, 5"; "" where all are."""
    here = {summary.rank for summary in joint.summaries}
    size = max(summary.world_size for summary in joint.summaries)
    n_missing = size - len(here)
    if n_missing <= 0:
        return ""
    if n_missing > _MOST_NAMED:
        return f"{n_missing:,} of {size:,} ranks"
    absent = [rank for rank in range(size) if rank not in here]
    return f"rank{'s' if len(absent) > 1 else ''} {format_numbers(absent)}"


def _awaiting(finding: Finding, joint: Joint, absent: str) -> Finding:
    """Exposed communication of ranks that may all wait for one whose trace is not here."""
    is_one = absent.startswith("rank ")
    who = f"{absent}, which may be the late one, is missing"
    some = f"{absent} are missing, and one of them may be late"
    return replace(
        finding,
        title=f"collectives take long; {who if is_one else some}",
        fix=f"first bring the trace{'' if is_one else 's'} of {absent}: until then, waiting and slow transfer look"
        " the same",
        next_tools=(_bring(joint, absent),),
    )


def _bring(joint: Joint, absent: str) -> NextTool:
    folder = str(PurePath(joint.outcomes[0].report.source).parent)
    return NextTool(
        name="profkit triage",
        line=line_of("profkit triage", path_word(folder)),
        purpose=f"bring the trace of {absent} of this recording into the folder, and triage all ranks together",
        look_for="which rank is last in the collectives",
    )
