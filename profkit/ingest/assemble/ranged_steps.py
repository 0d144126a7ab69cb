"""Steps by the user's own ranges: what recurs at the outermost level of the launching thread, and holds its launches.

People name a pass as they like: "Forward", "batch 12", "train_step", a range for each phase. What tells a step from a
layer is that its ranges hold nearly all launches, lie in no other range that recurs, and do not come back under one
number. Ranges that all lie in one other range that launches beside them are its parts: layers of a single pass.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, distinct, is_one_of, median, place_among
from profkit.model.intervals import Intervals
from profkit.model.names import is_starting
from profkit.model.trace import CallKind, RuntimeCalls, SpanKind, Spans
from profkit.redact.later import later
from profkit.timeline.period import MIN_PERIODS

_NUMBER: Final = later(r"\d+")
_MOST_NAMES: Final = 64
"""Chosen: a job with more names that recur at its outermost level has no phases."""
_LONGEST: Final = 2
"""Times the usual step that the last one, of which no next one shows the end, may take. Chosen."""
_HELD: Final = 0.8
"""Share of the launches between the first range and the last that lie in ranges. Chosen: ranges of layers leave out
more (embeddings, losses, optimizers)."""
_ALIKE: Final = 0.5
"""Share of the steps that have nearly the usual number of launches, and of the usual number of ranges that a phase of
each step has. Chosen."""
_NEAR: Final = 0.2
"""Of the usual number of launches, by which a step may differ. Chosen: a step now and then logs or clips."""
_BESIDE: Final = 0.05
"""Share of the launches of the range around all of them that is beside them, from which they are its parts. Chosen: a
loop launches next to nothing between its steps; of the single passes seen so far the layers leave out 13 %."""
_OF_ONE_LOOP: Final = 0.5
"""Share of the launches in recurring ranges that the ranges of the steps must hold. Chosen: else another loop is most
of the job."""


_OF_THE_MODEL: Final = later(
    r"^(?:FSDP|FullyShardedDataParallel|DistributedDataParallel|nccl|## |Torch-Compiled)"
    r"|layer|block|module|stage|encoder|expert",
    re.IGNORECASE,
)
"""Ranges that count parts of a model, or that a library wrote: no steps, however often they come."""


class _Found(msgspec.Struct, frozen=True):
    start_ns: I64
    end_ns: I64
    phase: NDArray[np.intp]


def ranged_steps(spans: Spans, calls: RuntimeCalls, strings: tuple[str, ...]) -> I64:
    """The edges of steps, int64 ns, in order: n + 1 for n steps; empty where ranges show none."""
    none = np.empty(0, np.int64)
    issues = np.flatnonzero(is_one_of(calls.kind, (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH)))
    if issues.size == 0 or len(spans) == 0:
        return none
    thread = int(np.bincount(calls.thread[issues]).argmax())
    found = _outermost(spans, strings, thread)
    found = None if found is None else _in_turn(found, calls.start_ns[issues])
    if found is None or _are_parts(found, spans, thread, calls.start_ns[issues]):
        return none
    first = int(found.phase[0])
    begins = found.start_ns[found.phase == first]
    if begins.size < MIN_PERIODS:
        return none
    until = begins[-1] + _LONGEST * median(np.diff(begins))
    edges = np.append(begins, found.end_ns[found.start_ns < until].max())
    asked = calls.start_ns[issues]
    asked = asked[(asked >= edges[0]) & (asked < edges[-1])]
    if asked.size == 0 or not _holds(found, asked):
        return none
    counts = np.diff(place_among(asked, edges))
    usual = median(counts)
    is_even = np.abs(counts - usual) <= _NEAR * usual
    return edges if usual and is_even.mean() >= _ALIKE and (counts > 0).all() else none


def _outermost(spans: Spans, strings: tuple[str, ...], thread: int) -> _Found | None:
    """The recurring ranges of a thread that lie in no other recurring one, in order."""
    of_user = is_one_of(spans.kind, (SpanKind.OTHER, SpanKind.LOADER, SpanKind.OPTIMIZER))
    rows = np.flatnonzero((spans.thread == thread) & of_user & (spans.end_ns > spans.start_ns))
    codes, place = np.unique(spans.name[rows], return_inverse=True)
    shapes: dict[str, int] = {}
    shape = np.array([shapes.setdefault(_NUMBER.sub("#", strings[code]), len(shapes)) for code in codes], np.intp)
    if not shapes:
        return None
    n_of_name = np.bincount(place, minlength=codes.size)
    n_of_shape = np.bincount(shape, weights=n_of_name, minlength=len(shapes)).astype(np.int64)
    names_of_shape = np.bincount(shape, minlength=len(shapes))
    starts = np.array([is_starting(one) for one in shapes], np.bool_)
    is_step = ~starts & np.array([not _OF_THE_MODEL.search(one) for one in shapes], np.bool_)
    # of a name with numbers each is one step's: layers come back under their number
    is_counted = (names_of_shape == 1) | (n_of_shape < 2 * names_of_shape)
    wanted = (is_step & is_counted & (n_of_shape >= MIN_PERIODS))[shape[place]]
    of_start = rows[starts[shape[place]]]  # what lies inside a warm-up is of it, whatever its name
    wanted &= ~Intervals.of(spans.start_ns[of_start], spans.end_ns[of_start]).contains(spans.start_ns[rows])
    rows, phase = rows[wanted], shape[place][wanted]
    if rows.size == 0 or distinct(phase).size > _MOST_NAMES:
        return None
    order = np.lexsort((-spans.end_ns[rows], spans.start_ns[rows]))
    rows, phase = rows[order], phase[order]
    reach = np.maximum.accumulate(spans.end_ns[rows])
    outer = np.append(True, spans.start_ns[rows[1:]] >= reach[:-1])
    rows, phase = rows[outer], phase[outer]
    often = np.bincount(phase, minlength=len(shapes))[phase]
    usual = int(often.max())
    kept = often >= _ALIKE * usual  # what comes now and then, a save, is no phase of the step
    return _Found(spans.start_ns[rows[kept]], spans.end_ns[rows[kept]], phase[kept]) if usual >= MIN_PERIODS else None


def _in_turn(found: _Found, asked: I64) -> _Found | None:
    """The ranges of the phases that come in most steps; None where other ones launch more: those of another loop."""
    begins = found.start_ns[found.phase == found.phase[0]]
    step = place_among(begins, found.start_ns, after=True) - 1
    phases = distinct(found.phase)
    n_steps = np.array([distinct(step[found.phase == phase]).size for phase in phases])
    kept = is_one_of(found.phase, phases[n_steps >= _ALIKE * begins.size].tolist())
    if kept.all():
        return found
    own = _Found(found.start_ns[kept], found.end_ns[kept], found.phase[kept])
    n_own, n_all = (int(_inside(one, asked).sum()) for one in (own, found))
    return own if n_own >= _OF_ONE_LOOP * n_all else None


def _are_parts(found: _Found, spans: Spans, thread: int, asked: I64) -> bool:
    """Whether all ranges lie in one other range of the thread that launches beside them."""
    low, high = int(found.start_ns.min()), int(found.end_ns.max())
    around = np.flatnonzero((spans.thread == thread) & (spans.start_ns <= low) & (spans.end_ns >= high))
    if around.size == 0:
        return False
    inner = around[(spans.end_ns - spans.start_ns)[around].argmin()]
    asked = asked[(asked >= spans.start_ns[inner]) & (asked < spans.end_ns[inner])]
    return asked.size > 0 and bool((~_inside(found, asked)).mean() >= _BESIDE)


def _inside(found: _Found, asked: I64) -> NDArray[np.bool_]:
    """Which launches lie in the ranges."""
    place = place_among(found.start_ns, asked, after=True) - 1
    inside: NDArray[np.bool_] = (place >= 0) & (asked < found.end_ns[np.maximum(place, 0)])
    return inside


def _holds(found: _Found, asked: I64) -> bool:
    """Whether nearly all launches lie in the ranges."""
    return bool(_inside(found, asked).mean() >= _HELD)
