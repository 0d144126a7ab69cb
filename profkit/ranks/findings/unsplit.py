"""`comm.exposed` of all ranks, where it cannot be split into waiting and transfer: what is known of it.

A rank may be missing, and be the late one; or a rank was late too seldom to be called a straggler.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from msgspec.structs import replace

from profkit.analyzers.tools import recapture
from profkit.findings.communication import SENDS_METRIC, SKEW
from profkit.model.finding import Evidence, Finding, NextTool
from profkit.ranks.findings.communication import LESS_TRANSFER, link_test, mostly
from profkit.ranks.findings.pipeline_findings import next_stage
from profkit.ranks.measure.fleet_measures import Joint
from profkit.ranks.measure.stragglers import own_excess_ns
from profkit.shell import line_of, path_word
from profkit.units import format_fraction, format_numbers

_MOST_NAMED: Final = 8
_INTERVAL: Final = "comm.recoverable_interval_ns"


def unsplit(finding: Finding, joint: Joint) -> Finding:
    """Give `comm.exposed` as it reads when all ranks were compared and still cannot say what it is made of."""
    if finding.has(SENDS_METRIC):  # of gloo's, no trace tells which belong together
        kept = [item for item in finding.evidence if item.metric != _INTERVAL]
        tool = next_stage(joint.outcomes[0].case.scope)
        return replace(finding, evidence=tuple(kept), next_tools=(tool,))
    least = int(SKEW.limit("matched"))
    is_named = any(answer.named for answer in joint.stragglers)
    longest = max(zip(joint.limits, joint.waits, strict=True), key=lambda pair: pair[0].exposed_ns, default=None)
    if is_named and longest is not None and longest[0].is_enough:  # its waiting is known, and what is left is transfer
        scope = joint.outcomes[0].case.scope
        return replace(finding, fix=LESS_TRANSFER, next_tools=(link_test(longest[1], joint, scope),))
    n_matched = max((int(waits.present.all(axis=1).sum()) for waits in joint.waits), default=0)
    absent = missing_ranks(joint)
    why = (
        "some ranks are missing, and one of them may be the late one"
        if absent
        else f"{n_matched} collectives are matched on all ranks, but {least} are needed to separate waiting from"
        " transfer"
        if n_matched < least
        else f"neither waiting nor transfer alone takes {format_fraction(SKEW.limit('window'))} of the window"
    )
    said = Evidence(statement=why, metric="comm.n_matched", value=float(n_matched), unit="count")
    kept = [item for item in finding.evidence if item.metric != _INTERVAL]
    finding = replace(finding, evidence=(*kept, said))
    scope = joint.outcomes[0].case.scope
    more = recapture(
        scope, "record more steps of all ranks: which rank is late?", f"{least} collectives or more on every rank"
    )
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


def unsplit_proof(joint: Joint) -> str:
    """What would prove `comm.exposed` as `unsplit` words it; "" where its own proof stands."""
    if late := _late_at_times(joint):
        return f"Record 20 steps or more: if rank {late[0]} is late again in most of them, it is a straggler."
    if absent := missing_ranks(joint):
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


_SHARE_OF_LARGEST: Final = 0.1
"""Of its largest delay, from which a rank counts as late in a collective. Chosen: the rest is scatter."""


def missing_ranks(joint: Joint) -> str:
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
