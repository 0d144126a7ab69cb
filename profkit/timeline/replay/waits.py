"""The calls that hold the host, and how long after the device they let it go."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, place_among
from profkit.model.trace import CallKind, Trace
from profkit.redact.later import later
from profkit.timeline.replay.clocks import F64

_RELEASE_NS: Final = 10_000
"""How long after the device a call returns at most, where it did not wait here but would in the replay. Chosen: the
default launch latency; calls on an idle device take 2 to 10 us."""
_ALL: Final = later("DeviceSynchronize|CtxSynchronize|free", re.IGNORECASE)
"""Calls that wait for every stream. Of others it is known only of the stream that they outlast."""
_EVENT: Final = later("Event", re.IGNORECASE)
"""Calls that wait for work given before an event: where they did not wait, that may be long ago."""


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
