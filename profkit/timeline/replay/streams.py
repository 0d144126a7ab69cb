"""What operations take on their streams, behind launches and other streams; and what calls that hold the host take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, coded, place_among, quantile
from profkit.model.trace import CallKind, Kind, Trace
from profkit.redact.later import later
from profkit.timeline.idle import MAX_LATENCY_NS, MIN_LATENCY_NS, Queue
from profkit.timeline.replay.clocks import F64

_MOST_LANES: Final = 3
"""Streams that have a clock of their own; the last one is that of all others. Chosen: compute, communication, copy."""
_LEAST_SHARE: Final = 0.01
"""Of the busy time that a stream with a clock of its own must have. Chosen: as small as what no finding tells."""
_LEAST_GAP_NS: Final = 500
"""Between operations of one stream where the trace shows no two that were queued. Chosen: back-to-back kernels of the
public captures have 0.7 us and more."""
_TAIL: Final = 3
"""Times the latency beyond which an operation waited for more than its launch. Chosen: of drawn jobs with a spread of a
third, one launch in a thousand takes over four times the median; what counts as a wait for something else is left out
of the ceiling."""
_FOLLOWS: Final = 0.95
_AT_ONCE: Final = 2**15
"""Operations worked on at a time. Chosen: what is made of that many on the way stays in the cache."""
_RELEASE_NS: Final = 10_000
"""How long after the device a call returns at most, where it did not wait here but would in the replay. Chosen: the
default launch latency; calls on an idle device take 2 to 10 us."""
_ALL: Final = later("DeviceSynchronize|CtxSynchronize|free", re.IGNORECASE)
"""Calls that wait for every stream. Of others it is known only of the stream that they outlast."""
_EVENT: Final = later("Event", re.IGNORECASE)
"""Calls that wait for work given before an event: where they did not wait, that may be long ago."""
_N_QUEUED: Final = 5
"""Operations that show how a stream behaves. Chosen, as is the share of them that has to agree."""


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """The operations of one stream, or of several as one, in the order of launches; shape (n,) each."""

    place: NDArray[np.intp]
    """Where they stand among all of the device."""
    start_ns: I64
    end_ns: I64
    at_ns: I64
    linked: NDArray[np.bool_]
    before_ns: int

    @property
    def done_ns(self) -> I64:
        """When each, and all before it, had ended."""
        return np.maximum(np.maximum.accumulate(self.end_ns), self.before_ns)

    def done_by(self, place: NDArray[np.intp]) -> I64:
        """When it had done all that stands before these places among all of the device."""
        own = place_among(self.place, place)
        return np.concatenate(([self.before_ns], self.done_ns))[own]


def streams_of(
    trace: Trace, rows: NDArray[np.intp], before: NDArray[np.intp], at_ns: I64, linked: NDArray[np.bool_]
) -> list[Stream]:
    """The streams of a device's rows in the order of launches (at these times), and of those that came before them."""
    gpu, low = trace.gpu, trace.window_ns[0]
    lane, lane_before = _lanes(trace, rows, before)
    return [
        Stream(
            place=place,
            start_ns=gpu.start_ns[rows[place]],
            end_ns=gpu.end_ns[rows[place]],
            at_ns=at_ns[place],
            linked=linked[place],
            before_ns=int(gpu.end_ns[before[lane_before == number]].max(initial=low)),
        )
        for number in range(int(lane.max()) + 1)
        if (place := np.flatnonzero(lane == number)).size
    ]


