"""What the numbers of both sides say of the change: readings, each a finding with its evidence, or nothing at all.

A reading needs a cause that can be seen (a loader of another kind, kernels of another format, recomputed operators),
or an effect of at least 2 % of the step; it names no intention. Each claims what it stands for: parts of the budget,
groups of compute. What one reading explains no other does, so that the step's change is divided and not counted twice.
What is left of a part is said by itself, with the rows that moved. Where the amount of work per step differs, every
time would be of two different things: then that is the reading. Where records are lost, nothing is said of work.

Steps that are slow among others: one of many is no cause, and medians stand beside means where a few make them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec.structs import replace

from profkit.compare.captures import waits
from profkit.compare.captures.exchange import broadcasts, bucket_copies, buckets, collectives, overlap
from profkit.compare.captures.measured import SLOW
from profkit.compare.captures.pair import COMPUTE, Pair, Reading, change, counts_moved, measure, moved, reading
from profkit.compare.captures.program import (
    attention,
    casts,
    compiled,
    layout,
    optimizer,
    precision,
    products,
    recomputed,
)
from profkit.compare.captures.sides import Run, Side
from profkit.compare.captures.waterfall import PREFIX, group_of
from profkit.compare.captures.work import accumulated, work_changed
from profkit.findings import comparison
from profkit.findings.changes import DEVICE, SLOW_STEP
from profkit.findings.comparison import EXPLAINED, LAUNCHES
from profkit.model.budget import HOST_PARTS, words
from profkit.model.documents.comparison import Account, Presence, WorkChange
from profkit.model.finding import Evidence, Finding, severity_of
from profkit.model.names import short_name
from profkit.units import (
    format_bytes,
    format_change,
    format_fraction,
    format_ns,
    format_numbers,
    format_signed_ns,
    format_time_change,
)

_EFFECT: Final = LAUNCHES.limit("effect")
_FEW: Final = 0.2
"""Of the steps: where more are slow, they are what the job does. Chosen."""
_APART: Final = 0.02
"""By which the changes of means and of medians differ. Chosen, the margin of a comparison."""
_MOST_NAMED: Final = 5
"""Chosen: more numbers do not fit in a sentence."""
IDLE_REST = ("idle_dependency", "idle_unknown")


def readings(pair: Pair) -> tuple[Finding, ...]:
    """What can be read from both sides, that which explains most of the change first."""
    if pair.lost:
        return ()
    if moved_device := device(pair):
        return (moved_device.finding,)
    found = [item for read in _PROGRAM if (item := read(pair)) is not None]
    if (changed := work_changed(pair)) is not None:
        return (changed.finding, *(item.finding for item in found))
    others = (accumulated, *(() if pair.hidden else _EXCHANGE), *_STEP)
    found += [item for read in others if (item := read(pair)) is not None]
    found += waits.rest(pair, _claimed(found))
    for rest in _REST:
        if (item := rest(pair, _claimed(found))) is not None:
            found.append(item)
    return _weighed(pair, found)


def _claimed(found: list[Reading]) -> frozenset[str]:
    return frozenset(claim for item in found for claim in item.claims)


def device(pair: Pair) -> Reading | None:
    """The work runs on a GPU on one side, and on the CPU on the other: then no row is set against another."""
    if len({trace.is_cpu for trace in pair.traces}) < DEVICE.limit("kinds"):
        return None
    before, after = (side.traces[0].device.name or side.traces[0].device.kind for side in pair.sides)
    first, second = map(format_ns, pair.steps_ns)
    return reading(
        DEVICE,
        f"the work runs on {after}, before on {before}",
        change(f"{pair.each}: {first} on {before}, {second} on {after}", "step", pair.steps_ns),
        fix="profkit triage on each side says what limits it there",
        confidence=0.9,
    )


def _weighed(pair: Pair, found: list[Reading]) -> tuple[Finding, ...]:
    """The findings with what each explains of the step's change; first those that go its way."""
    taken: set[str] = set()
    weighed: list[tuple[int, Finding]] = []
    total = pair.waterfall.delta_ns
    is_change = abs(pair.fraction(total)) >= _EFFECT
    for item in found:
        own = item.explained_ns
        if own is None:
            own = sum(pair.change(claim) for claim in dict.fromkeys(item.claims) if claim not in taken)
        taken.update(item.claims)
        weight = min(abs(pair.fraction(own)), 1.0)
        explains = Evidence(statement=f"explains {_of_whole(pair, own)}", metric=EXPLAINED, value=float(own), unit="ns")
        evidence = (*item.finding.evidence, explains)
        one = replace(item.finding, fraction=weight, severity=severity_of(weight), evidence=evidence)
        weighed.append((own, one))
    weighed.sort(key=lambda item: (is_change and item[0] * total < 0, -abs(item[0])))
    return tuple(finding for _, finding in weighed)


