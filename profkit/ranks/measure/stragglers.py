"""Which rank keeps the others waiting, and with what; or none.

A rank is named where four things hold together: its lateness is material, it is more than chance would have, the work
it did itself since the last collective explains it (so that a rank held up by another is not blamed), and the estimate
without clocks says the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.findings.ranks.stragglers import LATE_RANK
from profkit.model.arrays import I64, Bool
from profkit.ranks.measure.longer_compute import Longer, MoreWork, compute_factor, longer_by, more_work
from profkit.ranks.measure.permutation_test import (
    blocks_of,
    excess_ns,
    is_gross,
    is_of_one_step,
    lateness_ns,
    middle_of_others,
    own_by_step,
    p_of_few_steps,
    p_of_largest,
    summed_by_block,
)
from profkit.ranks.measure.waits import GroupWaits
from profkit.ranks.reduce.collective_kinds import CollectiveKind
from profkit.ranks.reduce.records import PHASES, Group, RankSummary
from profkit.units import format_fraction, format_ns

_AS_LATE: Final = 0.5
"""Lateness, as a share of the latest rank's, from which a rank is named although it nearly always comes before that
one: two slow devices are two, not one. Chosen: on the Megatron set the third rank has 25 %."""
MOST_OWN: Final = 0.1
"""Own work beyond the others', as a share of lateness, up to which something else must have caused it. Chosen: one
lateness counts in each of some buckets that run beside each other, rarely in ten."""
_COMPUTE, _HOST = PHASES.index("compute"), PHASES.index("host")
_OWN_PHASE: Final = 0.5
_NEARLY_ALL: Final = 0.8
"""Of all that a rank is late, what one delay must make. Chosen: else lateness comes back."""
_COPIED: Final = 0.1
"""Of the delay of a rank that saves, copies that no other rank makes. Chosen: writing takes longer."""
_FELT: Final = 0.5
"""Of one delay, what the median peer must stand still for it. Chosen, as for what explains lateness."""
_FEW_STEPS: Final = 2
"""Chosen: in one step nothing tells a single delay from a habit."""
_IN_OTHERS: Final = 0.5
"""Of the least effect, what is left without the worst of few steps where the others show the lateness too. Chosen."""
_BY_STEP: Final = 0.05
"""The p of whole steps, where these are few, up to which collectives may be the witnesses. Chosen: a usual level."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One time that a rank holds the others up: for how long, and in which step (-1: in none)."""

    lateness_ns: int
    step: int


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that keeps others waiting. Times in ns, summed over the group's instances."""

    rank: int
    group: Group
    phase: str | None
    """What it did longer than the others (one of `PHASES`) for at least half of the excess; None if mixed."""
    phase_excess_ns: tuple[int, ...]
    """By `PHASES`, what it did longer than the middle of the others before the instances it was late for."""
    lateness_ns: int
    """By how much it came after the middle of the others."""
    free_lateness_ns: int
    """The same by durations alone: by how much its collectives were shorter."""
    excess_ns: int
    """By how much it came after the second last: what would be won if it alone came with the others."""
    effect_fraction: float
    """Its lateness beyond that of the middle rank, as a share of the time from the first to the last instance.

    Beyond the middle's, because where phases vary all ranks are late in turn, which nobody can repair by mending one.
    """
    share: float
    """Its part of all ranks' `excess_ns`."""
    p_value: float
    n_last: int
    n_instances: int
    n_blocks: int
    explained_fraction: float
    compute_factor: float | None
    """How much longer the same kernels took here than on the others (weighted by time); None without common ones."""
    longer: Longer = Longer.EITHER
    """What makes its compute longer, where that is its phase."""
    more: MoreWork | None = None
    """What it has more to do, on a CPU: operators and the time between them count as compute then."""
    busier_ns: int | None = None
    """By how much its host does more than that of any rank that is not as late, at most; None if that is not known."""
    is_gross: bool = False
    """Whether it is named by the size of its lateness alone, in a capture too short for a test against chance."""
    is_once: bool = False
    """Whether it is rank 0, named for copies in one step that no other rank makes: a checkpoint looks so."""
    event: Event | None = None
    """The one delay that it is named for, of its host alone, where that is no habit."""
    is_at_barriers: bool = False
    """Whether the group's barriers alone were looked at: the times and counts above are of these then."""

    @property
    def instances(self) -> str:
        """What `n_instances` counts, in a word."""
        return "barriers" if self.is_at_barriers else "collectives"


