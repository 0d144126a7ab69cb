"""The rows of one rank: steps, budget, host, streams, threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, distinct, distinct_codes
from profkit.model.documents.tracks import CATEGORIES, U8, Role, Track
from profkit.model.intervals import Intervals
from profkit.model.trace import I32, CallKind, Kind, SpanKind, Trace
from profkit.timeline import DeviceFacts, Facts
from profkit.timeline.cpu import training_threads
from profkit.timeline.steps import whole_steps
from profkit.tracks.lanes import lanes
from profkit.tracks.names import Names

_STREAM_LANES: Final = 3
_THREAD_LANES: Final = 12
"""Chosen: a deep model's operators lie in ten to twelve ranges; deeper ones are too short to be seen."""
_MOST_THREADS: Final = 6
_MOST_STREAMS: Final = 16
_MOSTLY: Final = 0.5
CODE: Final = {name: place for place, name in enumerate(CATEGORIES)}


def rows_of(facts: Facts, names: Names) -> list[Track]:
    """All rows, in the order of a page."""
    tracks = [_steps(facts.trace, names), _budget(facts)]
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


def _of_sets(sets: Mapping[str, Intervals]) -> tuple[I64, I64, U8]:
    """Disjoint sets of categories as sorted intervals."""
    start = np.concatenate([times.start_ns for times in sets.values()] or [np.empty(0, np.int64)])
    end = np.concatenate([times.end_ns for times in sets.values()] or [np.empty(0, np.int64)])
    codes = np.repeat([CODE[name] for name in sets], [len(times) for times in sets.values()]).astype(np.uint8)
    order = np.argsort(start, kind="stable")
    return start[order], end[order], codes[order]


def _budget(facts: Facts) -> Track:
    start, end, category = _of_sets(budget_parts(facts))
    return Track(
        key="budget",
        label="where the time goes",
        group="",
        role=Role.BUDGET,
        start_ns=start,
        end_ns=end,
        name=np.full(start.size, -1, np.int32),
        category=category,
    )


def _host(facts: Facts) -> Track:
    """What the launching threads do, each moment once: waiting for data before blocked before dispatching."""
    host = facts.host
    sync = host.blocked.clip(*facts.trace.window_ns) - host.loader
    launch = host.dispatching - host.loader - sync
    start, end, category = _of_sets({"idle_data": host.loader, "idle_sync": sync, "idle_launch": launch})
    return Track(
        key="host",
        label="host: waits, blocks, dispatches",
        group="host",
        role=Role.HOST,
        start_ns=start,
        end_ns=end,
        name=np.full(start.size, -1, np.int32),
        category=category,
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
    busy = {
        int(stream): int((gpu.end_ns[rows[mine]] - gpu.start_ns[rows[mine]]).sum())
        for stream in distinct(gpu.stream[rows])
        for mine in [np.flatnonzero(gpu.stream[rows] == stream)]
    }
    for stream in sorted(busy, key=lambda one: -busy[one])[:_MOST_STREAMS]:
        mine = np.flatnonzero(gpu.stream[rows] == stream)
        taken = rows[mine]
        found, _ = lanes(gpu.start_ns[taken], gpu.end_ns[taken], _STREAM_LANES)
        for depth, place in enumerate(found):
            own = taken[place]
            yield Track(
                key=f"stream:{device.device}:{stream}:{depth}",
                label=f"stream {stream}" if not depth else "",
                group=f"GPU {device.device}",
                role=Role.STREAM,
                start_ns=gpu.start_ns[own],
                end_ns=gpu.end_ns[own],
                name=names.of_codes(gpu.name[own]),
                category=category[mine[place]],
            )


def _threads(facts: Facts, names: Names) -> Iterator[Track]:
    trace = facts.trace
    first = facts.host.threads if facts.main_device is not None else training_threads(trace)
    spent = np.bincount(trace.ops.thread, weights=trace.ops.end_ns - trace.ops.start_ns, minlength=len(trace.threads))
    others = [code for code in np.argsort(-spent, kind="stable").tolist() if code not in first and spent[code] > 0]
    for number, code in enumerate([*first, *others][:_MOST_THREADS]):
        start, end, name, category = _on_thread(facts, code)
        found, _ = lanes(start, end, _THREAD_LANES)
        for depth, place in enumerate(found):
            yield Track(
                key=f"thread:{number}:{depth}",
                label=_thread_label(trace, code) if not depth else "",
                group="host",
                role=Role.THREAD,
                start_ns=start[place],
                end_ns=end[place],
                name=names.of_codes(name[place]),
                category=category[place],
            )


def _thread_label(trace: Trace, code: int) -> str:
    thread = trace.threads[code]
    return f"thread {thread.tid} {thread.name}".strip()


_OF_CALL: Final = {
    CallKind.LAUNCH: "idle_launch",
    CallKind.GRAPH_LAUNCH: "idle_launch",
    CallKind.SYNC: "idle_sync",
    CallKind.ALLOC: "idle_sync",
    CallKind.COPY: "copy_exposed",
}
_OF_SPAN: Final = {SpanKind.LOADER: "idle_data", SpanKind.COMM: "comm_exposed", SpanKind.STEP: "step"}


def _on_thread(facts: Facts, code: int) -> tuple[I64, I64, I32, U8]:
    """Ranges, operators and calls of a thread that touch the window: start, end, name's code, category."""
    trace = facts.trace
    low, high = trace.window_ns
    work = CODE["compute"] if facts.main_device is None else CODE["host"]
    columns: list[tuple[I64, I64, I32, U8]] = []
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