def _lanes(trace: Trace, rows: NDArray[np.intp], before: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The lane of each of these rows, and of those before: the stream with most compute, the busiest, all others."""
    gpu = trace.gpu
    streams, own = coded(gpu.stream[rows])
    length = (gpu.end_ns - gpu.start_ns)[rows]
    spent = np.bincount(own, weights=length)
    spent[np.bincount(own, weights=length * (gpu.kind[rows] == Kind.COMPUTE)).argmax()] = np.inf
    n_lanes = min(max(int(np.count_nonzero(spent >= _LEAST_SHARE * length.sum())), 1), _MOST_LANES)
    rank = np.empty(streams.size, np.intp)
    rank[np.argsort(-spent, kind="stable")] = np.minimum(np.arange(streams.size), n_lanes - 1)
    place = np.minimum(place_among(streams, gpu.stream[before]), streams.size - 1)
    return rank[own], np.where(streams[place] == gpu.stream[before], rank[place], rank.max())


def timed(stream: Stream, others: Sequence[Stream], queue: Queue) -> tuple[F64, F64, list[F64]]:
    """`x` and `y` of the operations of a stream, and `z` behind each of the others."""
    start, end, at, linked = stream.start_ns, stream.end_ns, stream.at_ns, stream.linked
    previous = np.concatenate(([stream.before_ns], stream.done_ns[:-1]))
    gap, lag = start - previous, np.maximum(start - at, 0)
    longest = _TAIL * queue.latency_ns if queue.floor_median_ns else MAX_LATENCY_NS
    least = _least_gap_ns(gap[linked & (at < previous) & (gap >= 0) & (gap <= queue.turnaround_ns)])
    is_late = linked & (gap > 0) & (at >= previous)
    by_launch = is_late | (linked & (gap > least) & (lag <= longest))
    is_waiting = (gap > queue.turnaround_ns) & (~by_launch | (lag > longest))
    by_other, z = _by_other(stream, others, is_waiting, queue.latency_ns)
    by_launch &= ~by_other
    usual = queue.latency_ns if queue.floor_median_ns else MAX_LATENCY_NS
    soonest = max(min(queue.floor_p5_ns or MIN_LATENCY_NS, queue.latency_ns), 0)
    is_free = by_other | (by_launch & ~is_late)  # it waited for nothing that is not known
    x, y = np.empty(start.size), np.empty(start.size)
    del lag, is_waiting
    for first in range(0, start.size, _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        lag, length = np.maximum(start[some] - at[some], 0), end[some] - start[some]
        no_launch = lag - np.where(is_late[some], longest, usual)  # for what is not known, however soon it was launched
        waited = np.where(linked[some], np.maximum(no_launch, 0), np.maximum(gap[some], 0))
        waited[is_free[some]] = 0
        behind = np.maximum(end[some] - previous[some], 0)
        x[some] = np.where(gap[some] > 0, length + np.minimum(gap[some], least + waited), behind)
        y[some] = np.where(by_launch[some], end[some] - at[some], np.minimum(lag, soonest) + length)
    y[~linked] = -np.inf
    return x, y, z


def _by_other(
    stream: Stream, others: Sequence[Stream], waiting: NDArray[np.bool_], near_ns: int
) -> tuple[NDArray[np.bool_], list[F64]]:
    """Which operations of those that wait start as work of another stream ends, and `z` behind each stream."""
    start = stream.start_ns
    ended = []
    for other in others:
        ends = np.concatenate(([np.iinfo(np.int64).min // 2], np.sort(other.end_ns, kind="stable")))
        ended.append(ends[place_among(ends, start, after=True) - 1])
    latest = np.maximum.reduce(ended) if ended else np.full(start.size, np.iinfo(np.int64).min // 2)
    by_other = waiting & (start - latest <= near_ns)
    z = []
    for other, end in zip(others, ended, strict=True):
        done = other.done_by(stream.place)
        behind = np.where(by_other & (end == latest), stream.end_ns - done, -np.inf)
        if _follows(stream, done, near_ns):
            soonest = stream.end_ns - start + np.minimum(start - done, _LEAST_GAP_NS)
            behind = np.maximum(behind, np.where(start >= done, soonest, -np.inf))
        z.append(behind)
    return by_other, z


def _follows(stream: Stream, done: I64, latency_ns: int) -> bool:
    """Whether a stream waits for all that another was given before, done at these times: a collective for gradients.

    What was launched when that was not yet done shows it, unless its launch alone takes as long: a copy ahead for the
    next step starts after a short kernel that was running, and does not wait for it.
    """
    tested = stream.linked & (done > stream.at_ns + latency_ns)
    n = int(np.count_nonzero(tested))
    return n >= _N_QUEUED and int(np.count_nonzero(stream.start_ns[tested] >= done[tested])) >= _FOLLOWS * n


def _least_gap_ns(gaps: I64) -> int:
    return int(quantile(gaps, 0.05)) if gaps.size >= _N_QUEUED else _LEAST_GAP_NS


def holding(trace: Trace, blocking: NDArray[np.bool_], launched: I64, begin: int) -> NDArray[np.intp]:
    """The blocking calls that held the host: no driving thread launched meanwhile, and none lies in another."""
    calls, high = trace.calls, trace.window_ns[1]
    rows = np.flatnonzero(blocking)
    start, end = calls.start_ns[rows], calls.end_ns[rows]
    rows = rows[(start >= begin) & (end > start) & (start < high)]
    start, end = calls.start_ns[rows], calls.end_ns[rows]
    is_free = place_among(launched, end) > place_among(launched, start, after=True)
    rows = rows[~is_free]
    reach = np.maximum.accumulate(calls.end_ns[rows])
    is_apart = np.ones(rows.size, np.bool_)
    is_apart[1:] = calls.start_ns[rows[1:]] >= reach[:-1]
    return rows[is_apart]


def waiting(trace: Trace, rows: NDArray[np.intp], end: I64, done: Sequence[I64]) -> tuple[F64, list[F64]]:
    """`o` of calls that return at `end`, and `d` behind each stream, whose work until then is done at `done`.

    A call that returns before a stream is done waits for none of it. What such a call takes stays as it is: it waits
    for earlier work, which host time that is taken out brings forward by no more than the call.
    """
    calls = trace.calls
    allocating = calls.kind[rows] == CallKind.ALLOC
    for_all, is_event = (trace.named(calls.name[rows], pattern) for pattern in (_ALL, _EVENT))
    costs = allocating & ~for_all
    start, length = calls.start_ns[rows], end - calls.start_ns[rows]
    until = np.maximum.reduce([np.where(each <= end, each, start) for each in done])
    is_moment = is_event & (length <= _RELEASE_NS)  # as long as a call that has nothing to wait for
    waited = (until > start) & ~costs & ~is_moment
    own = np.where(waited, end - until, length).astype(np.float64)
    least = np.where(allocating, length, np.minimum(length, _RELEASE_NS))  # it frees after that
    after = np.where(waited, end - until, least)
    is_explained = (done[0] > start) & (done[0] <= end) & (end - done[0] <= _RELEASE_NS)  # by the stream of compute
    is_bound = ~costs & (waited | ~is_event)
    return own, [
        np.where(
            (each <= end) & is_bound & (for_all | ((each == until) & ~is_explained) | (number == 0)), after, -np.inf
        )
        for number, each in enumerate(done)
    ]
