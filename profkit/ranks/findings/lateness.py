"""`straggler.rank` and `rank0.work`: ranks that the others wait for, with what they do meanwhile, and what they cost.

Several late ranks cost it together: each alone costs next to nothing where another one is as late.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from profkit.analyzers.base import Scope
from profkit.analyzers.tools import py_spy_loader, recapture, system_timeline
from profkit.findings.ranks.stragglers import (
    LATE_RANK,
    LATE_WORDS,
    MORE_FIX,
    MORE_SPENT,
    OWN_FIX,
    RANK0,
    UNRECORDED,
)
from profkit.model.finding import Evidence, Finding, NextTool, severity_of
from profkit.model.names import short_name
from profkit.ranks.findings.late_cause import Late, cause_evidence, is_one_line, late_places, part_of_delay, places_of
from profkit.ranks.measure.fingerprints import OnlyWork, only_work
from profkit.ranks.measure.fleet_measures import Joint, room_ns
from profkit.ranks.measure.longer_compute import Longer
from profkit.ranks.measure.permutation_test import MIN_STEPS, lateness_ns
from profkit.ranks.measure.replay import Counterfactual
from profkit.ranks.measure.stragglers import Straggler
from profkit.ranks.measure.waits import GroupWaits
from profkit.ranks.reduce.collective_kinds import CollectiveKind
from profkit.ranks.reduce.records import PHASES
from profkit.shell import line_of, path_word
from profkit.units import format_ns, format_numbers, format_speedup

_SURE: Final = 0.9
_GROSS: Final = 0.8
"""What is left of the confidence where no test against chance is possible. Chosen: high becomes medium at most."""
_ONCE: Final = ": seen in one step alone, after copies that no other rank makes: a checkpoint looks so"
_AGAIN: Final = (
    "Record 20 steps or more on all ranks: if the rank is held up again, that is the cause, and not one event."
)
_LINE_FIX: Final = (
    "make that line as cheap as on the other ranks: take it out of the step, or share its work among the ranks; where"
    " all ranks do the same work there, check what else runs on that rank's cores"
)
_AS_LONG: Final = 0.5
"""Of what a late rank costs, what a rank of another group must wait to be counted among those that wait. Chosen."""
_NAMED: Final = 0.85
_UNNAMED: Final = 0.7
"""Chosen: lateness at barriers says when rank 0 is busy, not with what."""
_NAME_WIDTH: Final = 40
_RANK0_FIX: Final = "make it rarer or asynchronous, split it among the ranks, or drop the barrier after it"


def late_ranks(joint: Joint) -> dict[int, Late]:
    """Each late rank with the group in which that costs most, the costliest first."""
    found: dict[int, Late] = {}
    for answer, waits in zip(joint.stragglers, joint.waits, strict=True):
        for straggler in answer.named:
            known = found.get(straggler.rank)
            if known is None or straggler.excess_ns > known.straggler.excess_ns:
                found[straggler.rank] = Late(straggler, waits, answer, joint)
    return dict(sorted(found.items(), key=lambda item: -item[1].straggler.excess_ns))


def findings(joint: Joint, scope: Scope) -> Iterable[Finding]:
    """A finding for each late rank, and one more for rank 0 where it does what no other rank does."""
    found = list(late_ranks(joint).values())
    for late in found:
        finding = _late(late, found, scope)
        alone = only_work(late.straggler, late.waits, joint.summaries)
        if alone is not None and late.rank == 0:
            yield replace(_of_rank0(late, alone, scope, confidence=finding.confidence), places=finding.places)
        yield _for_all(finding, found) if late is found[0] and len(found) > 1 else finding


def _late(late: Late, found: Sequence[Late], scope: Scope) -> Finding:
    straggler, joint = late.straggler, late.joint
    recoverable = _recoverable_ns(straggler, joint)
    as_late = {one.rank for one in found if 2 * one.straggler.lateness_ns >= straggler.lateness_ns}
    waiting = waiting_words([rank for rank in _waiting_for([late]) if rank not in as_late])
    places = late_places(late)
    is_unknown = late.is_unrecorded and not is_one_line(places)
    why = UNRECORDED if is_unknown else LATE_WORDS[late.phase].one
    why = straggler.more.words if straggler.more is not None else why
    # work that is balanced goes to its peers, each has a part
    is_shared = straggler.more is not None and not straggler.more.is_own
    kept = 1 - 1 / len(late.waits.ranks) if is_shared else 1.0
    finding = LATE_RANK.found(
        title=f"{waiting} for rank {late.rank}{_how(straggler, why, is_unknown=is_unknown)}",
        confidence=_confidence(late),
        recoverable_ns=joint.per_step(round(recoverable * kept)),
        most_recoverable_ns=joint.per_step(recoverable) if kept < 1 else None,
        fraction=joint.fraction(recoverable),
        evidence=tuple(_evidence(late)),
        fix=_LINE_FIX if is_one_line(places) else _fix(late, is_cpu=scope.is_cpu),
        next_tools=(_next_tool(late, scope),),
        rank=late.rank,
        proof=_AGAIN if straggler.event is not None else "",
    )
    return replace(finding, places=places or places_of(late.own_finding) or places_of(_its_alone(late)))


def _its_alone(late: Late) -> Finding | None:
    """Of a rank with work of its own, the largest finding with lines that no peer has."""
    if late.straggler.more is None or not late.straggler.more.is_own:
        return None
    others = {one.id for peer in late.peers for one in peer.report.findings}
    mine = [one for one in late.outcome.report.findings if one.places and one.id not in others]
    return max(mine, key=lambda one: one.fraction, default=None)


def _how(straggler: Straggler, why: str, *, is_unknown: bool) -> str:
    """How a rank is late, behind its number in a title."""
    if straggler.event is None:
        return f", {why}"
    meanwhile = "its host runs no operator" if is_unknown else "it is held up by its CPU"
    return f" once, for {format_ns(straggler.event.lateness_ns)}, while {meanwhile}"


def _confidence(late: Late) -> float:
    """The ladder: less without a phase, with ranks missing, without clocks, with disputed ones, or of few steps."""
    straggler, waits, answer = late.straggler, late.waits, late.answer
    sure = _SURE * (0.8 if straggler.phase is None else 1.0)
    sure *= 1.0 if waits.is_whole else 0.8
    sure *= 0.85 if (answer.limits or answer.barrier_note) and waits.is_whole else 1.0
    sure *= _GROSS if straggler.is_gross or straggler.is_once or straggler.event else 1.0
    return late.joint.sure(sure, waits.ranks, waits.n_steps)


def _evidence(late: Late) -> Iterable[Evidence]:
    straggler, joint, per = late.straggler, late.joint, late.joint.per
    yield Evidence.time(
        "straggler.lateness_ns",
        straggler.lateness_ns,
        f"rank {late.rank} arrives {joint.shown(straggler.lateness_ns)} {per} later than the median rank;"
        f" by its own work, it is last in {straggler.n_last:,} of {straggler.n_instances:,} {straggler.instances}",
    )
    if straggler.event is not None:
        yield _by_chance(late)
    main = straggler.phase or PHASES[int(np.argmax(straggler.phase_excess_ns))]
    longer = straggler.phase_excess_ns[PHASES.index(main)]
    yield Evidence.time(
        f"straggler.phase_excess_ns.{main}",
        longer,
        f"before the {straggler.instances} that it holds up, it spends {joint.shown(longer)} {per} longer"
        f" {LATE_WORDS[main].spent if straggler.more is None else MORE_SPENT} than the median rank: this explains"
        f" {part_of_delay(longer / max(straggler.lateness_ns, 1))} of the delay",
    )
    yield from cause_evidence(late)
    yield Evidence.time(
        "straggler.excess_ns",
        straggler.excess_ns,
        f"it arrives {joint.shown(straggler.excess_ns)} {per} after the next-slowest rank; durations alone, which need"
        f" no clocks, make it {joint.shown(straggler.free_lateness_ns)} late",
    )
    if straggler.event is None:
        yield _by_chance(late)
    if straggler.compute_factor is not None and straggler.more is None:
        yield Evidence.factor(
            "straggler.compute_factor",
            straggler.compute_factor,
            f"the same kernels take {format_speedup(straggler.compute_factor)} as long as on the median rank",
            expected=f"< {LATE_RANK.limit('slow_kernels')}",
        )


def _by_chance(late: Late) -> Evidence:
    """Why the delay is no chance; of one delay alone no test says that, but its size."""
    straggler = late.straggler
    if straggler.event is not None:
        share = min(straggler.event.lateness_ns / max(straggler.lateness_ns, 1), 1.0)
        return Evidence.time(
            "straggler.event_ns",
            straggler.event.lateness_ns,
            f"one delay, in step {straggler.event.step}, holds {part_of_delay(share)} of that time, and no other is a"
            " third as long; a longer capture shows how often it comes back",
        )
    others = "any rank that is not named" if len(late.answer.named) > 1 else "any other rank"
    short = f": too short for this test, but the delay is several times that of {others}"
    return Evidence.factor(
        "straggler.p_value",
        straggler.p_value,
        f"such a delay by chance: p = {straggler.p_value:.2g} (permutation test, {straggler.n_blocks} blocks)"
        f"{short if straggler.is_gross else ''}{_ONCE if straggler.is_once else _few_steps(late.waits)}",
        expected=f"< {LATE_RANK.limit('p')}",
    )


def _few_steps(waits: GroupWaits) -> str:
    """What blocks of few steps cannot show, "" from six steps on."""
    if waits.n_steps >= MIN_STEPS:
        return ""
    seen = {0: "no step is marked", 1: "all in one step"}.get(waits.n_steps, f"all in {waits.n_steps} steps")
    return f", {seen}: whether the rank is late in other steps is unknown"


def _fix(late: Late, *, is_cpu: bool) -> str:
    """The way out, without the rank's number: of two late ranks it is said once."""
    straggler = late.straggler
    if straggler.phase == "data":
        return "give the late rank what its peers have: the same number of loader workers, shard size and storage"
    if straggler.phase == "compute":
        return _compute_fix(late, is_cpu=is_cpu)
    if straggler.is_once:
        return "save less often, asynchronously (torch.distributed.checkpoint.async_save), or a part on each rank"
    if straggler.phase == "copy":
        return "give the late rank what its peers have: pinned memory, and a CPU core near its device"
    if straggler.phase == "device":
        return (
            "find out what holds launched work up on the late rank's idle device: another process on it (time slicing"
            " looks so), or an event of another device; give the rank a device of its own"
        )
    if straggler.phase == "host" and late.is_hostless:
        return "first record the host's operators and calls on all ranks as well: then it is known what the CPU does"
    if straggler.event is not None:
        return (
            "if it comes back in a longer capture: collect garbage at the same step on all ranks (gc.disable(), then"
            " gc.collect() every n-th step), keep logging and checkpoints off the training thread"
        )
    if straggler.phase == "host":
        return (
            "check what else that rank's CPU is doing: logging, checkpoints, garbage collection, other processes;"
            + (" pin each rank to cores of its own" if is_cpu else " pin it to cores of its device's socket")
        )
    return "compare the late rank with a peer: no phase explains half of the delay"


