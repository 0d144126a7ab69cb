"""`straggler.rank` and `rank0.work`: a rank that the others wait for, with what it does meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from msgspec.structs import replace

from profkit.analyzers.base import Scope
from profkit.analyzers.tools import py_spy_loader, recapture, system_timeline
from profkit.findings.ranks.stragglers import LATE_RANK, LATE_WORDS, MORE_FIX, MORE_SPENT, OWN_FIX, UNRECORDED
from profkit.model.finding import Evidence, Finding, NextTool
from profkit.ranks.findings.joint_lateness import for_all, recoverable_ns, waiting_for, waiting_words
from profkit.ranks.findings.late_cause import (
    cause_evidence,
    is_hostless,
    is_slower,
    is_unrecorded,
    models_apart,
    own_finding,
    part_of_delay,
)
from profkit.ranks.findings.late_places import is_one_line, late_places, places_of
from profkit.ranks.findings.rank0_finding import rank0_finding
from profkit.ranks.measure.fingerprints import only_work
from profkit.ranks.measure.fleet_measures import Joint
from profkit.ranks.measure.kernel_slowdown import Longer
from profkit.ranks.measure.permutation_test import FEW_STEPS, MIN_STEPS
from profkit.ranks.measure.stragglers import Straggler, Stragglers
from profkit.ranks.measure.waits import GroupWaits
from profkit.ranks.reduce.records import PHASES
from profkit.shell import line_of, path_word
from profkit.units import format_ns, format_speedup

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


Found = Mapping[int, tuple[Straggler, GroupWaits, Stragglers]]
"""Late ranks, each with its group and what was found in that."""


def stragglers_of(joint: Joint) -> Found:
    """Each late rank with the group in which that costs most, the costliest first."""
    found: dict[int, tuple[Straggler, GroupWaits, Stragglers]] = {}
    for answer, waits in zip(joint.stragglers, joint.waits, strict=True):
        for straggler in answer.named:
            known = found.get(straggler.rank)
            if known is None or straggler.excess_ns > known[0].excess_ns:
                found[straggler.rank] = (straggler, waits, answer)
    return dict(sorted(found.items(), key=lambda item: -item[1][0].excess_ns))


def findings(joint: Joint, scope: Scope) -> Iterable[Finding]:
    """A finding for each late rank, and one more for rank 0 where it does what no other rank does."""
    found = stragglers_of(joint)
    for straggler, waits, answer in found.values():
        confidence = _confidence(straggler, waits, answer, joint)
        alone = only_work(straggler, waits, joint.summaries)
        late = replace(_late(straggler, found, joint, scope), confidence=confidence)
        if alone is not None and straggler.rank == 0:
            first = rank0_finding(straggler, alone, joint, scope, confidence=confidence)
            yield replace(first, places=late.places)
        is_first = straggler.rank == next(iter(found))
        yield for_all(late, list(found.values()), joint) if is_first and len(found) > 1 else late


def _late(straggler: Straggler, found: Found, joint: Joint, scope: Scope) -> Finding:
    _, waits, answer = found[straggler.rank]
    recoverable = recoverable_ns(straggler, joint)
    fraction = joint.fraction(recoverable)
    late = {rank for rank, (one, _, _) in found.items() if 2 * one.lateness_ns >= straggler.lateness_ns}
    waiting = waiting_words([rank for rank in waiting_for(joint, [(straggler, waits)]) if rank not in late])
    places = late_places(straggler, waits, joint)
    is_unknown = is_unrecorded(straggler, waits, joint) and not is_one_line(places)
    why = UNRECORDED if is_unknown else LATE_WORDS[straggler.phase].one
    why = straggler.more.words if straggler.more is not None else why
    own = own_finding(straggler, waits, joint)
    kept = _kept(straggler, waits)
    finding = LATE_RANK.found(
        title=f"{waiting} for rank {straggler.rank}{_how(straggler, why, is_unknown=is_unknown)}",
        confidence=_SURE,
        recoverable_ns=joint.per_step(round(recoverable * kept)),
        most_recoverable_ns=joint.per_step(recoverable) if kept < 1 else None,
        fraction=fraction,
        evidence=tuple(_evidence(straggler, waits, answer, joint)),
        fix=_LINE_FIX if is_one_line(places) else _fix(straggler, waits, joint, is_cpu=scope.is_cpu),
        next_tools=(_next_tool(straggler, waits, joint, scope),),
        rank=straggler.rank,
    )
    places = places or places_of(own) or places_of(_its_alone(straggler, waits, joint))
    return replace(finding, places=places, proof=_AGAIN if straggler.event is not None else "")


def _its_alone(straggler: Straggler, waits: GroupWaits, joint: Joint) -> Finding | None:
    """Of a rank with work of its own, the largest finding with lines that no peer has."""
    if straggler.more is None or not straggler.more.is_own:
        return None
    others = {
        one.id for rank in waits.ranks if rank != straggler.rank for one in joint.outcome_of(rank).report.findings
    }
    mine = [one for one in joint.outcome_of(straggler.rank).report.findings if one.places and one.id not in others]
    return max(mine, key=lambda one: one.fraction, default=None)


def _kept(straggler: Straggler, waits: GroupWaits) -> float:
    """What of a late rank's delay its mending saves (0-1): work that is balanced goes to its peers, each has a part."""
    return 1 - 1 / len(waits.ranks) if straggler.more is not None and not straggler.more.is_own else 1.0


