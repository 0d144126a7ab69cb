"""What a pattern is, and what its ranges of the host cost: on a GPU the idle time that they cause and what they launch, on a CPU their length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.patterns.ranges import Ranges
from profkit.findings.kind import FindingKind
from profkit.findings.patterns import FROZEN
from profkit.model.arrays import of_rows, rows_by_value
from profkit.model.intervals import Intervals
from profkit.model.trace import Kind, SpanKind, Spans, Trace
from profkit.timeline import DeviceFacts, Facts
from profkit.timeline.code import Rows
from profkit.timeline.host import enclosing_op

if TYPE_CHECKING:
    from profkit.timeline.code.code import Code


class Pattern(msgspec.Struct, frozen=True):
    """One kind of finding and how its ranges are found; None where the trace cannot tell."""

    kind: FindingKind
    ranges: Callable[[Facts], Ranges | None]
    what: tuple[str, str]
    """One range, and several, in a sentence."""
    fix: Callable[[Facts, Ranges], str] | None = None
    """What to do where that depends on what was found; None: the kind's first fix."""
    is_pause: bool = False
    """Whether the host does nothing for the step meanwhile: else it launches work there."""
    halved: Callable[[Facts], Ranges] | None = None
    """The part of its ranges of which a change spares half at most; None: none."""
    remains: str = ""
    """What the other half is, in a sentence."""
    kept: Callable[[Facts, Ranges], float] | None = None
    """The share (0-1) of its cost that a change leaves; None: none."""
    kept_at_least: Callable[[Facts, Ranges], float] | None = None
    """The same at best, where it is known beside an estimate."""
    title: Callable[[Facts, Ranges], str] | None = None
    """What it is called where that depends on what was found, "" and None: as its kind."""
    proof: Callable[[Facts, Ranges], str] | None = None
    """How to prove it, in the same way."""

    @property
    def spares_work(self) -> bool:
        """Whether a change spares what the host launches in it, not only the host's time."""
        return self.kind.is_about_work or self.kind is FROZEN


def stays_on_cpu(kind: FindingKind) -> Callable[[Facts, Ranges], float]:
    """The share (0-1) of its cost that a change leaves on a CPU, by its threshold; on a GPU none."""
    return lambda facts, _: kind.limit("stays") if facts.cpu is not None else 0.0


def costs_ns(facts: Facts, ranges: Sequence[Ranges], *, spare_work: Sequence[bool]) -> tuple[int, ...]:
    """What each of these sets of ranges takes of the window, ns.

    On a CPU they themselves, without waits for input. On a GPU what the device would idle less without them; where a
    change spares their work as well, also the compute that they launch. Communication and copies would stay.
    """
    covered = [Intervals.of(each.start_ns, each.end_ns).clip(*facts.trace.window_ns) for each in ranges]
    main = facts.main_device
    if main is None:
        return tuple((each - facts.parts["idle_data"]).total_ns for each in covered)
    spared = facts.host_gains_ns(*covered)
    return tuple(
        ns + (_compute(facts.trace, main, each).total_ns if is_work else 0)
        for ns, each, is_work in zip(spared, ranges, spare_work, strict=True)
    )


def rows_of(facts: Facts, code: Code | None, ranges: Ranges, *, spare_work: bool) -> Rows:
    """What such ranges consist of: what launches their work, or what the host does meanwhile."""
    trace, main = facts.trace, facts.main_device
    if main is not None and spare_work:
        mine = _launched_rows(trace, main, ranges)
        return Rows.of_device(trace, mine, trace.gpu.end_ns[mine] - trace.gpu.start_ns[mine])
    covered = Intervals.of(ranges.start_ns, ranges.end_ns).clip(*trace.window_ns)
    taken = covered - facts.parts["idle_data"] if main is None else covered - facts.host.blocked
    found = Rows.empty()
    for thread, mine in rows_by_value(ranges.thread):
        times = Intervals.of(ranges.start_ns[mine], ranges.end_ns[mine]) & taken
        found += Rows.of_host(code, [int(thread)], times) if code is not None else Rows.of_thread(int(thread), times)
    return found


def _compute(trace: Trace, main: DeviceFacts, ranges: Ranges) -> Intervals:
    gpu, mine = trace.gpu, _launched_rows(trace, main, ranges)
    return Intervals.of_rows(gpu, mine).clip(*trace.window_ns)


def _launched_rows(trace: Trace, main: DeviceFacts, ranges: Ranges) -> NDArray[np.intp]:
    """The kernels of compute that are launched inside the ranges."""
    gpu, calls = trace.gpu, trace.calls
    rows = main.activity.rows
    rows = rows[of_rows(gpu.kind, rows) == Kind.COMPUTE]
    rows = of_rows(rows, np.flatnonzero(of_rows(gpu.launch_row, rows) >= 0))
    launch = of_rows(gpu.launch_row, rows)
    order = np.lexsort((-ranges.end_ns, ranges.start_ns))
    table = Spans(
        start_ns=ranges.start_ns[order],
        end_ns=ranges.end_ns[order],
        name=np.zeros(order.size, np.int32),
        kind=np.full(order.size, SpanKind.OTHER, np.int8),
        thread=ranges.thread[order],
    )
    return rows[enclosing_op(table, calls.thread[launch], calls.start_ns[launch]) >= 0]
