"""The work row by row, and how often and how long each name comes: kernels, copies, calls, ranges, CPU samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, is_one_of, of_rows
from profkit.model.intervals import Intervals
from profkit.model.trace import CpuOps, Kind, Spans, Trace
from profkit.timeline.cpu import training_threads
from profkit.timeline.facts import Facts
from profkit.timeline.host import self_times_ns
from profkit.timeline.launch_order import placed_ns
from profkit.timeline.steps import step_of

TABLES: Final = ("kernels", "copies", "calls", "waits", "ranges", "operators")


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of one name; `share` (0-1) is of the time of all rows of its table, times are ns."""

    name: str
    n: int
    share: float
    total_ns: int
    mean_ns: float
    median_ns: float
    min_ns: int
    max_ns: int
    stddev_ns: float
    """Of the rows as a sample (n - 1); 0 of one row."""


def first_ns(trace: Trace) -> int:
    """When the first row of any table begins; 0 without rows."""
    starts = [int(start.min()) for _, (_, start, _) in _tables(trace) if start.size]
    return min(starts, default=0)


def totals(trace: Trace, between_ns: tuple[int, int] | None = None) -> Mapping[str, tuple[Total, ...]]:
    """The names of each table (`TABLES`) that has rows, the largest total first.

    `between_ns` takes the rows that begin in this stretch (first included, last not), counted from `first_ns`.
    """
    low, high = between_ns if between_ns is not None else (0, 0)
    origin = first_ns(trace)
    found: dict[str, tuple[Total, ...]] = {}
    for table, (names, start, end) in _tables(trace):
        inside = (start - origin >= low) & (start - origin < high) if between_ns is not None else slice(None)
        if names[inside].size:
            each = _of_names(trace, names[inside], (end - start)[inside])
            found[table] = tuple(sorted(each, key=lambda one: -one.total_ns))
    return found


_Columns = tuple[NDArray[np.int32], I64, I64]


def _tables(trace: Trace) -> Iterable[tuple[str, _Columns]]:
    gpu = trace.gpu
    copies = gpu.kind == Kind.COPY
    for table, rows in (("kernels", ~copies), ("copies", copies)):
        yield table, (gpu.name[rows], gpu.start_ns[rows], gpu.end_ns[rows])
    host: dict[str, Spans | CpuOps] = {
        "calls": trace.calls,
        "waits": trace.waits,
        "ranges": trace.spans,
        "operators": trace.ops,
    }
    for table, one in host.items():
        yield table, (one.name, one.start_ns, one.end_ns)