class Stragglers(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one group. `named` come in the order of lateness; empty means none, for `reason`.

    `hidden` are late as well, but nearly always behind one of `named`: they show once those are repaired.
    """

    group: Group
    named: tuple[Straggler, ...]
    hidden: tuple[Straggler, ...]
    reason: str
    limits: tuple[str, ...]
    barrier_note: str = ""
    """What says that barriers alone were looked at, "" where all collectives were."""


def find_stragglers(waits: Sequence[GroupWaits], summaries: Sequence[RankSummary]) -> tuple[Stragglers, ...]:
    """Per group: the ranks that others wait for."""
    by_rank = {summary.rank: summary for summary in summaries}
    return tuple(_in_group(group, by_rank) for group in waits)


def _in_group(waits: GroupWaits, by_rank: Mapping[int, RankSummary]) -> Stragglers:
    answer = _over_all(waits, by_rank)
    return (None if answer.named else _at_barriers(waits, by_rank, answer.reason)) or answer


def _at_barriers(waits: GroupWaits, by_rank: Mapping[int, RankSummary], reason: str) -> Stragglers | None:
    """Who is late at the group's barriers alone, None where nobody is.

    A second look, where over all collectives nobody stands out: with more ranks than cores each is late at all-reduces
    in turn, and that hides the 20 ms for which one keeps the others at a barrier in every step. It takes half the p.
    """
    is_barrier = waits.kind == CollectiveKind.BARRIER
    if not waits.uses_clocks or not is_barrier.any() or is_barrier.all():
        return None
    answer = _over_all(waits.at(is_barrier), by_rank)
    total = int(own_excess_ns(waits).sum())
    late = [one for one in answer.named if one.p_value < LATE_RANK.limit("p") / 2]
    named = [replace(one, share=one.excess_ns / total, is_at_barriers=True) for one in late]
    if not named:
        return None
    note = f"judged at its {int(is_barrier.sum())} barriers alone; over all collectives, {reason}"
    return replace(answer, named=tuple(named), barrier_note=note)


def own_excess_ns(waits: GroupWaits) -> I64:
    """[n, R]: how much earlier each instance would have begun, had its last rank come with the second last.

    Buckets that run beside each other are late together, for one reason: a rank has not come later, by its own doing,
    than by what it did longer than the others since its collective before.
    """
    longer = lateness_ns(waits.own_ns.sum(axis=2), waits.present)
    return np.minimum(excess_ns(waits.arrival_ns, waits.present), longer)


def own_lateness_ns(waits: GroupWaits, without: Sequence[int] = ()) -> I64:
    """[n, R]: how much later than the middle of the others each rank came, as far as its own work explains it.

    The ranks `without` are taken as absent.
    """
    present = waits.present & ~np.isin(waits.ranks, without)
    longer = lateness_ns(waits.own_ns.sum(axis=2), present)
    return np.minimum(lateness_ns(waits.arrival_ns, present), longer)


def _over_all(waits: GroupWaits, by_rank: Mapping[int, RankSummary]) -> Stragglers:
    present = waits.present.copy()
    own = waits.own_ns.sum(axis=2)
    excess = own_excess_ns(waits)
    named: list[Straggler] = []
    hidden: list[Straggler] = []
    reason = ""
    while present.any(axis=0).sum() > 1:
        longer = lateness_ns(own, present)
        late = np.minimum(lateness_ns(waits.arrival_ns, present), longer)
        late_free = np.minimum(lateness_ns(-waits.duration_ns, present), longer)
        found = _largest(waits, by_rank, (late, late_free, excess), present)
        reason = _reason_against(found, int(late_free.sum(axis=0).argmax()), late_free, waits)
        reason = reason or _reason_of_one_step(found, late, present, waits)
        reason = reason or _reason_of_cores(found, is_cpu=by_rank[found.rank].is_cpu)
        if reason and not named and _copies_once(found, late, waits):
            found, reason = replace(found, is_once=True), ""
        event = _event(found, (late, late_free), waits, by_rank) if reason and not named else None
        if event is not None:
            found, reason = replace(found, event=event), ""
        if reason:
            break
        is_as_late = bool(named) and found.lateness_ns >= _AS_LATE * named[0].lateness_ns
        (named if found.share >= LATE_RANK.limit("share") or is_as_late else hidden).append(found)
        present[:, waits.ranks.index(found.rank)] = False
        if len(waits.ranks) == 2:
            break
    return Stragglers(
        group=waits.group,
        named=tuple(named),
        hidden=tuple(hidden),
        reason="" if named else reason,
        limits=_limits(waits),
    )


def _largest(
    waits: GroupWaits, by_rank: Mapping[int, RankSummary], measures: tuple[I64, I64, I64], present: Bool
) -> Straggler:
    """The evidence on the rank that is latest in sum, whether or not it is a straggler."""
    late, late_free, excess = measures
    column = int(late.sum(axis=0).argmax())
    rank = waits.ranks[column]
    by_block = summed_by_block(blocks_of(waits.step), late)
    # The phase is that of its own work: where buckets run under compute, its collectives end while the others' wait, so
    # that more of its compute follows them.
    by_phase = _phase_excess(waits, waits.own_ns, late, column)
    # Where other groups' collectives lie between, what it did since the last of these is but a part of it.
    is_between = len(np.unique(by_rank[rank].collectives.group)) > 1
    explained = _phase_excess(waits, waits.own_ns if is_between else waits.lead_ns, late, column).sum()
    lateness = int(late[:, column].sum())
    others = np.setdiff1d(np.flatnonzero(present.any(axis=0)), column)
    totals = late.sum(axis=0)
    usual = float(np.median(totals[others]))
    members = {member: by_rank[member] for member in waits.ranks}
    more = more_work(members, rank)
    if more is not None:  # on a CPU more operators also take more dispatch
        by_phase[_COMPUTE] += by_phase[_HOST]
        by_phase[_HOST] = 0
    positive = np.maximum(by_phase, 0)
    main = int(positive.argmax())
    span = int(_span_ns(waits))
    total = int(excess.sum())
    effect = (lateness - usual) / span if span else 0.0
    is_material = effect >= _least_effect(waits)  # what is not is no straggler, whatever chance would do
    p_value = p_of_largest(by_block) if is_material else 1.0
    longer = longer_by(members, rank) if more is None else Longer.WORK
    return Straggler(
        rank=rank,
        group=waits.group,
        phase=PHASES[main] if positive[main] > 0 and positive[main] >= _OWN_PHASE * positive.sum() else None,
        phase_excess_ns=tuple(int(part) for part in by_phase),
        lateness_ns=lateness,
        free_lateness_ns=int(late_free[:, column].sum()),
        excess_ns=int(excess[:, column].sum()),
        effect_fraction=effect,
        share=int(excess[:, column].sum()) / total if total else 0.0,
        p_value=p_value,
        n_last=int((excess[:, column] > 0).sum()),
        n_instances=len(waits.rows),
        n_blocks=len(by_block),
        explained_fraction=float(explained) / lateness if lateness else 0.0,
        is_gross=is_material
        and p_value >= LATE_RANK.limit("p")
        and is_gross(waits.step, late, present, column, rank=rank, effect=effect, by_rank=by_rank),
        # of a slow device against the same ranks: other stages of a pipeline run the same kernels on other work
        compute_factor=compute_factor(members if longer is Longer.DEVICE else by_rank, rank),
        longer=longer,
        more=more if main == _COMPUTE else None,
        busier_ns=busier_ns(by_rank, rank, [waits.ranks[one] for one in others if totals[one] < _AS_LATE * lateness]),
    )


def busier_ns(by_rank: Mapping[int, RankSummary], rank: int, others: Collection[int]) -> int | None:
    """What a host that never waits for its device does longer; others, which do, do as much while they wait for it."""
    mine = by_rank[rank].busy_ns
    known = [busy[0] for other in others if (busy := by_rank[other].busy_ns) is not None]
    if mine is None or not known or len(known) < len(others):
        return None
    return max(mine[1] - max(known), 0)


def _span_ns(waits: GroupWaits) -> int:
    """The time the instances take in all: on corrected clocks; without, what ranks spent in and before them."""
    if waits.uses_clocks:
        start = waits.arrival_ns[waits.present]
        return int((waits.arrival_ns + waits.duration_ns)[waits.present].max() - start.min())
    spent = waits.duration_ns + waits.own_ns.sum(axis=2)
    return int(spent.sum(axis=0).max())


def _phase_excess(waits: GroupWaits, spent_ns: I64, late: I64, column: int) -> NDArray[np.float64]:
    """[5], ns: what a rank did longer than the middle of the others before the instances it was late for."""
    rows = np.flatnonzero(late[:, column] > 0)
    if rows.size == 0:
        return np.zeros(len(PHASES))
    present: Bool = waits.present[rows]
    excess = np.zeros(len(PHASES))
    for phase in range(len(PHASES)):
        spent = spent_ns[rows, :, phase]
        excess[phase] = float((spent[:, column] - middle_of_others(spent, present, column)).sum())
    return excess


def _least_effect(waits: GroupWaits) -> float:
    return LATE_RANK.limit("effect_of_two" if len(waits.ranks) == 2 else "effect")


def _reason_against(found: Straggler, free_column: int, late_free: I64, waits: GroupWaits) -> str:
    """Why the latest rank is no straggler, "" if it is one."""
    least = _least_effect(waits)
    if found.effect_fraction < least:
        return _held_up(waits, least) or (
            f"no rank is later than the others by {format_fraction(least)} of the time: rank {found.rank} is by"
            f" {format_fraction(found.effect_fraction)}"
        )
    if found.p_value >= LATE_RANK.limit("p") and not found.is_gross:
        return (
            f"rank {found.rank} is latest in total, but that may be chance: p = {found.p_value:.2g}"
            f" (permutation test, {found.n_blocks} blocks)"
        )
    if found.explained_fraction < LATE_RANK.limit("own_work"):
        return _explained_by_little(found.rank, found.explained_fraction)
    if found.phase == PHASES[_HOST] and found.busier_ns is not None and found.busier_ns < least * _span_ns(waits):
        return (
            f"rank {found.rank} is late by host work, but its host is busy for only"
            f" {format_fraction(found.busier_ns / max(_span_ns(waits), 1))} of the time longer than the next: the"
            " others' hosts do as much while they wait"
        )
    free = late_free.sum(axis=0)
    if free[waits.ranks.index(found.rank)] < LATE_RANK.limit("agreed") * found.lateness_ns:
        return (
            f"arrival times name rank {found.rank}, durations name rank {waits.ranks[free_column]}: the clocks are"
            " unreliable"
        )
    return ""


def _reason_of_one_step(found: Straggler, late: I64, present: Bool, waits: GroupWaits) -> str:
    least = _IN_OTHERS * LATE_RANK.limit("effect") * _span_ns(waits) / max(waits.n_steps, 1)
    column = waits.ranks.index(found.rank)
    if is_of_one_step(waits.step, late, present, column, least_ns=least):
        return f"in the other steps it is hardly late ({waits.n_steps} recorded): a checkpoint or a first pass looks so"
    p_value = p_of_few_steps(waits.step, late, present)
    if p_value < _BY_STEP:
        return ""
    return f"in {waits.n_steps} steps another rank may be latest as often by chance: p = {p_value:.2g} by whole steps"


def _copies_once(found: Straggler, late: I64, waits: GroupWaits) -> bool:
    """Whether rank 0 is late in one step, after copies that no other rank makes there: it saves what it copies."""
    column = waits.ranks.index(found.rank)
    if found.rank != 0 or waits.n_steps < _FEW_STEPS or found.effect_fraction < _least_effect(waits):
        return False
    if found.explained_fraction < LATE_RANK.limit("own_work"):
        return False
    row = int(late[:, column].argmax())
    copied = waits.own_ns[row, :, PHASES.index("copy")]
    alone = int(copied[column]) - int(np.delete(copied, column).max(initial=0))
    most = int(late[row, column])
    return most >= _NEARLY_ALL * found.lateness_ns and alone >= _COPIED * most


def _event(
    found: Straggler, measures: tuple[I64, I64], waits: GroupWaits, by_rank: Mapping[int, RankSummary]
) -> Event | None:
    """The one delay of a rank's host that is nearly all of its lateness, several times any other, and costs its peers.

    No rank of the job has a third of it beyond the others in any step: where ranks have such delays in turn, none is
    named. Where compute hides it, nobody stands still for it.
    """
    late, late_free = measures
    if waits.n_steps < _FEW_STEPS or len(waits.rows) < LATE_RANK.limit("few") or found.phase != "host":
        return None
    if found.effect_fraction < _least_effect(waits) or found.explained_fraction < LATE_RANK.limit("own_work"):
        return None
    column = waits.ranks.index(found.rank)
    row = int(late[:, column].argmax())
    most = int(late[row, column])
    rest = late.copy()
    rest[row, column] = 0
    own, place = own_by_step(by_rank, found.rank)
    other = max(float(rest.max()), float(np.delete(own, place, axis=1).max(initial=0)))
    waiting = np.delete(waits.wait_exposed_ns[row], column)[np.delete(waits.present[row], column)]
    is_alone = most >= max(_NEARLY_ALL * found.lateness_ns, LATE_RANK.limit("gross_ratio") * other)
    is_felt = float(np.median(waiting)) >= _FELT * most
    is_agreed = int(late_free[row, column]) >= LATE_RANK.limit("agreed") * most
    return Event(lateness_ns=most, step=int(waits.step[row])) if is_alone and is_felt and is_agreed else None


def _reason_of_cores(found: Straggler, *, is_cpu: bool) -> str:
    least = LATE_RANK.limit("effect_of_cores")
    is_more = found.more is not None and found.more.is_operators
    if not is_cpu or is_more or found.phase != "compute" or found.effect_fraction >= least:
        return ""
    return (
        f"rank {found.rank} computes longer, by {format_fraction(found.effect_fraction)} of the time: on a CPU, other"
        f" work on its core can cause that, so the threshold is {format_fraction(least)}"
    )


def _held_up(waits: GroupWaits, least: float) -> str:
    """The reason where a rank comes late all the same, without having done more than the others; "" else."""
    late = lateness_ns(waits.arrival_ns, waits.present).sum(axis=0)
    column = int(late.argmax())
    own = int(lateness_ns(waits.own_ns.sum(axis=2), waits.present)[:, column].sum())
    if late[column] < least * _span_ns(waits) or own >= MOST_OWN * late[column]:
        return ""
    return _explained_by_little(waits.ranks[column], own / int(late[column]))


def _explained_by_little(rank: int, share: float) -> str:
    return (
        f"rank {rank} is late, but its own work since its last collective explains only"
        f" {format_fraction(max(share, 0))} of it: something else held it up"
    )


def _limits(waits: GroupWaits) -> tuple[str, ...]:
    limits = []
    if not waits.is_whole:
        missing = waits.group.size - len(waits.ranks)
        limits.append(f"{missing} of {waits.group.size} ranks are missing: one of them may be later than these")
    if not waits.uses_clocks:
        limits.append("too few common collectives to align the clocks: delays are taken from durations alone")
    if waits.is_disputed:
        limits.append(
            f"waits from clocks and waits from durations differ by {format_ns(waits.disagreement_ns)} (median)"
        )
    return tuple(limits)