def _compute_fix(late: Late, *, is_cpu: bool) -> str:
    more, longer = late.straggler.more, late.straggler.longer
    slow, state = (
        ("cores are", "clocks and what else runs on them")
        if is_cpu
        else ("device is", "clocks, power cap and temperature")
    )
    slower, work = ("slower cores", "operators") if is_cpu else ("a slower device", "kernels")
    if late.models_apart is not None:
        return "give all ranks of the group the same model of device, or the late rank a smaller share of the work"
    if more is not None:
        return OWN_FIX if more.is_own else MORE_FIX
    if longer is Longer.WORK:
        return f"the late rank has more work, not {slower}: balance its share (tokens, lengths, layers, experts)"
    if longer is Longer.DEVICE:
        its = "their" if is_cpu else "its"
        return f"the late rank's {slow} slow: check {its} {state}, or replace the node"
    if not late.is_slower:
        return (
            f"the same {work} take longer at times: compare the late rank's inputs (tokens, lengths) step by step, and"
            f" its {state}"
        )
    return (
        f"the same {work} take longer, for more work that the trace does not show, or on {slower}:"
        f" compare the late rank's inputs (tokens, lengths) with a peer's first, then {state}"
    )


def _next_tool(late: Late, scope: Scope) -> NextTool:
    rank, phase = late.rank, late.phase
    if phase == "data":
        return py_spy_loader(scope.command)
    if phase == "host" and late.is_hostless:
        return recapture(
            scope, f"what does the CPU of rank {rank} do?", "operators, ranges and calls before its delays"
        )
    if phase == "host":
        return system_timeline(
            scope,
            f"what delays the CPU of rank {rank}?",
            f"times when the thread of rank {rank} does not run, or calls that only this rank makes",
            ranks=(rank, _usual_peer(rank, late.waits)),
        )
    if phase == "compute" and late.straggler.longer is Longer.DEVICE and late.models_apart is None:
        return NextTool(
            name="nvidia-smi",
            line=line_of("nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE"),
            purpose=f"is the device of rank {rank} throttled? run it on that host while the job trains",
            look_for="active slowdown reasons, clocks below those of the peers' devices",
        )
    if phase == "device":
        return NextTool(
            name="nvidia-smi",
            line=line_of("nvidia-smi pmon -c 10"),
            purpose=f"who else uses the device of rank {rank}? run it on that host while the job trains",
            look_for="a second process on the same device; on AMD, amd-smi process shows the same",
        )
    pair = (late.joint.outcome_of(one).report.source for one in (_usual_peer(rank, late.waits), rank))
    return NextTool(
        name="profkit compare",
        line=line_of("profkit compare", *map(path_word, pair)),
        purpose=f"what does rank {rank} do that a peer does not?",
        look_for="the part of the waterfall that grew, and the kernels or operators under it",
    )


