"""The blocks and events of one device summed: what is held, by which place, at the end and at the peak."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from profkit.model.snapshot import Holding, MemoryPhase, MemoryShare, SnapshotDevice, SnapshotPeak

_ALLOCATED: Final = "active_allocated"
_IN_USE: Final = "active"
"""How the states of blocks begin that are not free."""
_MOST: Final = 1000
"""Places that are kept, the largest. Chosen: what comes after is nothing."""
_MOST_BLOCKS: Final = 10


class Place(msgspec.Struct, frozen=True):
    """Where a block was allocated, as `Holding` has it."""

    where: str
    is_own: bool
    phase: MemoryPhase = MemoryPhase.UNKNOWN


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a segment, bytes."""

    size: int
    requested: int | None
    state: str
    place: Place


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the history, bytes."""

    action: str
    address: int
    size: int
    free: int | None
    """What the device had left, where an allocation failed."""
    place: Place


def device_of(device: int, segments: list[list[Block]], events: list[Event]) -> SnapshotDevice:
    """One device: its segments' blocks, and its history in order of time."""
    blocks = [block for segment in segments for block in segment]
    held = [block for block in blocks if block.state == _ALLOCATED]
    in_use = [any(block.state.startswith(_IN_USE) for block in segment) for segment in segments]
    free = [[block.size for block in segment if not block.state.startswith(_IN_USE)] for segment in segments]
    allocated = sum(block.size for block in held)
    failed = [event for event in events if event.action == "oom"]
    asked = [block.requested for block in held if block.requested is not None]
    requested = sum(asked) if len(asked) == len(held) else None
    return SnapshotDevice(
        device=device,
        n_segments=len(segments),
        n_blocks=len(blocks),
        reserved_bytes=sum(block.size for block in blocks),
        allocated_bytes=allocated,
        requested_bytes=requested,
        pending_bytes=sum(block.size for block in blocks if block.state.startswith(_IN_USE)) - allocated,
        split_bytes=sum(sum(sizes) for sizes, is_used in zip(free, in_use, strict=True) if is_used),
        cached_bytes=sum(sum(sizes) for sizes, is_used in zip(free, in_use, strict=True) if not is_used),
        largest_free_bytes=max((size for sizes in free for size in sizes), default=0),
        holdings=_holdings((block.place, block.size) for block in held),
        phases=_phases((block.place, block.size) for block in held),
        largest=tuple(
            Holding(
                where=block.place.where, is_own=block.place.is_own, n=1, n_bytes=block.size, largest_bytes=block.size
            )
            for block in sorted(held, key=lambda block: -block.size)[:_MOST_BLOCKS]
        ),
        peak=_peak(allocated if requested is None else requested, events),
        n_events=len(events),
        n_failed=len(failed),
        failed_bytes=failed[-1].size if failed else 0,
        failed_free_bytes=failed[-1].free if failed else None,
    )


def _holdings(sizes: Iterable[tuple[Place, int]]) -> tuple[Holding, ...]:
    found: dict[tuple[str, bool], list[int]] = {}
    for place, size in sizes:
        one = found.setdefault((place.where, place.is_own), [0, 0, 0])
        one[0] += 1
        one[1] += size
        one[2] = max(one[2], size)
    ranked = sorted(found.items(), key=lambda item: -item[1][1])[:_MOST]
    return tuple(
        Holding(where=where, is_own=is_own, n=n, n_bytes=n_bytes, largest_bytes=largest)
        for (where, is_own), (n, n_bytes, largest) in ranked
    )


def _phases(sizes: Iterable[tuple[Place, int]], earlier: int = 0) -> tuple[MemoryShare, ...]:
    found = {phase: [0, 0] for phase in MemoryPhase}
    for place, size in sizes:
        found[place.phase][0] += 1
        found[place.phase][1] += size
    found[MemoryPhase.UNKNOWN][1] += earlier
    return tuple(
        MemoryShare(phase=phase, n=None if earlier and phase is MemoryPhase.UNKNOWN else n, n_bytes=n_bytes)
        for phase, (n, n_bytes) in found.items()
        if n_bytes
    )


def _peak(at_end: int, events: list[Event]) -> SnapshotPeak | None:
    """The peak, counted back from what is allocated at the end: the history may have lost its beginning."""
    freed = "free_requested" if any(event.action == "free_requested" for event in events) else "free_completed"
    signs = {"alloc": 1, freed: -1}
    total = best = at_end
    place = len(events)
    for index in range(len(events) - 1, -1, -1):
        total -= signs.get(events[index].action, 0) * events[index].size
        if total > best:
            best, place = total, index
    if not any(event.action == "alloc" for event in events):
        return None
    live: dict[int, Event] = {}
    for event in events[:place]:
        if event.action == "alloc":
            live[event.address] = event
        elif event.action == freed:
            live.pop(event.address, None)
    earlier = best - sum(event.size for event in live.values())
    if earlier < 0:
        return None  # events were lost in between
    return SnapshotPeak(
        n_bytes=best,
        n_events_before_end=len(events) - place,
        earlier_bytes=earlier,
        holdings=_holdings((event.place, event.size) for event in live.values()),
        phases=_phases(((event.place, event.size) for event in live.values()), earlier),
    )