def _of_whole(pair: Pair, own_ns: int) -> str:
    """A part of the step's change beside the whole; with the rest, where the part is more or has the other sign."""
    part, whole = format_signed_ns(own_ns), format_signed_ns(pair.waterfall.delta_ns)
    rest = pair.waterfall.delta_ns - own_ns
    if part == whole or own_ns * rest >= 0:
        return f"{part} of {whole} {pair.per}"
    return f"{part}; others {format_signed_ns(rest)}; {pair.each.removeprefix('a ')} {whole}"


def slow_step(pair: Pair) -> Reading | None:
    """The reading that one step of many makes a part of the change."""
    cost = pair.waterfall.delta_ns - pair.steady.delta_ns
    if abs(pair.fraction(cost)) < SLOW_STEP.limit("effect"):
        return None
    found = [(side, slow, trace.n_steps) for side in pair.sides for trace in side.traces if (slow := trace.slow)]
    side, slow, n_steps = max(found, key=lambda item: item[1].duration_ns - item[1].median_ns)
    longest = max(slow.parts, key=lambda name: slow.parts[name])
    said = f"of the slow one {format_ns(slow.parts[longest])} are {words(longest, is_cpu=pair.is_cpu)}"
    steady = f"without it the step changes by {format_change(pair.steady.delta_ns / pair.steady.baseline_ns)}"
    return reading(
        SLOW_STEP,
        f"one step of {n_steps} is slow: step {slow.number} of the {side.name} takes {format_ns(slow.duration_ns)}",
        measure(f"the median step takes {format_ns(slow.median_ns)}; {said}", "slow_step_ns", slow.duration_ns),
        measure(steady, "steady_change_ns", pair.steady.delta_ns),
        fix="record more steps: one slow step says nothing of the change",
        confidence=0.7,
        explained_ns=cost,
    )


def without_slow_step(pair: Pair) -> str:
    """What the step does without the one that is slow, "" where none is, or it changes little."""
    if slow_step(pair) is None:
        return ""
    steady = pair.steady
    return f"without its slow step {format_time_change(steady.candidate_ns / steady.baseline_ns)}"


def medians(sides: tuple[Side, Side]) -> str:
    """What medians say where a few slow steps make the means, "" where both change alike or steps are not known."""
    steps = [side.runs[0].steps_ns(is_unprofiled=False) if len(side.runs) == 1 else () for side in sides]
    if not all(steps):
        return ""
    slow = [np.flatnonzero(np.array(times) > SLOW * np.median(times)) for times in steps]
    if not any(places.size for places in slow) or any(
        places.size > _FEW * len(times) for places, times in zip(slow, steps, strict=True)
    ):
        return ""
    means, middles = ([float(of(times)) for times in steps] for of in (np.mean, np.median))
    changed = [after / before - 1 for before, after in (means, middles)]
    if abs(changed[1] - changed[0]) < _APART:
        return ""
    named = [
        f"{format_numbers(_numbers(side.runs[0], places.tolist()))} of the {side.name} take"
        f"{'s' * (places.size == 1)} over twice its median"
        for side, places in zip(sides, slow, strict=True)
        if 0 < places.size <= _MOST_NAMED
    ]
    told = f"step{'s' * (sum(places.size for places in slow) > 1)} {' and '.join(named)}; " if named else ""
    times = " -> ".join(map(format_ns, middles))
    return f"{told}the median step changes by {format_change(changed[1])} ({times})"


def _numbers(run: Run, places: list[int]) -> list[int]:
    """The job's own numbers of these steps of a run with one trace, else their places."""
    if len(run.traces) > 1:
        return places
    numbers = sorted(run.traces[0].step_numbers)
    return [numbers[place] if place < len(numbers) else place for place in places]


def copies(pair: Pair, taken: frozenset[str]) -> Reading | None:
    """Copies that nothing hides hold the device longer, or less long."""
    bar = pair.waterfall.bar("copy_exposed")
    if "copy_exposed" in taken or abs(pair.fraction(bar.delta_ns)) < comparison.COPIES.limit("effect"):
        return None
    return reading(
        comparison.COPIES,
        f"copies hold the device {'longer' if bar.delta_ns > 0 else 'less long'}",
        pair.part_shown("copy_exposed"),
        *_copy_that_moved(pair),
        fix="copy less often, from pinned memory with non_blocking=True, so that copies run under compute",
        confidence=0.7,
        claims=("copy_exposed",),
    )


