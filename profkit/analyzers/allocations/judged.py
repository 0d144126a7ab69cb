"""`memory.leak` and `memory.fragmented`, and what is shown of memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from profkit.analyzers.allocations.kinds import MemoryKind
from profkit.analyzers.allocations.measured import Allocations, Growth, Held, Holder
from profkit.analyzers.base import Scope
from profkit.analyzers.tools import operators
from profkit.findings.memory import FRAGMENTED, LEAK
from profkit.model.code import Phase
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Evidence, Finding, Severity
from profkit.units import format_bytes, format_count, format_fraction


def judge(result: Allocations) -> tuple[Finding, ...]:
    """`memory.leak` and `memory.fragmented`, each of the device where it is largest."""
    leaks = [(held, held.growth) for held in result.held if held.growth is not None and _is_leak(held.growth)]
    broken = [held for held in result.held if _is_fragmented(held)]
    found = []
    if leaks:
        found.append(_leak(result.scope, *max(leaks, key=lambda leak: leak[1].each_bytes)))
    if broken:
        found.append(_fragmented(result.scope, max(broken, key=lambda held: held.unused_bytes)))
    return tuple(found)


def _is_leak(growth: Growth) -> bool:
    steady = LEAK.limit("steady")
    return (
        growth.each_bytes >= LEAK.limit("bytes")
        and growth.least_bytes >= steady * growth.each_bytes
        and growth.most_bytes * steady <= growth.each_bytes
    )


def _leak(scope: Scope, held: Held, growth: Growth) -> Finding:
    evidence = [
        Evidence.size(
            "allocations.growth_bytes_per_step",
            growth.each_bytes,
            f"memory allocated on {held.name} rises in each step, by {format_bytes(growth.each_bytes)}: from"
            f" {format_bytes(growth.first_bytes)} at the end of step {growth.steps[0]} to {format_bytes(growth.last_bytes)}"
            f" at the end of step {growth.steps[1]}",
            expected="0 after warm-up",
        )
    ]
    if growth.holders:
        evidence.append(_kept(growth.holders))
    if held.capacity_bytes is not None and held.capacity_bytes > growth.last_bytes:
        n_left = (held.capacity_bytes - growth.last_bytes) // growth.each_bytes
        evidence.append(
            Evidence.count(
                "allocations.n_steps_left",
                n_left,
                f"at this rate the {format_bytes(held.capacity_bytes)} of the device are full after"
                f" {format_count(n_left)} more steps at the latest",
            )
        )
    return LEAK.found(
        title=f"memory on {held.name} grows by {format_bytes(growth.each_bytes)} in each step",
        severity=Severity.MEDIUM,
        confidence=0.8 if growth.holders else 0.6,
        recoverable_ns=0,
        fraction=0.0,
        evidence=tuple(evidence),
        fix=LEAK.fixes[0],
        next_tools=()
        if any(holder.is_line for holder in growth.holders)
        else (
            operators(
                scope,
                "record allocations with stacks: which line allocates what stays?",
                "memory.leak, which names the lines",
                flags="--memory --stacks",
            ),
        ),
    )


def _kept(holders: Sequence[Holder]) -> Evidence:
    share = holders[0].n_bytes / sum(holder.n_bytes for holder in holders)
    return Evidence.share(
        "allocations.first_kept_share", share, f"{format_fraction(share)} of what stays was allocated {_by(holders[0])}"
    )


def _by(holder: Holder) -> str:
    by = f"{'at' if holder.is_line else 'by'} {holder.where}" if holder.where else "outside operators"
    return by if holder.phase is Phase.OTHER else f"{by} ({holder.phase.word})"


def _is_fragmented(held: Held) -> bool:
    if held.reserved_bytes is None or held.capacity_bytes is None:
        return False
    return (
        held.reserved_bytes >= FRAGMENTED.limit("reserved") * held.capacity_bytes
        and held.unused_bytes >= FRAGMENTED.limit("unused") * held.reserved_bytes
    )


def _fragmented(scope: Scope, held: Held) -> Finding:
    reserved, capacity = held.reserved_bytes or 0, held.capacity_bytes or 0
    return FRAGMENTED.found(
        severity=Severity.LOW,
        confidence=0.6,
        recoverable_ns=0,
        fraction=0.0,
        evidence=(
            Evidence.size(
                "allocations.unused_bytes",
                held.unused_bytes,
                f"when most is allocated on {held.name}, {format_bytes(held.unused_bytes)} of the"
                f" {format_bytes(reserved)} that PyTorch has reserved are in no tensor ({format_fraction(held.unused_bytes / reserved)})",
                expected=f"< {format_fraction(FRAGMENTED.limit('unused'))} of what is reserved",
            ),
            Evidence.share(
                "allocations.reserved_share",
                min(reserved / capacity, 1.0),
                f"{format_fraction(reserved / capacity)} of the device's {format_bytes(capacity)} is reserved",
            ),
        ),
        fix=FRAGMENTED.fixes[0],
        next_tools=(),
    )


def present(result: Allocations) -> Section:
    """Show the peak of each device, and what holds the first one's."""
    first = result.held[0]
    return Section(
        title="memory held",
        values={
            "peak_bytes": first.peak_bytes,
            "reserved_bytes": first.reserved_bytes,
            "unused_bytes": None if first.reserved_bytes is None else first.unused_bytes,
            "peak_step": first.step,
            "peak_phase": first.phase.word,
            "peak_where": first.where,
            "earlier_bytes": first.earlier_bytes,
            "peak_parts": {part.kind.value: part.n_bytes for part in first.parts} or None,
            "growth_bytes_per_step": None if first.growth is None else first.growth.each_bytes,
        },
        tables=(_peaks(result), *_parts(first), *_holders(first)),
    )


