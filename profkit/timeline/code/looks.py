"""Stacks that were looked at every 2 ms: calls that one look alone has found, spread over times between operators.

Such a call has next to no length in the trace. Where its look lies between two operators, it stands for the time
around it up to these, as far as half of what lies between looks. A time that no look fell into is told by one that did
between operators of the same names in the same function; where there are several, they take turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from profkit.model.arrays import I64, rows_by_value
from profkit.model.trace import Trace
from profkit.timeline.host import outermost

_ONCE_NS: Final = 1_000
"""Calls shorter than this are of one look (`capture.inside.places.sampler`: two ns for each of its calls)."""
_REACH_NS: Final = 1_000_000
"""Half of the time between looks."""
_LEAST_NS: Final = 50_000
"""A time without a look that is told by another one. Chosen: what is shorter is mostly torch's own."""
_MOST_CALLS: Final = 300_000
_DEEPEST: Final = 256


class _Call(NamedTuple):
    """A call with its new time; `of` is its row in the trace, or the row that it is a copy of."""

    of: int
    parent_id: int
    start_ns: int
    end_ns: int
    is_copy: bool


class _Look(NamedTuple):
    at_ns: int
    chain: tuple[int, ...]
    """The calls that it found, the outermost first."""
    n_long: int
    """How many of them other looks found as well."""


def spread(trace: Trace) -> Trace:
    """The trace with a time for each call that one look has found; itself where no stack was looked at."""
    frames = trace.python
    once = np.flatnonzero(frames.end_ns - frames.start_ns < _ONCE_NS)
    if not trace.meta.has_sampled_stacks or not once.size or not len(trace.ops):
        return trace
    looked = _looked(trace)
    found: list[_Call] = []
    tops = outermost(trace.ops)
    for thread, places in rows_by_value(frames.thread[once]):
        ops = tops[trace.ops.thread[tops] == thread]
        ops = ops[np.argsort(trace.ops.start_ns[ops], kind="stable")]
        if ops.size > 1:
            found += _Thread(trace, int(thread), once[places], ops).calls(looked)
    return _with_calls(trace, found[:_MOST_CALLS])


