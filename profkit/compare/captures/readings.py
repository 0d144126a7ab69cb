"""What the numbers of both sides say of the change: readings, each a finding with its evidence, or nothing at all.

A reading needs a cause that can be seen (a loader of another kind, kernels of another format, recomputed operators),
or an effect of at least 2 % of the step; it names no intention. Each claims what it stands for: parts of the budget,
groups of compute. What one reading explains no other does, so that the step's change is divided and not counted twice.
What is left of a part is said by itself, with the rows that moved. Where the amount of work per step differs, every
time would be of two different things: then that is the reading. Where records are lost, nothing is said of work.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from profkit.compare.captures import parts, waits
from profkit.compare.captures.exchange import broadcasts, bucket_copies, buckets, collectives
from profkit.compare.captures.kinds import attention, layout, optimizer
from profkit.compare.captures.overlap import overlap
from profkit.compare.captures.pair import Pair, Reading, change, reading
from profkit.compare.captures.program import casts, compiled, precision, products, recomputed
from profkit.compare.captures.uneven import slow_step
from profkit.compare.captures.work import accumulated, work_changed
from profkit.findings.changes import DEVICE
from profkit.findings.comparison import EXPLAINED, LAUNCHES
from profkit.model.finding import Evidence, Finding, severity_of
from profkit.units import format_ns, format_signed_ns

_EFFECT: Final = LAUNCHES.limit("effect")
_PROGRAM: Final = (attention, layout, optimizer, precision, compiled, recomputed, casts, products)
"""What stands also where the amount of work per step differs."""
_EXCHANGE: Final = (buckets, broadcasts, bucket_copies, collectives)
_STEP: Final = (waits.loader, waits.pinned, waits.streams, overlap, slow_step)
_REST: Final = (parts.slower, parts.copies, parts.communication, parts.compute, parts.idle)
"""What is read of that which no other reading stands for."""


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