def _peaks(result: Allocations) -> TableView:
    rows = tuple(
        (
            held.name,
            held.peak_bytes,
            held.reserved_bytes,
            f"step {held.step}" if held.step is not None else "outside steps" if result.scope.has_steps else "",
            "" if held.phase is Phase.OTHER else held.phase.word,
            held.where,
        )
        for held in result.held
    )
    since = any(held.is_host for held in result.held)
    return TableView.of(
        "peak of allocated memory",
        {
            "memory of": "text",
            "allocated": "bytes",
            "reserved then": "bytes",
            "in": "text",
            "phase": "text",
            "allocating": "text",
        },
        rows,
        note="Of the host: what was allocated since the recording began." if since else "",
    )


_TOLD: Final = {
    MemoryKind.PARAMETERS: "as large as their gradients",
    MemoryKind.GRADIENTS: "from backward to the optimizer",
    MemoryKind.OPTIMIZER: "allocated and kept by the optimizer",
    MemoryKind.ACTIVATIONS: "freed by the backward pass",
    MemoryKind.TEMPORARY: "freed in the pass that allocated it",
    MemoryKind.OTHER: "batches, outputs: kept longer",
}
"""How the kind of memory is told, for the table."""


def _parts(held: Held) -> Iterator[TableView]:
    if not held.parts:
        return
    unknown = "before the recording, or freed after it" if held.earlier_bytes else "freed after the recording"
    yield TableView.of(
        f"what the memory of {held.name} is for, at its peak",
        {"held for": "text", "told by": "text", "count": "count", "holds": "bytes", "share": "fraction"},
        tuple(
            (part.kind.value, _TOLD.get(part.kind, unknown), part.n, part.n_bytes, part.n_bytes / held.peak_bytes)
            for part in held.parts
        ),
    )


def _holders(held: Held) -> Iterator[TableView]:
    if held.earlier_bytes is None:
        return
    earlier = ("", "before the recording began", None, held.earlier_bytes) if held.earlier_bytes else None
    rows = [(holder.phase.word, holder.where, holder.n, holder.n_bytes) for holder in held.holders]
    more = held.n_holders - len(held.holders)
    yield TableView.of(
        f"what {held.name} holds at its peak",
        {"phase": "text", "allocated in": "text", "count": "count", "holds": "bytes"},
        tuple(row for row in (earlier, *rows) if row is not None),
        note=f"{more:,} more places hold less each." if more else "",
    )
