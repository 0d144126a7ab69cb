"""The rows of one rank, with their lanes and names, shortened to what a page has room for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.model.arrays import I64, distinct_codes, rows_by_value
from profkit.model.documents.tracks import CATEGORIES, U8, Role, Track
from profkit.model.intervals import Intervals
from profkit.model.trace import I32, CallKind, Kind, SpanKind, Trace
from profkit.plain import clean
from profkit.timeline import DeviceFacts, Facts
from profkit.timeline.cpu import training_threads
from profkit.timeline.steps import whole_steps

ROOM: Final = 200_000
"""Chosen: intervals of all ranks together. A page then has about 1 MB of them, and pans at 60 frames per second."""
_LEAST: Final = 64
"""What any row has room for."""
_GAPS: Final = 2048
"""Chosen: a gap of more than this part of the row ends a joined interval, since it can be seen."""
MOST_CHARS: Final = 300
"""Chosen: names of templated kernels have a few hundred characters; what comes after tells none apart."""
_MOST_LANES: Final = {Role.STREAM: 3, Role.THREAD: 12}
"""Chosen: a deep model's operators lie in ten to twelve ranges; deeper ones are too short to be seen."""
_MOST_THREADS: Final = 6
_MOST_STREAMS: Final = 16
_MOSTLY: Final = 0.5
Columns = tuple[I64, I64, I32, U8]
"""Starts, ends, codes of names and categories of intervals."""
CODE: Final = {name: place for place, name in enumerate(CATEGORIES)}


def rows_of(facts: Facts, names: Names) -> list[Track]:
    """All rows, in the order of a page."""
    budget = _of_sets("budget", "where the time goes", "", Role.BUDGET, budget_parts(facts))
    tracks = [_steps(facts.trace, names), budget]
    tracks += [_host(facts)] if facts.main_device is not None else []
    for device in facts.devices:
        tracks += _streams(facts.trace, device, names)
    tracks += _threads(facts, names)
    return [track for track in tracks if len(track)]


def budget_parts(facts: Facts) -> dict[str, Intervals]:
    """The parts of the budget as disjoint sets that fill the window; on a CPU one of them has what the others leave."""
    parts = dict(facts.parts)
    if facts.main_device is None and facts.cpu is not None:
        taken = Intervals.empty()
        for times in parts.values():
            taken = taken | times
        rest = "idle_unknown" if facts.cpu.has_no_operators else "idle_host"
        parts[rest] = taken.gaps(*facts.trace.window_ns)
    return parts


def _steps(trace: Trace, names: Names) -> Track:
    steps = whole_steps(trace)
    return Track(
        key="steps",
        label="steps",
        group="",
        role=Role.STEPS,
        start_ns=np.array([step.start_ns for step in steps], np.int64),
        end_ns=np.array([step.end_ns for step in steps], np.int64),
        name=np.array([names.of(f"step {step.number}") for step in steps], np.int32),
        category=np.full(len(steps), CODE["step"], np.uint8),
    )


def _of_sets(key: str, label: str, group: str, role: Role, sets: Mapping[str, Intervals]) -> Track:
    """A row of disjoint sets, each of a category, whose intervals have no names."""
    start = np.concatenate([times.start_ns for times in sets.values()] or [np.empty(0, np.int64)])
    end = np.concatenate([times.end_ns for times in sets.values()] or [np.empty(0, np.int64)])
    codes = np.repeat([CODE[name] for name in sets], [len(times) for times in sets.values()]).astype(np.uint8)
    order = np.argsort(start, kind="stable")
    return Track(
        key=key,
        label=label,
        group=group,
        role=role,
        start_ns=start[order],
        end_ns=end[order],
        name=np.full(start.size, -1, np.int32),
        category=codes[order],
    )


def _host(facts: Facts) -> Track:
    """What the launching threads do, each moment once: waiting for data before blocked before dispatching."""
    host = facts.host
    sync = host.blocked.clip(*facts.trace.window_ns) - host.loader
    launch = host.dispatching - host.loader - sync
    sets = {"idle_data": host.loader, "idle_sync": sync, "idle_launch": launch}
    return _of_sets("host", "host: waits, blocks, dispatches", "host", Role.HOST, sets)