def _how(straggler: Straggler, why: str, *, is_unknown: bool) -> str:
    """How a rank is late, behind its number in a title."""
    if straggler.event is None:
        return f", {why}"
    meanwhile = "its host runs no operator" if is_unknown else "it is held up by its CPU"
    return f" once, for {format_ns(straggler.event.lateness_ns)}, while {meanwhile}"


def _other(waits: GroupWaits, rank: int) -> int:
    return next(other for other in waits.ranks if other != rank)


def _confidence(straggler: Straggler, waits: GroupWaits, answer: Stragglers, joint: Joint) -> float:
    """The ladder: less without a phase, with ranks missing, without clocks, with disputed ones, or of few steps.

    The captures' own faults are the most it may be.
    """
    sure = _SURE * (0.8 if straggler.phase is None else 1.0)
    sure *= 1.0 if waits.is_whole else 0.8
    sure *= 0.85 if (answer.limits or answer.barrier_note) and waits.is_whole else 1.0
    sure *= FEW_STEPS if waits.n_steps < MIN_STEPS else 1.0
    sure *= _GROSS if straggler.is_gross or straggler.is_once or straggler.event else 1.0
    return min(sure, *(joint.outcome_of(rank).confidence_cap for rank in waits.ranks))


def _evidence(straggler: Straggler, waits: GroupWaits, answer: Stragglers, joint: Joint) -> Iterable[Evidence]:
    rank, per = straggler.rank, joint.per
    yield Evidence(
        statement=(
            f"rank {rank} arrives {format_ns(joint.per_step(straggler.lateness_ns))} {per} later than the median rank;"
            f" by its own work, it is last in {straggler.n_last:,} of {straggler.n_instances:,} {straggler.instances}"
        ),
        metric="straggler.lateness_ns",
        value=float(straggler.lateness_ns),
        unit="ns",
    )
    if straggler.event is not None:
        yield _by_chance(straggler, waits, answer)
    main = _main_phase(straggler)
    longer = straggler.phase_excess_ns[PHASES.index(main)]
    yield Evidence(
        statement=(
            f"before the {straggler.instances} that it holds up, it spends {format_ns(joint.per_step(longer))} {per}"
            f" longer {LATE_WORDS[main].spent if straggler.more is None else MORE_SPENT} than the median rank: this"
            f" explains {part_of_delay(longer / max(straggler.lateness_ns, 1))} of the delay"
        ),
        metric=f"straggler.phase_excess_ns.{main}",
        value=float(longer),
        unit="ns",
    )
    yield from cause_evidence(straggler, waits, joint)
    yield Evidence(
        statement=(
            f"it arrives {format_ns(joint.per_step(straggler.excess_ns))} {per} after the next-slowest rank;"
            f" durations alone, which need no clocks, make it {format_ns(joint.per_step(straggler.free_lateness_ns))}"
            " late"
        ),
        metric="straggler.excess_ns",
        value=float(straggler.excess_ns),
        unit="ns",
    )
    if straggler.event is None:
        yield _by_chance(straggler, waits, answer)
    if straggler.compute_factor is not None and straggler.more is None:
        yield Evidence(
            statement=f"the same kernels take {format_speedup(straggler.compute_factor)} as long as on the median rank",
            metric="straggler.compute_factor",
            value=straggler.compute_factor,
            unit="",
            expected=f"< {LATE_RANK.limit('slow_kernels')}",
        )


def _by_chance(straggler: Straggler, waits: GroupWaits, answer: Stragglers) -> Evidence:
    """Why the delay is no chance; of one delay alone no test says that, but its size."""
    if straggler.event is not None:
        share = min(straggler.event.lateness_ns / max(straggler.lateness_ns, 1), 1.0)
        return Evidence(
            statement=f"one delay, in step {straggler.event.step}, holds {part_of_delay(share)} of that time, and no"
            " other is a third as long; a longer capture shows how often it comes back",
            metric="straggler.event_ns",
            value=float(straggler.event.lateness_ns),
            unit="ns",
        )
    others = "any rank that is not named" if len(answer.named) > 1 else "any other rank"
    short = f": too short for this test, but the delay is several times that of {others}"
    return Evidence(
        statement=f"such a delay by chance: p = {straggler.p_value:.2g} (permutation test, {straggler.n_blocks} blocks)"
        f"{short if straggler.is_gross else ''}{_ONCE if straggler.is_once else _few_steps(waits)}",
        metric="straggler.p_value",
        value=straggler.p_value,
        unit="",
        expected=f"< {LATE_RANK.limit('p')}",
    )


