"""What a device holds at its peak, by kind: gradients, activations, ... told by when memory was allocated and freed.

The trace does not say what a block of memory is for. When it was allocated and when it was freed does: what forward
allocates and backward frees was kept for backward, what backward allocates and the optimizer still finds is a gradient.
What neither tells is unknown: no kind is guessed from a size or a name.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, Bool, place_among
from profkit.model.trace import I32, SpanKind, Spans, Trace
from profkit.timeline.allocations import Pool
from profkit.timeline.code.phases import Backward
from profkit.timeline.host import enclosing_op

_NEVER: Final = np.iinfo(np.int64).max
_ZERO_GRAD: Final = "Optimizer.zero_grad#"
_SAME: Final = 0.01
"""By which the gradients of two steps may differ in size and count as all of them. Chosen: of a step that was recorded
from its middle on they differ by more."""
_LEAST_PASSES: Final = 2


class MemoryKind(StrEnum):
    """What memory is held for, in the order of reports."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer state"
    ACTIVATIONS = "activations"
    TEMPORARY = "temporary"
    OTHER = "other"
    UNKNOWN = "unknown"


_PLACE: Final = {kind: place for place, kind in enumerate(MemoryKind)}
_GRADIENTS, _OPTIMIZER = _PLACE[MemoryKind.GRADIENTS], _PLACE[MemoryKind.OPTIMIZER]
_ACTIVATIONS, _TEMPORARY = _PLACE[MemoryKind.ACTIVATIONS], _PLACE[MemoryKind.TEMPORARY]
_OTHER, _UNKNOWN = _PLACE[MemoryKind.OTHER], _PLACE[MemoryKind.UNKNOWN]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the peak."""

    kind: MemoryKind
    n: int | None
    """Allocations; None where only a sum is known."""
    n_bytes: int


class Lives(msgspec.Struct, frozen=True, kw_only=True):
    """What tells when memory was needed: the nodes of the backward pass, and what the optimizers do."""

    backward: Backward
    nodes_ns: I64
    """When the nodes begin, in order."""
    steps: Spans
    """Steps of optimizers."""
    steps_ns: I64
    zeroing: Spans
    """Where gradients are set to zero, or freed."""
    begins_ns: I64
    """Of the marked steps, in order."""

    @classmethod
    def of(cls, trace: Trace, backward: Backward) -> Self:
        """What a trace and its backward pass tell."""
        spans = trace.spans
        steps = spans.take(np.flatnonzero(spans.kind == SpanKind.OPTIMIZER))
        return cls(
            backward=backward,
            nodes_ns=np.sort(trace.ops.start_ns[backward.rows]),
            steps=steps,
            steps_ns=np.sort(steps.start_ns),
            zeroing=spans.take(np.flatnonzero(trace.named(spans.name, _ZERO_GRAD))),
            begins_ns=np.sort(np.array([step.start_ns for step in trace.steps], np.int64)),
        )

    def in_backward(self, thread: I32, at_ns: I64) -> Bool:
        """Which moments lie in the backward pass."""
        return self.backward.at(thread, at_ns) >= 0

    def kinds(self, pool: Pool, rows: NDArray[np.intp]) -> NDArray[np.int8]:
        """The kind (its place among all) of each of these allocations of a pool, whose ends are known."""
        assert pool.ended is not None  # noqa: S101 - asked for held memory only
        at, thread, ended = pool.start_ns[rows], pool.thread[rows], pool.ended[rows]
        is_freed = ended < pool.start_ns.size
        end = np.minimum(ended, pool.start_ns.size - 1)
        freed_ns = np.where(is_freed, pool.start_ns[end], _NEVER)
        begun, ends = self.in_backward(thread, at), is_freed & self.in_backward(pool.thread[end], pool.start_ns[end])
        stepping = ~begun & _inside(self.steps, thread, at)
        next_step, next_node = _next(self.steps_ns, at), _next(self.nodes_ns, at)
        is_done = _next(self.steps_ns, np.minimum(next_node, _NEVER - 1)) < _NEVER  # the pass after it, and its step
        found = np.full(rows.size, _UNKNOWN, np.int8)
        ahead = ~begun & ~stepping
        found[ahead & (is_freed | is_done)] = _OTHER
        is_here = place_among(self.begins_ns, at, after=True) == place_among(self.begins_ns, freed_ns, after=True)
        found[ahead & is_freed & is_here & (freed_ns <= next_node)] = _TEMPORARY
        found[ahead & ends] = _ACTIVATIONS
        stays = (next_step < _NEVER) & (freed_ns > next_step) & ~ends
        found[begun & is_freed & ~stays & (ends | (next_step < _NEVER))] = _TEMPORARY
        is_gradient = begun & stays
        found[is_gradient] = _GRADIENTS
        # zero_grad frees gradients: what is still there in the next backward pass is none, as a workspace of cuBLAS
        if is_gradient.any() and self.frees_gradients(pool):
            again = _next(self.nodes_ns, _next(np.sort(self.zeroing.start_ns), next_step))
            found[is_gradient & (freed_ns > again)] = _OTHER
        is_same_step = place_among(self.steps_ns, freed_ns, after=True) == place_among(self.steps_ns, at, after=True)
        in_step = is_freed & _inside(self.steps, pool.thread[end], pool.start_ns[end])
        found[stepping] = _OTHER
        found[stepping & (~is_freed | (in_step & ~is_same_step))] = _OPTIMIZER
        found[stepping & in_step & is_same_step] = _TEMPORARY
        return found

    def frees_gradients(self, pool: Pool) -> bool:
        """Whether memory is freed where gradients are set to zero: by default they are."""
        rows = np.flatnonzero(pool.n_bytes < 0)
        return bool(_inside(self.zeroing, pool.thread[rows], pool.start_ns[rows]).any())

    def earlier(self, pool: Pool, peak: int) -> dict[MemoryKind, tuple[int, int]]:
        """How many blocks, and bytes, of what was allocated before the recording and freed after the peak."""
        assert pool.ended is not None  # noqa: S101 - asked for held memory only
        is_lost = pool.n_bytes < 0
        is_lost[pool.ended[(pool.n_bytes > 0) & (pool.ended < pool.start_ns.size)]] = False
        is_lost[: peak + 1] = False
        rows = np.flatnonzero(is_lost)
        thread, at = pool.thread[rows], pool.start_ns[rows]
        zeroed, ends = _inside(self.zeroing, thread, at), self.in_backward(thread, at)
        sizes = -pool.n_bytes[rows]
        return {
            MemoryKind.GRADIENTS: (int(zeroed.sum()), int(sizes[zeroed].sum())),
            MemoryKind.ACTIVATIONS: (int((ends & ~zeroed).sum()), int(sizes[ends & ~zeroed].sum())),
        }

    def gradient_bytes(self, pool: Pool) -> int | None:
        """What the gradients of all parameters take; None where steps do not agree on it.

        That is also what these parameters take: torch gives a gradient the shape and the type of its parameter.
        """
        rows = np.flatnonzero(pool.n_bytes > 0)
        rows = rows[self.in_backward(pool.thread[rows], pool.start_ns[rows])]
        rows = rows[self.kinds(pool, rows) == _GRADIENTS]
        each = np.bincount(place_among(self.steps_ns, pool.start_ns[rows]), pool.n_bytes[rows])
        each = each[each > 0]
        if each.size < _LEAST_PASSES or each.max() > (1 + _SAME) * each.min():
            return None
        return int(each.min())


def parts_of(pool: Pool, peak: int, earlier_bytes: int, lives: Lives) -> tuple[Part, ...]:
    """The parts of a peak by kind; they add up to it. `earlier_bytes` of it lived when the recording began."""
    rows = pool.held(peak)
    kind = lives.kinds(pool, rows)
    n = {each: int((kind == place).sum()) for place, each in enumerate(MemoryKind)}
    size = {each: int(pool.n_bytes[rows[kind == place]].sum()) for place, each in enumerate(MemoryKind)}
    left = earlier_bytes
    for each, (count, n_bytes) in lives.earlier(pool, peak).items():
        if n_bytes <= left:
            n[each], size[each], left = n[each] + count, size[each] + n_bytes, left - n_bytes
    parameters = lives.gradient_bytes(pool) if left else None
    if parameters is not None and parameters <= left:
        size[MemoryKind.PARAMETERS], left = size[MemoryKind.PARAMETERS] + parameters, left - parameters
    size[MemoryKind.UNKNOWN] += left
    bare = {MemoryKind.PARAMETERS} | ({MemoryKind.UNKNOWN} if left else set())
    return tuple(
        Part(kind=each, n=None if each in bare else n[each], n_bytes=size[each]) for each in MemoryKind if size[each]
    )


def _next(at_ns: I64, after_ns: I64) -> I64:
    """The first of these moments, in order, not before each of those; `_NEVER` for none."""
    place = place_among(at_ns, after_ns)
    return np.append(at_ns, _NEVER)[place]


def _inside(spans: Spans, thread: I32, at_ns: I64) -> Bool:
    inside: Bool = enclosing_op(spans, thread, at_ns) >= 0 if len(spans) else np.zeros(at_ns.size, np.bool_)
    return inside