def _of_names(trace: Trace, names: NDArray[np.int32], duration: I64) -> Iterable[Total]:
    """One `Total` for each name; durations are sorted within names, so that medians are places."""
    order = np.lexsort((duration, names))
    names, duration = names[order], duration[order]
    edges = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), names.size]
    whole = float(duration.sum(dtype=np.float64))
    for first, last in pairwise(edges):
        mine = duration[first:last]
        total, n = int(mine.sum()), last - first
        yield Total(
            name=trace.name(int(names[first])),
            n=n,
            share=total / whole if whole else 0.0,
            total_ns=total,
            mean_ns=total / n,
            median_ns=(int(mine[(n - 1) // 2]) + int(mine[n // 2])) / 2,
            min_ns=int(mine[0]),
            max_ns=int(mine[-1]),
            stddev_ns=float(np.std(mine.astype(np.float64), ddof=1)) if n > 1 else 0.0,
        )


class Work(msgspec.Struct, frozen=True):
    """Kernels, or on a CPU the operators' own times, inside the window, in start order; shape (n,) each."""

    name: NDArray[np.int32]
    lane: NDArray[np.int64]
    step: NDArray[np.int32]
    duration_ns: NDArray[np.int64]
    launch: NDArray[np.int64]
    """The runtime call of each; empty on a CPU."""
    at_ns: NDArray[np.int64]
    is_cpu: bool


def device_work(facts: Facts) -> Work:
    """The kernels of the busiest device, in streams."""
    main = facts.main_device
    assert main is not None  # noqa: S101
    gpu = facts.trace.gpu
    rows = main.activity.rows[of_rows(gpu.kind, main.activity.rows) == Kind.COMPUTE]
    low, high = facts.trace.window_ns
    duration = np.minimum(gpu.end_ns[rows], high) - np.maximum(gpu.start_ns[rows], low)
    step = step_of(placed_ns(facts.trace, rows), facts.trace.steps)
    launch, at_ns, own = gpu.launch_row[rows], gpu.start_ns[rows], np.maximum(duration, 0)
    return Work(gpu.name[rows], gpu.stream[rows], step, own, launch, at_ns, is_cpu=False)


def cpu_work(facts: Facts) -> Work:
    """The operators of the training threads, in threads, without what dispatching each costs."""
    assert facts.cpu is not None  # noqa: S101
    trace = facts.trace
    low, high = trace.window_ns
    ops = trace.ops.take(np.flatnonzero(is_one_of(trace.ops.thread, training_threads(trace))))
    own = self_times_ns(ops)
    keep = (ops.start_ns >= low) & (ops.end_ns <= high) & ~facts.cpu.data.contains(ops.start_ns)
    own = np.maximum(own - facts.cpu.op_cost_ns, 0)
    keep &= own > 0
    step = step_of(ops.start_ns[keep], trace.steps)
    lane, none = ops.thread[keep].astype(np.int64), np.empty(0, np.int64)
    return Work(ops.name[keep], lane, step, own[keep], none, ops.start_ns[keep], is_cpu=True)


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of one thread in one function; "" where the trace does not say."""

    thread: str
    """Its name, else its id."""
    function: str
    module: str
    caller: str
    """The innermost function of the program's own around it, or the function itself: `fill (simulation)`."""
    n: int
    share: float
    """Of all samples that were asked for, 0-1."""

    @property
    def words(self) -> str:
        """The function and its module, or what is known of them: `fill (simulation)`."""
        if self.function and self.module:
            return f"{self.function} ({self.module})"
        return self.function or self.module or "no call chain"


def sampled(
    trace: Trace, *, threads: Sequence[int] | None = None, during: Intervals | None = None
) -> tuple[Sampled, ...]:
    """The samples of these threads (None: all) in that time (None: always), by thread and function, the most first."""
    samples = trace.samples
    chosen = np.ones(len(samples), np.bool_) if threads is None else np.isin(samples.thread, tuple(threads))
    if during is not None:
        chosen &= during.contains(samples.start_ns)
    rows = np.flatnonzero(chosen)
    if rows.size == 0:
        return ()
    keys = np.stack([column[rows] for column in (samples.thread, samples.name, samples.module, samples.caller)])
    kinds, counts = np.unique(keys, axis=1, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return tuple(
        Sampled(
            thread=trace.threads[thread].name or trace.threads[thread].tid,
            function=trace.name(function),
            module=trace.name(module),
            caller=trace.name(caller),
            n=int(n),
            share=int(n) / rows.size,
        )
        for (thread, function, module, caller), n in zip(kinds.T[order].tolist(), counts[order], strict=True)
    )


def waiting_samples(facts: Facts) -> tuple[Sampled, ...]:
    """The samples of the launching threads while the busiest device waits for a launch; on a CPU, between operators."""
    trace, main, cpu = facts.trace, facts.main_device, facts.cpu
    if len(trace.samples) == 0:
        return ()
    if main is not None:
        return sampled(trace, threads=facts.host.threads, during=main.idle.launch | main.idle.host)
    assert cpu is not None  # noqa: S101 - as in `Facts.budget`
    busy = cpu.operators | cpu.data | cpu.comm | cpu.compute | cpu.dispatch
    return sampled(trace, threads=training_threads(trace), during=busy.gaps(*trace.window_ns))
