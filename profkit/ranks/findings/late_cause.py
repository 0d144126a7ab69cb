"""Why a rank is late: what it has more of than its peers. What all ranks have alike is no cause, however large."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np
from msgspec.structs import replace

from profkit.findings import kind_of
from profkit.findings.host import LAUNCH_BOUND
from profkit.findings.memory import PRESSURE
from profkit.findings.ranks.stragglers import LATE_RANK
from profkit.model.finding import Evidence, Finding
from profkit.model.names import short_name
from profkit.ranks.findings.late_places import is_one_line, late_places, short_place
from profkit.ranks.measure.fleet_measures import Joint
from profkit.ranks.measure.kernel_slowdown import Longer, tokens_factor
from profkit.ranks.measure.more_work import elements
from profkit.ranks.measure.peer_totals import busiest, excess_of, spent_ns
from profkit.ranks.measure.stragglers import Straggler
from profkit.ranks.measure.waits import GroupWaits
from profkit.ranks.reduce.outcome import Outcome
from profkit.ranks.reduce.records import PHASES, LeadRanges, RankSummary
from profkit.units import format_fraction, format_ns, format_speedup

_NAME_WIDTH: Final = 40
_WORTH: Final = 0.1
"""Of a rank's lateness, from which one range's difference is said. Chosen."""
_SHOWN: Final = 3
_UNRECORDED: Final = "nothing recorded"

Totals = Mapping[str, float]
"""Time by name, ns per step (per window without steps)."""


def cause_of(straggler: Straggler, waits: GroupWaits, joint: Joint) -> str:
    """Why a rank is late, in some words for a table: the phase, and of what in it the rank has more than its peers."""
    phase = straggler.phase or "mixed"
    if straggler.phase == "compute":
        return f"{phase}: {_longer_words(straggler, waits, joint)}"
    if straggler.phase == "device":
        return f"{phase}: late"
    places = late_places(straggler, waits, joint)
    if is_one_line(places):
        return f"{phase}: {short_place(places[0].place)}"
    if is_unrecorded(straggler, waits, joint):
        return f"{phase}: not recorded"
    own = own_finding(straggler, waits, joint)
    if own is not None:
        return f"{phase}: {kind_of(own.id).late_word}"
    name, longer_ns = _longest(straggler, waits, joint, _ranges_before(waits))
    least = LATE_RANK.limit("beside_peers") * _phase_excess_ns(straggler, joint)
    return f"{phase}: {name}" if straggler.phase != "data" and longer_ns >= least > 0 else phase


def is_unrecorded(straggler: Straggler, waits: GroupWaits, joint: Joint) -> bool:
    """Whether host time with nothing recorded is what makes the rank late."""
    least = LATE_RANK.limit("beside_peers") * _phase_excess_ns(straggler, joint)
    if straggler.phase == "host" and is_hostless(straggler, joint):
        return True
    return straggler.phase in ("host", None) and _quiet(straggler, waits, joint)[1] >= least > 0


def is_hostless(straggler: Straggler, joint: Joint) -> bool:
    """Whether the rank's trace holds no host time at all: no operator, no range of the script, no launch."""
    summary = joint.outcome_of(straggler.rank).summary
    rows = summary.collectives
    return not summary.is_cpu and not len(summary.ranges) and bool((rows.issued_ns == rows.start_ns).all())


def part_of_delay(share: float) -> str:
    """How much of a rank's delay is explained."""
    return "all" if share >= 0.9995 else format_fraction(share)


def _longer_words(straggler: Straggler, waits: GroupWaits, joint: Joint) -> str:
    factor = straggler.compute_factor or 1
    if models_apart(straggler, waits, joint) is not None:
        return "other model of device"
    if straggler.longer is Longer.WORK:
        return "more work"
    return f"same kernels {format_speedup(factor)}" if is_slower(straggler) else "longer at times"


def is_slower(straggler: Straggler) -> bool:
    """Whether the usual run of a kernel takes longer here, and not some runs alone."""
    return (straggler.compute_factor or 1) >= LATE_RANK.limit("slow_kernels")


def models_apart(straggler: Straggler, waits: GroupWaits, joint: Joint) -> tuple[str, str] | None:
    """The late rank's device and its peers', where all of these have one other model; None where not."""
    names = {rank: busiest(joint.outcome_of(rank).report).name for rank in waits.ranks}
    mine = names.pop(straggler.rank)
    others = set(names.values())
    theirs = next(iter(others), "")
    return (mine, theirs) if mine and theirs and len(others) == 1 and mine != theirs else None