def _usual_peer(rank: int, waits: GroupWaits) -> int:
    """The rank of the group that waits the median time."""
    order = np.argsort(waits.wait_ns.sum(axis=0), kind="stable")
    middle = waits.ranks[int(order[len(order) // 2])]
    return middle if middle != rank else next(other for other in waits.ranks if other != rank)


def _of_rank0(late: Late, alone: OnlyWork, scope: Scope, *, confidence: float) -> Finding:
    """The finding `rank0.work`; `confidence` is that in rank 0's lateness."""
    joint = late.joint
    most = min(max(alone.covered_fraction, alone.barrier_fraction), 1.0)
    recoverable = int(_recoverable_ns(late.straggler, joint) * most)
    # what covers less is not why it is late
    is_named = bool(alone.names) and alone.covered_fraction >= RANK0.limit("covered")
    covered = alone.covered_fraction if is_named else alone.barrier_fraction
    names = ", ".join(short_name(name, _NAME_WIDTH) for name in alone.names[:3])
    verb = "runs" if len(alone.names) == 1 else "run"
    part = f"{part_of_delay(covered)} of the delay"
    # of all its delay, or of barriers alone, where that alone is more than chance
    where = "; elsewhere its delay may be chance" if late.straggler.is_at_barriers else f": {part} arises there"
    return RANK0.found(
        title="" if is_named else "all ranks wait for rank 0 at barriers",
        confidence=min(confidence, _NAMED if is_named else _UNNAMED),
        recoverable_ns=joint.per_step(recoverable),
        fraction=joint.fraction(recoverable),
        evidence=(
            Evidence.share(
                "rank0.covered_fraction",
                covered,
                f"{names} {verb} on rank 0 only; this explains {part}"
                if is_named
                else f"the others wait for rank 0 at barriers{where}",
                expected=f">= {RANK0.thresholds['covered'].shown}",
            ),
            Evidence.time(
                "rank0.recoverable_ns",
                recoverable,
                f"{'without that work' if is_named else 'if rank 0 comes with the others,'} the job saves at most"
                f" {format_ns(joint.saved_ns(recoverable))} {joint.per}",
            ),
        ),
        fix=_RANK0_FIX if is_named else f"name rank 0's work with torch.profiler.record_function; then {_RANK0_FIX}",
        next_tools=(
            system_timeline(
                scope, "what does rank 0 do alone?", "rank 0's main thread between its last two collectives"
            ),
        ),
        rank=0,
    )


# -------------------------------------------------------------------------------------------------- what lateness costs


def _excess_of_ns(waits: GroupWaits, ranks: Sequence[int]) -> int:
    """What instances would have begun earlier in all, had these ranks come with the last of the others."""
    chosen = np.isin(waits.ranks, ranks)
    is_late, is_other = waits.present & chosen, waits.present & ~chosen
    rows = np.flatnonzero(is_late.any(axis=1) & is_other.any(axis=1))
    if rows.size == 0:
        return 0
    lowest = np.iinfo(np.int64).min // 4
    arrival = waits.arrival_ns[rows]
    last = np.where(is_late[rows], arrival, lowest).max(axis=1)
    other = np.where(is_other[rows], arrival, lowest).max(axis=1)
    # As for one rank: none has come later, by its own doing, than by what it did longer than the others.
    longer = np.where(is_late, lateness_ns(waits.own_ns.sum(axis=2), waits.present), 0)[rows].max(axis=1)
    return int(np.minimum(np.maximum(last - other, 0), longer).sum())


def _recoverable_ns(straggler: Straggler, joint: Joint) -> int:
    """What mending this rank alone gives at most over the window: by replay where it can say, else by its arrivals.

    By arrivals it is the distance from the second last of its group (docs/sources.md, rule 7). The replay knows what of
    the lateness comes back elsewhere, and that another group waits for another rank meanwhile.
    """
    prediction = joint.prediction
    if (alone := joint.alone.get(straggler.rank)) is not None:
        won = alone.gain_ns * joint.n_steps
    elif isinstance(prediction, Counterfactual) and {item.rank for item in prediction.equalised} == {straggler.rank}:
        won = prediction.most_gain_ns * joint.n_steps + _sent_more_ns([straggler], joint)
    else:
        won = round(straggler.excess_ns * _unseen(straggler, joint))
    return min(won, room_ns(joint.summaries, [straggler.rank]))


def _unseen(straggler: Straggler, joint: Joint) -> float:
    """All steps over those up to the last collective, where collectives are rare; 1 where none lies in a marked step.

    What is late behind it shows at the next one, which is not recorded.
    """
    waits = next((one for one in joint.waits if one.group == straggler.group), None)
    if waits is None or straggler.event is not None or straggler.is_once:
        return 1.0
    if not 0 < 2 * waits.n_steps <= joint.n_steps:
        return 1.0
    numbers = joint.outcome_of(straggler.rank).summary.steps.number
    return numbers.size / max(int((numbers <= waits.step.max()).sum()), 1)


def _sent_more_ns(late: Sequence[Straggler], joint: Joint) -> int:
    """By how much ranks with more work may make their groups' transfers longer: they get more to work on.

    Longer than the twins', which have none; of an all-to-all, as far as what its busiest rank moves exceeds the mean.
    """
    ranks = {one.rank for one in late if one.phase == "compute" and one.longer is Longer.WORK}
    longer = 0
    for waits in joint.waits:
        twins = [
            int(other.transfer_ns.sum())
            for other in joint.waits
            if other.rows.shape == waits.rows.shape and not set(other.ranks) & (ranks | set(waits.ranks))
        ]
        if ranks & set(waits.ranks) and twins:
            longer += max(int(waits.transfer_ns.sum()) - round(float(np.median(twins))), 0)
        elif ranks & set(waits.ranks):
            longer += _unequal_ns(waits, joint)
    return longer


def _unequal_ns(waits: GroupWaits, joint: Joint) -> int:
    """What all-to-alls would last less at most, did each rank send and receive what the mean rank does.

    At most: as if all of their time grew with what the busiest rank moves.
    """
    rows = np.flatnonzero((waits.kind == CollectiveKind.ALL_TO_ALL) & waits.present.all(axis=1))
    tables = [joint.outcome_of(rank).summary.collectives for rank in waits.ranks]
    chosen = list(zip(tables, waits.rows[rows].T, strict=True))
    given, taken = (
        np.stack([getattr(table, name)[mine] for table, mine in chosen]).astype(np.float64)
        for name in ("in_elements", "out_elements")
    )
    most = np.maximum(given.max(axis=0), taken.max(axis=0))
    usual = np.maximum(given.mean(axis=0), taken.mean(axis=0))
    is_known = (np.minimum(given, taken).min(axis=0) >= 0) & (most > 0)
    share = 1 - np.divide(usual, most, out=np.ones(rows.size), where=is_known)
    return round(float((waits.transfer_ns[rows] * share).sum()))


def _together_ns(joint: Joint, late: Sequence[Straggler]) -> tuple[int, bool]:
    """What mending these ranks would give over the window, and whether the replay says so.

    Else by arrivals, in the group where it is most: no less than one of them alone has there.
    """
    prediction, ranks = joint.prediction, sorted(one.rank for one in late)
    is_replayed = isinstance(prediction, Counterfactual) and sorted(item.rank for item in prediction.equalised) == ranks
    if isinstance(prediction, Counterfactual) and is_replayed:
        won = prediction.most_gain_ns * joint.n_steps + _sent_more_ns(late, joint)
    else:
        won = max((_excess_of_ns(waits, ranks) for waits in joint.waits), default=0)
    return min(won, room_ns(joint.summaries, ranks)), is_replayed


def _waiting_for(late: Sequence[Late]) -> list[int]:
    """The ranks that wait for these: their peers in the groups where they are late, and who waits as long elsewhere.

    A late rank of a tensor-parallel pair holds up its peer there, and everybody in the groups of the two behind that.
    """
    mine = {one.rank for one in late}
    waited: dict[int, int] = {}
    for group in late[0].joint.waits:
        for rank, total in zip(group.ranks, group.wait_ns.sum(axis=0).tolist(), strict=True):
            waited[rank] = waited.get(rank, 0) + total
    least = _AS_LONG * max(one.straggler.excess_ns for one in late)
    peers = {rank for one in late for rank in one.waits.ranks}
    return sorted((peers | {rank for rank, total in waited.items() if total >= least}) - mine)


def waiting_words(ranks: Sequence[int]) -> str:
    """Who waits, as the subject of a sentence."""
    return f"{len(ranks)} ranks wait" if len(ranks) != 1 else f"rank {ranks[0]} waits"


def _for_all(first: Finding, late: Sequence[Late]) -> Finding:
    """The costliest rank's finding as that of all late ranks: where each is as late, none alone is worth much."""
    joint = late[0].joint
    named = format_numbers(sorted(one.rank for one in late))
    won, is_replayed = _together_ns(joint, [one.straggler for one in late])
    fraction = joint.fraction(won)
    phases = {one.phase for one in late}
    why = LATE_WORDS[phases.pop()].several if len(phases) == 1 else "which are late for different reasons"
    waiting = waiting_words(_waiting_for(late))
    said = Evidence.time(
        "straggler.recoverable_together_ns",
        won,
        f"if ranks {named} were as fast as their peers, this would save"
        f" {format_ns(joint.saved_ns(won))} {joint.per}{', by replay' if is_replayed else ''};"
        f" rank {first.rank} alone would save {format_ns(joint.saved_ns(first.recoverable_ns * joint.n_steps))}",
    )
    return replace(
        first,
        title=f"{waiting} for ranks {named}, {why}",
        severity=severity_of(fraction),
        recoverable_ns=joint.per_step(won),
        fraction=fraction,
        evidence=(said, *first.evidence),
    )