def _in_lanes(key: str, label: str, group: str, role: Role, columns: Columns, names: Names) -> Iterator[Track]:
    """The rows of a stream or a thread, one for each lane; the first has the label."""
    start, end, name, category = columns
    found, _ = lanes(start, end, _MOST_LANES[role])
    for depth, place in enumerate(found):
        yield Track(
            key=f"{key}:{depth}",
            label=label if not depth else "",
            group=group,
            role=role,
            start_ns=start[place],
            end_ns=end[place],
            name=names.of_codes(name[place]),
            category=category[place],
        )


def _streams(trace: Trace, device: DeviceFacts, names: Names) -> Iterator[Track]:
    gpu, rows, activity = trace.gpu, device.activity.rows, device.activity
    category = np.full(rows.size, CODE["compute"], np.uint8)
    for kind, name, exposed in (
        (Kind.COMM, "comm", activity.comm_exposed),
        (Kind.COPY, "copy", activity.copy_exposed),
    ):
        mine = np.flatnonzero(gpu.kind[rows] == kind)
        start, end = gpu.start_ns[rows[mine]], gpu.end_ns[rows[mine]]
        bare = exposed.covered_ns(start, end) >= _MOSTLY * (end - start)
        category[mine] = np.where(bare, CODE[f"{name}_exposed"], CODE[f"{name}_hidden"])
    streams = [(int(stream), mine) for stream, mine in rows_by_value(gpu.stream[rows])]
    streams.sort(key=lambda one: int((gpu.start_ns[rows[one[1]]] - gpu.end_ns[rows[one[1]]]).sum()))  # busy ones first
    for stream, mine in streams[:_MOST_STREAMS]:
        taken = rows[mine]
        columns = gpu.start_ns[taken], gpu.end_ns[taken], gpu.name[taken], category[mine]
        group = f"GPU {device.device}"
        yield from _in_lanes(f"stream:{device.device}:{stream}", f"stream {stream}", group, Role.STREAM, columns, names)


def _threads(facts: Facts, names: Names) -> Iterator[Track]:
    trace = facts.trace
    first = facts.host.threads if facts.main_device is not None else training_threads(trace)
    spent = np.bincount(trace.ops.thread, weights=trace.ops.end_ns - trace.ops.start_ns, minlength=len(trace.threads))
    others = [code for code in np.argsort(-spent, kind="stable").tolist() if code not in first and spent[code] > 0]
    for number, code in enumerate([*first, *others][:_MOST_THREADS]):
        thread = trace.threads[code]
        label = f"thread {thread.tid} {thread.name}".strip()
        yield from _in_lanes(f"thread:{number}", label, "host", Role.THREAD, _on_thread(facts, code), names)


_OF_CALL: Final = {
    CallKind.LAUNCH: "idle_launch",
    CallKind.GRAPH_LAUNCH: "idle_launch",
    CallKind.SYNC: "idle_sync",
    CallKind.ALLOC: "idle_sync",
    CallKind.COPY: "copy_exposed",
}
_OF_SPAN: Final = {SpanKind.LOADER: "idle_data", SpanKind.COMM: "comm_exposed", SpanKind.STEP: "step"}


def _on_thread(facts: Facts, code: int) -> Columns:
    """Ranges, operators and calls of a thread that touch the window: start, end, name's code, category."""
    trace = facts.trace
    low, high = trace.window_ns
    work = CODE["compute"] if facts.main_device is None else CODE["host"]
    columns: list[Columns] = []
    for table, category in (
        (trace.spans, _by_kind(trace.spans.kind, _OF_SPAN, CODE["host"])),
        (trace.ops, np.full(len(trace.ops), work, np.uint8)),
        (trace.calls, _by_kind(trace.calls.kind, _OF_CALL, CODE["host"])),
    ):
        rows = np.flatnonzero((table.thread == code) & (table.end_ns > low) & (table.start_ns < high))
        columns.append((table.start_ns[rows], table.end_ns[rows], table.name[rows], category[rows]))
    start, end, name, category = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.lexsort((-end, start))
    return start[order], end[order], name[order], category[order]


def _by_kind(kinds: NDArray[np.integer[Any]], table: Mapping[Any, str], other: int) -> U8:
    found = np.full(kinds.size, other, np.uint8)
    for kind in distinct_codes(kinds).tolist() if kinds.size else []:
        if kind in table:
            found[kinds == kind] = CODE[table[kind]]
    return found