def _copy_that_moved(pair: Pair) -> list[Evidence]:
    """The kind of copy whose time changed most."""
    calls, times, sizes = (
        pair.rates_by_name(lambda trace: {name: counts[place] for name, counts in trace.counts.copies.items()})  # noqa: B023
        for place in range(3)
    )
    if not times:
        return []
    name = max(times, key=lambda name: abs(times[name][1] - times[name][0]))
    told = f", {moved(sizes[name], format_bytes)}" if any(sizes[name]) else ""
    said = f"{name}: copies {counts_moved(calls[name])}{told}, {moved(times[name], format_ns, pair.per)}"
    return [change(said, "copies", times[name])]


def communication(pair: Pair, taken: frozenset[str]) -> Reading | None:
    """Ranks wait more or less for each other, communication takes more or less time, or more of it runs alone."""
    exposed = pair.waterfall.bar("comm_exposed").delta_ns
    if "comm_exposed" in taken or abs(pair.fraction(exposed)) < comparison.COMM.limit("effect"):
        return None
    waiting = _waiting(pair, exposed)
    if waiting is not None:
        return waiting
    busy = pair.comm_busy_ns
    is_itself = _is_most(busy[1] - busy[0], exposed)
    title = (
        f"communication takes {'longer' if exposed > 0 else 'less time'}"
        if is_itself
        else f"{'more' if exposed > 0 else 'less'} communication runs alone"
    )
    split = _split(pair)
    return reading(
        comparison.COMM,
        title,
        *(pair.part_shown("comm_exposed"), *split, pair.comm_shown()),
        *_rows(pair, pair.comm, "collectives", 1),
        fix="compare bytes, bucket sizes and links: profkit triage -v shows them for each group of ranks"
        if split
        else "waiting for a late rank counts as well: profkit triage on all ranks of each side tells it from transfer",
        confidence=0.7 if split else 0.6,
        claims=("comm_exposed",),
    )


def _is_most(change_ns: float, whole_ns: float) -> bool:
    """Whether one change is the larger part of another, of the same sign."""
    return (change_ns > 0) == (whole_ns > 0) and abs(change_ns) >= comparison.COMM.limit("itself") * abs(whole_ns)


def _split(pair: Pair) -> list[Evidence]:
    """Waiting and transfer inside communication on both sides, where all ranks tell them apart."""
    before, after = pair.baseline.waits_ns, pair.candidate.waits_ns
    if before is None or after is None:
        return []
    waits, transfers = zip(before, after, strict=True)
    said = f"waiting for other ranks {moved(waits, format_ns)}, transfer {moved(transfers, format_ns)} {pair.per}"
    return [change(f"of it {said} (mean of ranks)", "comm_wait", waits)]


def _waiting(pair: Pair, exposed_ns: float) -> Reading | None:
    """The reading that ranks wait more or less for each other, where that is most of the change."""
    split = _split(pair)
    if not split or not _is_most(split[0].value, exposed_ns):
        return None
    late = [
        measure(f"{side.name}: rank {rank} is late ({side.runs[0].bottleneck})", f"{side.name}_late_rank", rank, "rank")
        for side in pair.sides
        if (rank := side.late_rank) is not None
    ]
    return reading(
        comparison.COMM,
        f"ranks wait {'longer' if exposed_ns > 0 else 'less'} for each other",
        *(pair.part_shown("comm_exposed"), *split, *late),
        fix="profkit triage on each side says which rank is late, and what holds it up",
        confidence=0.7,
        claims=("comm_exposed",),
    )


def compute(pair: Pair, taken: frozenset[str]) -> Reading | None:
    """Compute takes more or less time, as far as no other reading says why."""
    kind, bar = comparison.COMPUTE, pair.waterfall.bar("compute")
    free = tuple(name for name in COMPUTE if name not in taken)
    rise = sum(pair.change(name) for name in free)
    least = kind.limit("compute_cpu" if pair.is_cpu else "compute") * bar.baseline_ns
    if abs(pair.fraction(rise)) < kind.limit("effect") or abs(rise) < least:
        return None
    what = "compute" if len(free) == len(COMPUTE) else "the rest of compute"
    return reading(
        kind,
        f"{what} takes {'longer' if rise > 0 else 'less time'}"
        f"{'' if pair.hidden else _other_kernels(pair, free, rise)}",
        *(pair.part_shown("compute"), pair.operations_shown()),
        *([] if pair.hidden else _rows(pair, pair.compute, "compute", 2, free)),
        fix="see which of them should have changed: -v lists them with calls and durations",
        confidence=0.5,
        claims=free,
    )