def _few_steps(waits: GroupWaits) -> str:
    """What blocks of few steps cannot show, "" from six steps on."""
    if waits.n_steps >= MIN_STEPS:
        return ""
    seen = {0: "no step is marked", 1: "all in one step"}.get(waits.n_steps, f"all in {waits.n_steps} steps")
    return f", {seen}: whether the rank is late in other steps is unknown"


def _main_phase(straggler: Straggler) -> str:
    return straggler.phase or PHASES[int(np.argmax(straggler.phase_excess_ns))]


def _fix(straggler: Straggler, waits: GroupWaits, joint: Joint, *, is_cpu: bool) -> str:
    """The way out, without the rank's number: of two late ranks it is said once."""
    if straggler.phase == "data":
        return "give the late rank what its peers have: the same number of loader workers, shard size and storage"
    if straggler.phase == "compute":
        return _compute_fix(straggler, waits, joint, is_cpu=is_cpu)
    if straggler.is_once:
        return "save less often, asynchronously (torch.distributed.checkpoint.async_save), or a part on each rank"
    if straggler.phase == "copy":
        return "give the late rank what its peers have: pinned memory, and a CPU core near its device"
    if straggler.phase == "device":
        return (
            "find out what holds launched work up on the late rank's idle device: another process on it (time slicing"
            " looks so), or an event of another device; give the rank a device of its own"
        )
    if straggler.phase == "host" and is_hostless(straggler, joint):
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


def _compute_fix(straggler: Straggler, waits: GroupWaits, joint: Joint, *, is_cpu: bool) -> str:
    slow, state = (
        ("cores are", "clocks and what else runs on them")
        if is_cpu
        else ("device is", "clocks, power cap and temperature")
    )
    slower, work = ("slower cores", "operators") if is_cpu else ("a slower device", "kernels")
    if models_apart(straggler, waits, joint) is not None:
        return "give all ranks of the group the same model of device, or the late rank a smaller share of the work"
    if straggler.more is not None:
        return OWN_FIX if straggler.more.is_own else MORE_FIX
    if straggler.longer is Longer.WORK:
        return f"the late rank has more work, not {slower}: balance its share (tokens, lengths, layers, experts)"
    if straggler.longer is Longer.DEVICE:
        its = "their" if is_cpu else "its"
        return f"the late rank's {slow} slow: check {its} {state}, or replace the node"
    if not is_slower(straggler):
        return (
            f"the same {work} take longer at times: compare the late rank's inputs (tokens, lengths) step by step, and"
            f" its {state}"
        )
    return (
        f"the same {work} take longer, for more work that the trace does not show, or on {slower}:"
        f" compare the late rank's inputs (tokens, lengths) with a peer's first, then {state}"
    )


def _next_tool(straggler: Straggler, waits: GroupWaits, joint: Joint, scope: Scope) -> NextTool:
    rank = straggler.rank
    if straggler.phase == "data":
        return py_spy_loader(scope.command)
    if straggler.phase == "host" and is_hostless(straggler, joint):
        return recapture(
            scope, f"what does the CPU of rank {rank} do?", "operators, ranges and calls before its delays"
        )
    if straggler.phase == "host":
        return system_timeline(
            scope,
            f"what delays the CPU of rank {rank}?",
            f"times when the thread of rank {rank} does not run, or calls that only this rank makes",
            ranks=(rank, _usual_peer(rank, waits)),
        )
    is_slow = straggler.phase == "compute" and straggler.longer is Longer.DEVICE
    if is_slow and models_apart(straggler, waits, joint) is None:
        return NextTool(
            name="nvidia-smi",
            line=line_of("nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE"),
            purpose=f"is the device of rank {rank} throttled? run it on that host while the job trains",
            look_for="active slowdown reasons, clocks below those of the peers' devices",
        )
    if straggler.phase == "device":
        return NextTool(
            name="nvidia-smi",
            line=line_of("nvidia-smi pmon -c 10"),
            purpose=f"who else uses the device of rank {rank}? run it on that host while the job trains",
            look_for="a second process on the same device; on AMD, amd-smi process shows the same",
        )
    pair = (joint.outcome_of(one).report.source for one in (_usual_peer(rank, waits), rank))
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
    return middle if middle != rank else _other(waits, rank)