def _phase_excess_ns(straggler: Straggler, joint: Joint) -> float:
    """Per step, what the rank has more of its phase than its peers; of no phase, its lateness."""
    if straggler.phase is None:
        return straggler.lateness_ns / joint.n_steps
    return straggler.phase_excess_ns[PHASES.index(straggler.phase)] / joint.n_steps


def own_finding(straggler: Straggler, waits: GroupWaits, joint: Joint) -> Finding | None:
    """The late rank's own finding in the phase that makes it late, the largest that exceeds its peers' enough."""
    if straggler.phase is None:
        return None
    report = joint.outcome_of(straggler.rank).report
    least = LATE_RANK.limit("beside_peers") * _phase_excess_ns(straggler, joint)
    found = [
        item
        for item in report.findings
        if kind_of(item.id).late_phase == straggler.phase
        and excess_of(straggler.rank, waits.ranks, _over(waits, joint, item.id)) >= least
    ]
    return max(found, key=lambda item: item.fraction, default=None)


def _over(waits: GroupWaits, joint: Joint, name: str) -> dict[int, float]:
    """By rank of the group, ns per step of what a finding is about."""
    return {rank: _cost_ns(joint.outcome_of(rank), name) for rank in waits.ranks}


def _cost_ns(outcome: Outcome, name: str) -> float:
    """What a rank has of what a finding is about, ns per step: of the budget where that tells it, below limits as well.

    Of `host.launch_bound` the launches alone: other host work is not launching. Calls of the allocator are not in the
    budget by themselves; a rank without the finding counts as having none.
    """
    report, part = outcome.report, kind_of(name).part
    if name == LAUNCH_BOUND.id:
        return spent_ns(report, "idle_launch")
    if part is not None and name != PRESSURE.id:
        return spent_ns(report, *part.budget)
    low, high = report.window_ns
    share = sum(item.fraction for item in report.findings if item.id == name)
    return share * (high - low) / max(report.steps.n, 1)


def cause_evidence(straggler: Straggler, waits: GroupWaits, joint: Joint) -> Iterable[Evidence]:
    """What the late rank has more of than its peers, each with the difference."""
    per = joint.per
    yield from _more_work(straggler, waits, joint)
    own = own_finding(straggler, waits, joint)
    before, quiet_ns = _quiet(straggler, waits, joint)
    if straggler.phase == "host" and is_hostless(straggler, joint):
        yield Evidence(
            statement="its trace has no row of the host: a loader, a sleep and other work on the CPU look the same",
            metric="straggler.n_host_ranges",
            value=0.0,
            unit="count",
        )
    elif straggler.phase in ("host", None) and quiet_ns >= 1:
        where = f", mostly before {before}" if before else ""
        yield Evidence(
            statement=f"its CPU spends {format_ns(quiet_ns)} {per} longer than its peers with {_UNRECORDED}{where}",
            metric="straggler.quiet_excess_ns",
            value=quiet_ns * joint.n_steps,
            unit="ns",
        )
    if own is not None and not is_unrecorded(straggler, waits, joint):
        yield replace(own.measure, statement=f"on rank {straggler.rank}: {own.measure.statement}")
    name, longer_ns = _longest(straggler, waits, joint, _ranges_before(waits))
    is_worth = longer_ns >= max(_WORTH * straggler.lateness_ns / joint.n_steps, 1)
    if is_worth and straggler.phase not in ("compute", "device"):
        yield Evidence(
            statement=f"before collectives, {name} takes {format_ns(longer_ns)} {per} longer here",
            metric="straggler.range_excess_ns",
            value=longer_ns * joint.n_steps,
            unit="ns",
        )
    if straggler.phase == "compute" and (models := models_apart(straggler, waits, joint)):
        yield Evidence(
            statement=f"its device is {models[0]}, its peers have {models[1]}",
            metric="straggler.is_other_model",
            value=1.0,
            unit="bool",
        )
    members = {rank: joint.outcome_of(rank).summary for rank in waits.ranks}
    tokens = tokens_factor(members, straggler.rank) if straggler.longer is Longer.WORK else None
    if straggler.phase == "compute" and tokens is not None and tokens > 1:
        yield Evidence(
            statement=f"it computes on {format_speedup(tokens)} as many tokens as the median rank",
            metric="straggler.tokens_factor",
            value=tokens,
            unit="",
        )
    kernel, longer_ns = _longest(straggler, waits, joint, _work)
    if straggler.phase == "compute" and straggler.more is None and longer_ns >= 1:
        yield Evidence(
            statement=f"{kernel} takes {format_ns(longer_ns)} {per} longer here than on the median rank",
            metric="straggler.kernel_excess_ns",
            value=longer_ns * joint.n_steps,
            unit="ns",
        )