def _other_kernels(pair: Pair, free: tuple[str, ...], change_ns: int) -> str:
    """That other kernels took the place of these, where that is most of the change: another library, another choice."""
    rows = [row for row in pair.compute.rows if PREFIX + group_of(row) in free and row.presence is Presence.REPLACED]
    return ": other kernels do the same work" if _is_most(sum(row.delta_ns for row in rows), change_ns) else ""


def idle(pair: Pair, taken: frozenset[str]) -> Reading | None:
    """The device idles longer, or less long, for what is neither data, nor a call that waits, nor a launch."""
    names = tuple(name for name in (*IDLE_REST, *(HOST_PARTS if pair.is_cpu else ())) if name not in taken)
    rise = sum(pair.change(name) for name in names)
    if abs(pair.fraction(rise)) < comparison.IDLE.limit("effect"):
        return None
    what = "more time passes outside operators" if rise > 0 else "less time passes outside operators"
    if not pair.is_cpu:
        what = f"the device idles {'longer' if rise > 0 else 'less long'} for dependencies or unknown causes"
    return reading(
        comparison.IDLE,
        what,
        *(pair.part_shown(name) for name in names if pair.change(name)),
        fix="profkit triage on each side says what the host does meanwhile",
        confidence=0.5,
        claims=names,
    )


def slower(pair: Pair, taken: frozenset[str]) -> Reading | None:
    """The reading that the same rows take longer, or less long, across the board."""
    drift = pair.drift
    if drift is None or pair.hidden or set(COMPUTE) <= taken:
        return None
    kind = comparison.SLOWER if drift.factor > 1 else comparison.FASTER
    if drift.covered_ns < kind.limit("matched") * pair.compute.candidate_ns:
        return None
    least = kind.limit("slower_cpu" if pair.is_cpu else "slower")
    is_small = abs(drift.factor - 1) < least or abs(pair.fraction(drift.cost_ns)) < kind.limit("effect")
    if is_small or drift.shared_direction < kind.limit("one_way"):
        return None
    what = "operators" if pair.is_cpu else "kernels"
    said = (
        f"take {drift.factor:.2f}x as long ({drift.n_rows:,} rows of {drift.n_twins:,} kinds, by their medians);"
        f" {format_fraction(drift.shared_direction)} of their time changed in the same direction"
    )
    return reading(
        kind,
        f"the same {what} take {'longer' if drift.factor > 1 else 'less time'}, across the board",
        measure(f"the same {what} {said}", "same_work_factor", drift.factor, "ratio"),
        measure(
            f"these rows changed by {format_signed_ns(drift.cost_ns)} {pair.per}",
            "same_work_change_ns",
            drift.cost_ns,
        ),
        fix="check clocks, power limits, the device and other processes on the cores; run both sides in turns on"
        " one machine",
        confidence=0.7,
        claims=COMPUTE,
    )


def _rows(
    pair: Pair, account: Account, metric: str, most: int, groups: tuple[str, ...] | None = None
) -> list[Evidence]:
    """The rows that moved most, the way the whole moved; of these groups of compute alone, where they are given."""
    rows = [row for row in account.rows if groups is None or PREFIX + group_of(row) in groups]
    whole = account.delta_ns if groups is None else sum(pair.change(name) for name in groups)
    rows = [row for row in rows if row.delta_ns and (row.delta_ns > 0) == (whole > 0)]
    return [_row(pair, row, f"{metric}_row_{number}") for number, row in enumerate(rows[:most], 1)]


def _row(pair: Pair, row: WorkChange, metric: str) -> Evidence:
    calls = counts_moved((row.baseline_count, row.candidate_count))
    name = short_name(row.name) + (f" -> {short_name(row.replaced_by)}" if row.replaced_by else "")
    said = f"{name}: {format_signed_ns(row.delta_ns)} {pair.per} (calls {calls})"
    return change(said, metric, (row.baseline_ns, row.candidate_ns))


_PROGRAM: Final = (attention, layout, optimizer, precision, compiled, recomputed, casts, products)
"""What stands also where the amount of work per step differs."""
_EXCHANGE: Final = (buckets, broadcasts, bucket_copies, collectives)
_STEP: Final = (waits.loader, waits.pinned, waits.streams, overlap, slow_step)
_REST: Final = (slower, copies, communication, compute, idle)
"""What is read of that which no other reading stands for."""
