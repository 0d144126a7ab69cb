"""A snapshot's file to a `Snapshot`: every value is checked where it is taken out.

The blocks and events of each device are summed: what is held, by which place, in which phase, at the end and the peak.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from profkit import files
from profkit.allocator import collector_paused
from profkit.errors import TraceFormatError, TraceNotFoundError
from profkit.ingest.numbers import MOST_BYTES, whole
from profkit.ingest.snapshot.plain_pickle import MAGIC, NotPlainError, loads
from profkit.ingest.texts import LONGEST_LABEL, trimmed
from profkit.model.code import CodePlace
from profkit.model.snapshot import Holding, MemoryPhase, MemoryShare, Snapshot, SnapshotDevice, SnapshotPeak
from profkit.redact import redacted_text
from profkit.timeline.code.frames import read_frame

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


MOST_FRAMES: Final = 512
"""Frames of a stack that are looked at, from the innermost. Chosen: torch records 64 or so."""
_MODULES: Final = "/torch/nn/modules/"
_MODULE: Final = "/torch/nn/modules/module.py"
_CALLS: Final = frozenset({"_call_impl", "_wrapped_call_impl", "_slow_forward"})
_MOVES: Final = frozenset({"_apply", "convert", "to", "cuda", "to_empty"})
_BACKWARD: Final = frozenset({"_engine_run_backward", "backward"})
_ENGINE: Final = ("torch::autograd::Engine::", "torch::autograd::python::PythonEngine::")
"""Of C++ frames: the threads that run the backward pass have no Python frames."""


def phase_in(frame: Any) -> MemoryPhase | None:
    """The phase that a frame tells; None where it tells none."""
    if not isinstance(frame, dict):
        return None
    file, function = frame.get("filename"), frame.get("name")
    if not isinstance(file, str) or not isinstance(function, str):
        return None
    file = file.replace("\\", "/")
    if "/torch/optim/" in file:
        return MemoryPhase.OPTIMIZER
    if function.startswith(_ENGINE) or ("/torch/autograd/" in file and function in _BACKWARD):
        return MemoryPhase.BACKWARD
    if file.endswith(_MODULE) and function in _CALLS:
        return MemoryPhase.FORWARD
    if file.endswith(_MODULE) and function in _MOVES:
        return MemoryPhase.MODEL
    return MemoryPhase.MODEL if _MODULES in file and function == "__init__" else None


MOST_SNAPSHOT_BYTES: Final = 512 * 2**20
"""Chosen: 100,000 events with their stacks take 20 MB; the viewer of PyTorch has trouble from some 100 MB on."""
MOST_ROWS: Final = 3_000_000
"""Blocks and events that are looked at. Chosen: parts of a pickle may be shared, so that a small one has any number."""
_MOST_DEVICES: Final = 256
_HINT: Final = "torch.cuda.memory._dump_snapshot('snapshot.pickle') writes the snapshots that profkit reads"
_NO_PLACE: Final = Place("", is_own=False)


def is_pickle(path: Path) -> bool:
    """Whether a regular file begins as a pickle of today's protocols; raises nothing."""
    try:
        return files.read_head(path, 2) in MAGIC
    except (OSError, ValueError):
        return False


def read_snapshot(path: Path, *, source: str = "") -> Snapshot:
    """The snapshot in a file; raises TraceFormatError for what is none, TraceNotFoundError for what cannot be read."""
    shown = source or str(path)
    try:
        data = files.read_small(path, MOST_SNAPSHOT_BYTES)
    except OSError as error:
        raise TraceNotFoundError(f"{shown}: {error.strerror or error}") from error
    with collector_paused():
        try:
            value = loads(data)
        except NotPlainError as error:
            hint = f"profkit runs nothing of a pickle, and reads no checkpoints; {_HINT}"
            raise TraceFormatError(f"{shown} is a Python pickle, but no memory snapshot: {error}", hint=hint) from error
        return _Reader(shown).snapshot(value, len(data))