def _more_work(straggler: Straggler, waits: GroupWaits, joint: Joint) -> Iterable[Evidence]:
    """How many operators, or how large inputs, a rank with more work has, and its peers."""
    more = straggler.more
    if more is None:
        return
    mine, theirs = (f"{value:,.0f}" for value in (more.mine, more.peers))
    what = "it runs {} operators a step" if more.is_operators else "the input of its first layer has {} elements"
    made = joint.outcome_of(straggler.rank).summary.batch_place
    yield Evidence(
        statement=f"{what.format(mine)}, the median of the other ranks {theirs}"
        + (f"; its batches come from {made}" if made and not more.is_own else ""),
        metric=f"straggler.{'operators' if more.is_operators else 'inputs'}_factor",
        value=more.factor,
        unit="",
    )
    if more.is_own:
        return
    peer = min(
        (rank for rank in waits.ranks if rank != straggler.rank),
        key=lambda rank: abs(elements(joint.outcome_of(rank).summary) - more.peers),
    )
    shapes = [_shapes(joint.outcome_of(rank).summary) for rank in (straggler.rank, peer)]
    if all(shapes):
        yield Evidence(
            statement=f"its first layer is given {shapes[0]} (steps with recorded shapes), that of rank {peer}"
            f" {shapes[1]}",
            metric="straggler.input_elements",
            value=elements(joint.outcome_of(straggler.rank).summary),
            unit="count",
        )


def _shapes(summary: RankSummary) -> str:
    return ", ".join(" x ".join(map(str, shape)) for shape in summary.inputs[:_SHOWN])


def _quiet(straggler: Straggler, waits: GroupWaits, joint: Joint) -> tuple[str, float]:
    """What follows the longest host time with nothing recorded, and by how much the rank has more of it, per step."""
    totals = {rank: _quiet_totals(joint.outcome_of(rank).summary) for rank in waits.ranks}
    longer = excess_of(straggler.rank, waits.ranks, {rank: sum(names.values()) for rank, names in totals.items()})
    mine = totals[straggler.rank]
    name = max(mine, key=lambda key: mine[key], default="")
    return short_name(name, _NAME_WIDTH) if name else "", max(longer, 0.0)


def _quiet_totals(summary: RankSummary) -> Totals:
    return _totals(summary, summary.quiet, np.arange(len(summary.quiet)))


def _longest(
    straggler: Straggler, waits: GroupWaits, joint: Joint, totals_of: Callable[[RankSummary, int], Totals]
) -> tuple[str, float]:
    """The name whose time is most above the middle of the other ranks', and by how much, ns per step."""
    totals = {rank: totals_of(joint.outcome_of(rank).summary, rank) for rank in waits.ranks}
    longer = {
        name: excess_of(straggler.rank, waits.ranks, {rank: names.get(name, 0.0) for rank, names in totals.items()})
        for name in totals[straggler.rank]
    }
    name = max(longer, key=lambda key: longer[key], default="")
    return short_name(name, _NAME_WIDTH) if name else "", max(longer.get(name, 0.0), 0.0)


def _ranges_before(waits: GroupWaits) -> Callable[[RankSummary, int], Totals]:
    """Host ranges before the group's collectives."""
    column_of = {rank: column for column, rank in enumerate(waits.ranks)}

    def totals(summary: RankSummary, rank: int) -> Totals:
        leads = summary.lead_ranges
        return _totals(summary, leads, np.flatnonzero(np.isin(leads.row, waits.rows[:, column_of[rank]])))

    return totals


def _work(summary: RankSummary, rank: int) -> Totals:
    """Kernels, of any shape."""
    out: dict[str, float] = {}
    for name, total in zip(summary.work.name, summary.work.total_ns, strict=True):
        text = summary.name(int(name))
        out[text] = out.get(text, 0.0) + int(total) / max(len(summary.steps), 1)
    return out


def _totals(summary: RankSummary, leads: LeadRanges, chosen: np.ndarray) -> Totals:
    names, inverse = np.unique(leads.name[chosen], return_inverse=True)
    totals = np.bincount(inverse.reshape(-1), leads.total_ns[chosen], names.size)
    n_steps = max(len(summary.steps), 1)
    return {summary.name(int(code)): float(total) / n_steps for code, total in zip(names, totals, strict=True)}