class _Thread:
    """The looks at one thread and its times between operators."""

    def __init__(self, trace: Trace, thread: int, once: I64, ops: I64) -> None:
        self._trace, self._frames = trace, trace.python
        self._once = once
        frames = self._frames
        self._row_of = {number: row for row, number in enumerate(frames.frame_id.tolist())}
        mine = np.flatnonzero(frames.thread == thread)
        self._long = mine[~np.isin(mine, once)]
        self._long = self._long[np.argsort(frames.start_ns[self._long], kind="stable")]
        self._edges = np.sort(np.concatenate((frames.start_ns[self._long], frames.end_ns[self._long])))
        names = trace.ops.name[ops].tolist()
        self._low, self._high = trace.ops.end_ns[ops][:-1], trace.ops.start_ns[ops][1:]
        self._between = list(pairwise(names))

    def calls(self, looked: list[int]) -> list[_Call]:
        """The calls of its looks, and copies of them for times between operators that had none."""
        in_gap: dict[int, list[_Look]] = {}
        for look in self._looks(looked):
            gap = int(np.searchsorted(self._low, look.at_ns, "right")) - 1
            if gap >= 0 and look.at_ns < self._high[gap]:
                in_gap.setdefault(gap, []).append(look)
        found: list[_Call] = []
        donors: dict[tuple[int, int], list[_Look]] = {}
        for gap, looks in in_gap.items():
            donors.setdefault(self._between[gap], []).extend(looks)
            for place, look in enumerate(looks):
                low, high = self._reach(gap, look.at_ns)
                low = max(low, (looks[place - 1].at_ns + look.at_ns) // 2) if place else low
                high = min(high, (look.at_ns + looks[place + 1].at_ns) // 2) if place + 1 < len(looks) else high
                found += self._spread(look.chain[look.n_long :], -1, low, high)
        turns: Counter[tuple[tuple[int, int], int]] = Counter()
        for gap in np.flatnonzero(self._high - self._low >= _LEAST_NS).tolist():
            around = self._around(gap) if gap not in in_gap and self._between[gap] in donors else -1
            if around < 0:
                continue
            name = int(self._frames.name[around])
            inner = [chain for look in donors[self._between[gap]] if (chain := self._inside(look, name)) is not None]
            if not inner:
                continue
            key = (self._between[gap], name)
            chain, parent = inner[turns[key] % len(inner)], int(self._frames.frame_id[around])
            turns[key] += 1
            found += self._spread(chain, parent, int(self._low[gap]), int(self._high[gap]))
        return found

    def _looks(self, looked: list[int]) -> Iterator[_Look]:
        """The looks by time, each with all that it found."""
        frames = self._frames
        once = self._once[np.argsort(frames.start_ns[self._once], kind="stable")]
        start = frames.start_ns[once]
        for at_ns in looked:
            low, high = np.searchsorted(start, (at_ns - _ONCE_NS, at_ns + _ONCE_NS))
            inner = once[low:high].tolist()  # each begins behind the one around it
            around = self._row_of.get(int(frames.parent_id[inner[0]]), -1) if inner else self._long_at(at_ns, at_ns)
            long = self._up(around)
            # calls that this look found first begin with it: what it found in them lies behind
            yield _Look(int(frames.start_ns[inner[0]]) if inner else at_ns, (*long, *inner), len(long))

    def _up(self, row: int) -> list[int]:
        """A call and those around it, the outermost first."""
        chain: list[int] = []
        while row >= 0 and len(chain) < _DEEPEST:
            chain.append(row)
            row = self._row_of.get(int(self._frames.parent_id[row]), -1)
        return chain[::-1]

    def _inside(self, look: _Look, name: int) -> tuple[int, ...] | None:
        """What a look found inside a call of this name; None where it found no such call."""
        names = self._frames.name[list(look.chain)].tolist()
        return look.chain[len(names) - names[::-1].index(name) :] if name in names else None

    def _reach(self, gap: int, at_ns: int) -> tuple[int, int]:
        """The time that a look stands for: where no operator and no other call begins or ends."""
        place = int(np.searchsorted(self._edges, at_ns))
        low = max(int(self._low[gap]), at_ns - _REACH_NS, int(self._edges[place - 1]) + 1 if place else 0)
        high = min(int(self._high[gap]), at_ns + _REACH_NS)
        return low, min(high, int(self._edges[place]) - 1) if place < self._edges.size else high

    def _around(self, gap: int) -> int:
        """The innermost call that runs all through a time between operators, -1 where one begins or ends in it."""
        low, high = int(self._low[gap]), int(self._high[gap])
        if np.searchsorted(self._edges, low) != np.searchsorted(self._edges, high):
            return -1
        return self._long_at(low, high)

    def _long_at(self, low: int, high: int) -> int:
        place = int(np.searchsorted(self._frames.start_ns[self._long], low)) - 1
        row = int(self._long[place]) if place >= 0 else -1
        while row >= 0 and self._frames.end_ns[row] < high:
            row = self._row_of.get(int(self._frames.parent_id[row]), -1)
        return row

    @staticmethod
    def _spread(chain: tuple[int, ...], parent: int, low: int, high: int) -> list[_Call]:
        """The calls of a chain over a time; copies inside a call where that, `parent`, is given."""
        if high - low <= 2 * len(chain):
            return []
        return [
            _Call(row, parent if not depth else -1, low + depth, high - depth, parent >= 0)
            for depth, row in enumerate(chain)
        ]


def _looked(trace: Trace) -> list[int]:
    """When the looks were, in the trace's time; none of a capture that does not say it."""
    told = trace.meta.metadata.get("profkit_call_lines")
    at = told.get("looked_unix_ns") if isinstance(told, dict) else None
    if not isinstance(at, list):
        return []
    return sorted(one - trace.origin_unix_ns for one in at if isinstance(one, int) and 0 < one < 2**62)


def _with_calls(trace: Trace, found: list[_Call]) -> Trace:
    """The trace with these calls, and with the lines that made them."""
    frames = trace.python
    start, end = frames.start_ns.copy(), frames.end_ns.copy()
    copies: list[int] = []
    ids, parents = [], []
    next_id = int(frames.frame_id.max()) + 1
    moved: list[tuple[int, int]] = []
    late: list[tuple[int, int]] = []
    for call in found:
        moved.append((int(frames.start_ns[call.of]), call.start_ns))
        if not call.is_copy:
            start[call.of], end[call.of] = call.start_ns, call.end_ns
            continue
        copies.append(call.of)
        late.append((call.start_ns, call.end_ns))
        ids.append(next_id)
        parents.append(call.parent_id if call.parent_id >= 0 else next_id - 1)
        next_id += 1
    rows = frames.take(np.concatenate((np.arange(len(frames)), np.array(copies, np.int64))))
    python = replace(
        rows,
        start_ns=np.concatenate((start, np.array([low for low, _ in late], np.int64))),
        end_ns=np.concatenate((end, np.array([high for _, high in late], np.int64))),
        frame_id=np.concatenate((frames.frame_id, np.array(ids, np.int64))),
        parent_id=np.concatenate((frames.parent_id, np.array(parents, np.int64))),
    )
    return replace(trace, python=python, meta=replace(trace.meta, metadata=_lines(trace, moved)))


def _lines(trace: Trace, moved: list[tuple[int, int]]) -> dict[str, Any]:
    """The metadata with the lines of calls at their new times as well."""
    told = trace.meta.metadata.get("profkit_call_lines")
    out = dict(trace.meta.metadata)
    try:
        unix_ns, line = list(told["unix_ns"]), list(told["line"])  # type: ignore[index]
        known = dict(zip(unix_ns, line, strict=True))
    except (KeyError, TypeError, ValueError):
        return out
    origin = trace.origin_unix_ns
    for old, new in moved:
        if old + origin in known:
            unix_ns.append(new + origin)
            line.append(known[old + origin])
    out["profkit_call_lines"] = {"unix_ns": unix_ns, "line": line}
    return out
