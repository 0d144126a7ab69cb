"""Where a device is idle: its idle time by the operation that ends it, and by what launches that operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, looked_up, order_of, place_among
from profkit.model.intervals import Intervals
from profkit.model.names import short_name
from profkit.model.trace import CpuOps, SpanKind, Spans, Trace
from profkit.timeline.activity import Activity
from profkit.timeline.host import enclosing_op
from profkit.timeline.idle.causes import IdleCauses, ending_rows
from profkit.timeline.idle.queue import Queue

if TYPE_CHECKING:
    from profkit.timeline.code.code import Code

_MOST_NAMES: Final = 24
"""Names of operations that are looked into, those with most idle time before them. Chosen: twice what is shown."""
_MOST_SHOWN: Final = 12
_LONG_NS: Final = 20_000
"""An operator that may be what a long gap waits for. Chosen: views and shape functions take less."""
_MOST_CHARS: Final = 48
_TWICE: Final = 2
_MOSTLY: Final = 0.5
"""Share of a place's idle time from which a range stands for it. Chosen."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Idle time that ends with one operation launched from one place; "" where the trace does not say."""

    before: str
    """The operation that ends it, as people know it; "" at the window's end."""
    op: str
    """The innermost operator around its launch."""
    span: str
    """The innermost range of the host around its launch, steps apart, where one has most of this idle time."""
    line: str
    """The place in the user's code of its launch."""
    meanwhile: str
    """What the host is in half-way from the beginning of the gap to that launch: a long operator, a place in the user's
    code or a range, where one has most of this idle time."""
    n_gaps: int
    idle_ns: int
    by_part: Mapping[str, int]
    """The same by cause, as the budget has it."""

    @property
    def words(self) -> str:
        """The place in a sentence, from "before" on: no more than what finds it."""
        what = self.before or "the end of the window"
        by = self.op if self.op not in self.before else ""
        between = self.meanwhile if self.meanwhile not in {self.op, self.line, self.span} else ""
        said = (
            (", launched by ", by),
            (" at ", self.line),
            (" in ", self.span),
            (", while the host is in ", between),
        )
        return f"before {what}" + "".join(word + name for word, name in said if name)

    @property
    def cause(self) -> str:
        """The part of the budget that has most of it."""
        return max(self.by_part, key=lambda part: self.by_part[part], default="idle_unknown")

    def in_parts(self, parts: Sequence[str]) -> int:
        """Idle time of these causes, ns."""
        return sum(self.by_part.get(part, 0) for part in parts)


class IdlePlaces(msgspec.Struct, frozen=True, kw_only=True):
    """The places with most idle time, the longest first, and all idle time that has a place, by cause, ns."""

    places: tuple[Place, ...] = ()
    total_ns: Mapping[str, int] = {}
    n_gaps: int = 0
    """All gaps, of all places."""

    def first(self, parts: Sequence[str]) -> tuple[Place, float] | None:
        """The place with most idle time of these causes, and its share (0-1) of that."""
        total = sum(self.total_ns.get(part, 0) for part in parts)
        place = max(self.places, key=lambda place: place.in_parts(parts), default=None)
        if place is None or not total or not place.in_parts(parts):
            return None
        return place, place.in_parts(parts) / total

    def outstanding(self, parts: Sequence[str], least: float) -> Place | None:
        """The first place, if it has at least this share of the idle time, in gaps twice as long as usual or longer."""
        first = self.first(parts)
        if first is None or first[1] < max(least, _TWICE * first[0].n_gaps / max(self.n_gaps, 1)):
            return None
        return first[0]