def lanes(start_ns: I64, end_ns: I64, most: int) -> tuple[list[NDArray[np.intp]], int]:
    """The rows of each lane (positions, in order of start), and how many rows lie deeper than `most` lanes.

    A row goes to the first lane in which it overlaps none that began before it: nested ranges stand under what
    encloses them. Zero-length rows count as one nanosecond. Rows must be sorted by start, the longer first.
    """
    rest: NDArray[np.intp] = np.arange(start_ns.size)
    ends = np.maximum(end_ns, start_ns + 1)
    found: list[NDArray[np.intp]] = []
    while rest.size and len(found) < most:
        start, end = start_ns[rest], ends[rest]
        is_free = np.ones(rest.size, np.bool_)
        is_free[1:] = start[1:] >= np.maximum.accumulate(end)[:-1]
        found.append(rest[is_free])
        rest = rest[~is_free]
    return found, int(rest.size)


class Names:
    """Numbers for names, given out as they are asked for; `texts` are the names in that order."""

    def __init__(self, trace: Trace) -> None:
        """Of the strings of one trace."""
        self._trace = trace
        self._of_code = np.full(len(trace.strings), -1, np.int32)
        self._of_text: dict[str, int] = {}

    @property
    def texts(self) -> tuple[str, ...]:
        """The names, by number."""
        return tuple(self._of_text)

    def of(self, text: str) -> int:
        """The number of a name, -1 for an empty one."""
        short = clean(text)[:MOST_CHARS]
        return self._of_text.setdefault(short, len(self._of_text)) if short else -1

    def of_codes(self, codes: NDArray[np.integer[Any]]) -> I32:
        """The numbers of the trace's strings with these codes, -1 for none; shape as given."""
        if codes.size == 0:
            return np.empty(0, np.int32)
        for code in distinct_codes(codes[codes >= 0]).tolist():
            if self._of_code[code] < 0:
                self._of_code[code] = self.of(self._trace.name(code))
        numbers: I32 = np.where(codes >= 0, self._of_code[np.maximum(codes, 0)], -1).astype(np.int32)
        return numbers


def in_room(tracks: Sequence[Track], room: int) -> tuple[Track, ...]:
    """The rows with about `room` intervals together, each with `_LEAST` or more; the short rows stay whole."""
    sizes = np.array([len(track) for track in tracks], np.int64)
    if sizes.sum() <= room:
        return tuple(tracks)
    cap = _cap(sizes, room)
    return tuple(track if len(track) <= cap else reduced(track, cap) for track in tracks)


def _cap(sizes: I64, room: int) -> int:
    """The most that one row may have for all to fit: what short rows leave is shared by the long ones."""
    left = room
    for n_left, size in zip(range(sizes.size, 0, -1), np.sort(sizes).tolist(), strict=True):
        if size * n_left > left:
            return max(left // n_left, _LEAST)
        left -= size
    return int(sizes.max(initial=0))


def reduced(track: Track, most: int) -> Track:
    """The row with `most` intervals or a few more: its longest ones as they are, the rest joined where it is dense."""
    length = track.end_ns - track.start_ns
    kept = np.zeros(length.size, np.bool_)
    kept[np.argpartition(-length, most // 2)[: most // 2]] = True
    for widest in range(_GAPS.bit_length(), -1, -1):
        gap = int(track.end_ns[-1] - track.start_ns[0]) >> widest
        joined = _joined(track, kept, gap)
        if len(joined) <= most:
            return joined
    return _joined(track, np.zeros(length.size, np.bool_), int(track.end_ns[-1] - track.start_ns[0]))


def _joined(track: Track, kept: np.ndarray[tuple[int], np.dtype[np.bool_]], gap: int) -> Track:
    """Runs of intervals that are not `kept`, with gaps of at most `gap` ns between them, as one each."""
    start, end, length = track.start_ns, track.end_ns, track.end_ns - track.start_ns
    is_first = np.ones(start.size, np.bool_)
    is_first[1:] = kept[1:] | kept[:-1] | (start[1:] - end[:-1] > gap)
    first = np.flatnonzero(is_first)
    group = np.cumsum(is_first) - 1
    last = np.append(first[1:], start.size) - 1
    cells = group * len(CATEGORIES) + track.category
    spent = np.bincount(cells, length, first.size * len(CATEGORIES)).reshape(first.size, -1)
    single = first == last
    return replace(
        track,
        start_ns=start[first],
        end_ns=end[last],
        name=np.where(single, track.name[first], -1).astype(np.int32),
        category=np.where(single, track.category[first], spent.argmax(axis=1)).astype(np.uint8),
        is_reduced=True,
    )