class _Reader:
    """What is shared by the rows of one file: the places of its stacks."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.n_left = MOST_ROWS
        self.places: dict[int, Place] = {}
        self.frames: dict[int, Place | None] = {}
        self.phases: dict[int, MemoryPhase | None] = {}

    def snapshot(self, value: Any, n_bytes: int) -> Snapshot:
        """The snapshot that a file's value is."""
        given = value if isinstance(value, dict) else {"segments": value}
        segments = given.get("segments")
        if not isinstance(segments, list) or not all(isinstance(one, dict) and "blocks" in one for one in segments):
            raise TraceFormatError(
                f"{self.source} is a Python pickle, but no memory snapshot: it has no segments", hint=_HINT
            )
        blocks: dict[int, list[list[Block]]] = {}
        for segment in self._rows(segments):
            device = whole(segment.get("device"), 0, _MOST_DEVICES - 1)
            if device is not None:
                blocks.setdefault(device, []).append(self._blocks(segment))
        traces = given.get("device_traces")
        events = {
            device: list(self._events(trace))
            for device, trace in enumerate(traces[:_MOST_DEVICES] if isinstance(traces, list) else ())
        }
        found = [
            device_of(device, blocks.get(device, []), events.get(device, []))
            for device in sorted({*blocks, *(device for device, mine in events.items() if mine)})
        ]
        return Snapshot(
            source=self.source,
            n_bytes=n_bytes,
            has_stacks=any(place.where for place in self.places.values()),
            devices=tuple(found),
        )

    def _rows(self, rows: Any) -> Iterator[dict[str, Any]]:
        if not isinstance(rows, list | tuple):
            return
        self.n_left -= len(rows)
        if self.n_left < 0:
            raise TraceFormatError(f"{self.source} has more than {MOST_ROWS:,} blocks and events", hint=_HINT)
        yield from (row for row in rows if isinstance(row, dict))

    def _blocks(self, segment: dict[str, Any]) -> list[Block]:
        return [
            Block(
                size=_size(block.get("size")),
                requested=whole(block.get("requested_size"), 0, MOST_BYTES),
                state=_text(block.get("state")),
                place=self._place(_stack(block)),
            )
            for block in self._rows(segment.get("blocks"))
        ]

    def _events(self, trace: Any) -> Iterator[Event]:
        for event in self._rows(trace):
            action = event.get("action")
            if isinstance(action, str):
                yield Event(
                    action=action,
                    address=whole(event.get("addr"), 0, 2**64 - 1) or 0,
                    size=_size(event.get("size")),
                    free=whole(event.get("device_free"), 0, MOST_BYTES),
                    place=self._place(event.get("frames")) if action == "alloc" else _NO_PLACE,
                )

    def _place(self, frames: Any) -> Place:
        """The innermost frame of the user's own code in a stack, else its innermost of Python at all."""
        if not isinstance(frames, list) or not frames:
            return _NO_PLACE
        if id(frames) in self.places:
            return self.places[id(frames)]
        first = _NO_PLACE
        for frame in frames:
            place = self._frame(frame)
            if place is not None and place.is_own:
                first = place
                break
            if place is not None and not first.where:
                first = place
        phase = self._phase(frames, MemoryPhase.OTHER if first.where else MemoryPhase.UNKNOWN)
        self.places[id(frames)] = first = Place(first.where, is_own=first.is_own, phase=phase)
        return first

    def _phase(self, frames: list[Any], other: MemoryPhase) -> MemoryPhase:
        """What the innermost frame that tells a phase tells."""
        for frame in frames[:MOST_FRAMES]:
            if id(frame) not in self.phases:
                self.phases[id(frame)] = phase_in(frame)
            phase = self.phases[id(frame)]
            if phase is not None:
                return phase
        return other

    def _frame(self, frame: Any) -> Place | None:
        if id(frame) not in self.frames:
            self.frames[id(frame)] = _read(frame)
        return self.frames[id(frame)]


def _read(frame: Any) -> Place | None:
    if not isinstance(frame, dict):
        return None
    file, function = frame.get("filename"), frame.get("name")
    if not isinstance(file, str) or not isinstance(function, str) or ".py" not in file:
        return None  # of C++
    file, function = (redacted_text(trimmed(text, LONGEST_LABEL)) for text in (file, function))
    line = whole(frame.get("line"), 0, 10**9 - 1) or 0
    told = read_frame(f"{file}({line}): {function}", {})
    if told is None:
        return None
    return Place(CodePlace(file=told.file, function=told.function, line=line).name, is_own=told.is_own)


def _stack(block: dict[str, Any]) -> Any:
    """The stack of a block; before torch 2.1 it stands in the history of the block."""
    history = block.get("history")
    if "frames" not in block and isinstance(history, list) and history and isinstance(history[-1], dict):
        return history[-1].get("frames")
    return block.get("frames")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _size(value: object) -> int:
    return whole(value, 0, MOST_BYTES) or 0