def idle_places(
    trace: Trace,
    activity: Activity,
    idle: IdleCauses,
    queue: Queue,
    known: tuple[NDArray[np.int32], Code | None],
) -> IdlePlaces:
    """Where one device is idle; gaps between operations that were queued in time are nobody's, and left out.

    Known are the operators of calls and, where frames were recorded, the places in the code.
    """
    gaps = activity.any.gaps(*trace.window_ns)
    long = gaps.lengths_ns > queue.turnaround_ns
    start, end = gaps.start_ns[long], gaps.end_ns[long]
    n_gaps = int(start.size)
    if n_gaps == 0:
        return IdlePlaces()
    row = ending_rows(trace, activity, end)
    name = np.where(row >= 0, trace.gpu.name[row], -1)
    kept = _of_top_names(name, end - start)
    name, length = name[kept], (end - start)[kept]
    start, row = start[kept], row[kept]
    del end
    around = _around(trace, start, row, known)
    del row
    lines = _lines(known[1])
    group, first = _grouped((name, around.op, around.line))
    span, meanwhile = _usual(group, around.span, length), _usual(group, around.meanwhile, length)
    spent = _summed(group, length)
    total, by_part = {}, {}
    for part, cause in idle.parts.items():
        if cause:
            inside = _inside_ns(cause, gaps)[long]
            total[part], by_part[part] = int(inside.sum()), _summed(group, inside[kept])
    counts = np.bincount(group)
    shown = _shown(spent, by_part)
    places = []
    for one in shown:
        at = first[one]
        places.append(
            Place(
                before=short_name(trace.name(int(name[at]))),
                op=short_name(trace.name(int(around.op[at])), _MOST_CHARS),
                span=_shortened(trace.name(int(span[one]))),
                line=lines[int(around.line[at])] if around.line[at] >= 0 else "",
                meanwhile=_meanwhile(trace, lines, int(meanwhile[one])),
                n_gaps=int(counts[one]),
                idle_ns=int(spent[one]),
                by_part={part: int(each[one]) for part, each in by_part.items()},
            )
        )
    return IdlePlaces(places=tuple(places), total_ns=total, n_gaps=n_gaps)


def _inside_ns(cause: Intervals, gaps: Intervals) -> I64:
    """How much of each gap a cause has: each of its intervals lies in one gap, since between two the device works."""
    gap = place_among(gaps.start_ns, cause.start_ns, after=True) - 1
    return np.bincount(gap, weights=cause.lengths_ns, minlength=len(gaps)).astype(np.int64)


def _of_top_names(name: NDArray[np.int32], length: I64) -> NDArray[np.intp]:
    """The gaps before the operations whose names have most idle time before them."""
    spent = np.bincount(name + 1, weights=length)
    top = np.argsort(-spent, kind="stable")[:_MOST_NAMES]
    is_top = np.zeros(spent.size, np.bool_)
    is_top[top] = True
    return np.flatnonzero(is_top[name + 1])


class _Around(msgspec.Struct, frozen=True):
    """Codes of names around the launches that end gaps, and half-way to them, shape (n,) each; -1 for none."""

    op: NDArray[np.int32]
    span: NDArray[np.int32]
    line: NDArray[np.int32]
    """The number of the function in the user's code."""
    meanwhile: NDArray[np.int32]
    """A name's code, or a function's number beyond all codes."""


def _around(trace: Trace, start: I64, row: NDArray[np.intp], known: tuple[NDArray[np.int32], Code | None]) -> _Around:
    """What surrounds the launches of these rows, which end gaps that begin at `start`."""
    calls, (op_of_call, code) = trace.calls, known
    launch = np.where(row >= 0, trace.gpu.launch_row[row], -1)
    linked = np.flatnonzero(launch >= 0)
    call = launch[linked]
    if call.size == 0:
        none = np.full(row.size, -1, np.int32)
        return _Around(none, none, none, none)
    at = calls.start_ns[call]
    thread, n = calls.thread[call], call.size
    middle = (start[linked] + np.maximum(at, start[linked])) // 2
    both = np.concatenate((thread, thread)), np.concatenate((at, middle))
    is_before = at <= start[linked]  # launched before the gap
    del at, launch
    ranges = trace.spans.take(np.flatnonzero(trace.spans.kind != SpanKind.STEP))
    line, span = _functions(code, *both), _names(ranges, enclosing_op(ranges, *both))
    del both
    long = _ranges(trace.ops, np.flatnonzero(trace.ops.end_ns - trace.ops.start_ns >= _LONG_NS))
    busy = _names(long, enclosing_op(long, thread, middle))
    del long, middle
    meanwhile = np.where(busy >= 0, busy, np.where(line[n:] >= 0, line[n:] + len(trace.strings), span[n:]))
    meanwhile[is_before] = -1
    codes = (_names(trace.ops, op_of_call[call]), span[:n], line[:n], meanwhile)
    return _Around(*(_spread(each, linked, row.size) for each in codes))


def _ranges(ops: CpuOps, rows: NDArray[np.intp]) -> Spans:
    """When and where some operators run, without what else is known of them: of a large trace 15 MB less."""
    return Spans(
        start_ns=ops.start_ns[rows],
        end_ns=ops.end_ns[rows],
        name=ops.name[rows],
        thread=ops.thread[rows],
        kind=np.zeros(rows.size, np.int8),
    )


def _names(table: CpuOps | Spans, row: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    return looked_up(table.name, row)


def _spread(codes: NDArray[np.int32], rows: NDArray[np.intp], n: int) -> NDArray[np.int32]:
    out = np.full(n, -1, np.int32)
    out[rows] = codes
    return out


def _functions(code: Code | None, thread: NDArray[np.int32], at_ns: I64) -> NDArray[np.int32]:
    """The number of the function in the user's code at each (thread, time), -1 for none."""
    if code is None or not code.places:
        return np.full(at_ns.size, -1, np.int32)
    place = code.at(thread, at_ns).place
    return looked_up(code.functions, place)


def _lines(code: Code | None) -> dict[int, str]:
    """What the functions are called, by their number."""
    if code is None:
        return {}
    return {int(one): place.name for one, place in zip(code.functions, code.places, strict=True)}


def _meanwhile(trace: Trace, lines: Mapping[int, str], code: int) -> str:
    beyond = code - len(trace.strings)
    return lines[beyond] if beyond >= 0 else _shortened(trace.name(code))


def _grouped(keys: Sequence[NDArray[np.integer[Any]]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The number of each row's group, those with equal keys, and the first row of each group."""
    order = order_of(_as_one(keys))
    is_new = np.zeros(order.size, np.bool_)
    is_new[0] = True
    for key in keys:
        ordered = key[order]
        is_new[1:] |= ordered[1:] != ordered[:-1]
    group = np.empty(order.size, np.intp)
    group[order] = np.cumsum(is_new) - 1
    return group, order[is_new]


def _as_one(keys: Sequence[NDArray[np.integer[Any]]]) -> I64:
    """One key for several (from -1 on), the last the most significant: tables of names leave room in 64 bits."""
    one = np.zeros(keys[0].size, np.int64)
    for key in reversed(keys):
        one = one * (int(key.max(initial=-1)) + 2) + key + 1
    return one


def _usual(group: NDArray[np.intp], codes: NDArray[np.int32], length: I64) -> NDArray[np.int32]:
    """For each group the code that has most of its time, -1 where none has half of it."""
    part, first = _grouped((codes, group))
    spent, owner = _summed(part, length), group[first]
    out = np.full(int(group.max()) + 1, -1, np.int32)
    mostly = spent >= _MOSTLY * _summed(group, length)[owner]
    out[owner[mostly]] = codes[first[mostly]]
    return out


def _shortened(name: str) -> str:
    """A range or an operator."""
    return name if len(name) <= _MOST_CHARS else name[: _MOST_CHARS - 3] + "..."


def _summed(group: NDArray[np.intp], length: I64) -> I64:
    return np.bincount(group, weights=length).astype(np.int64)


def _shown(spent: I64, by_part: Mapping[str, I64]) -> list[int]:
    """The groups with most idle time, the longest first; the first of each cause is among them."""
    top = np.argsort(-spent, kind="stable")
    chosen = {*top[:_MOST_SHOWN].tolist(), *(int(each.argmax()) for each in by_part.values())}
    return [one for one in top.tolist() if one in chosen]
