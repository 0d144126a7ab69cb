"""What the time before launches consists of: moments of the host, for the places in the user's code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from profkit.analyzers.launches.measured import Launches
from profkit.findings.host import LAUNCH_BOUND, STALL
from profkit.model.intervals import Intervals
from profkit.timeline import DeviceFacts, Facts
from profkit.timeline.code import Rows
from profkit.timeline.cpu import training_threads
from profkit.timeline.idle import ending_rows

if TYPE_CHECKING:
    from profkit.timeline.code.code import Code


def rows_of(facts: Facts, _: Launches) -> Mapping[str, Rows]:
    """What the host does in the time that `host.launch_bound` and `host.stall` are about."""
    main, code = facts.main_device, facts.code
    if code is None:
        return {}
    if main is None:
        rows = _of_cpu(facts, code)
        return {LAUNCH_BOUND.id: rows, STALL.id: rows}
    late = _before_launches(facts, main, code)
    return {LAUNCH_BOUND.id: late, STALL.id: late + _during(facts, main, code, main.idle.sync)}


def _of_cpu(facts: Facts, code: Code) -> Rows:
    """Dispatch, and what lies between operators."""
    assert facts.cpu is not None  # noqa: S101 - called only without a device
    cpu = facts.cpu
    between = (cpu.operators | cpu.data | cpu.comm | cpu.compute).gaps(*facts.trace.window_ns)
    return Rows.of_host(code, _with_work(facts), between | cpu.dispatch)


def _with_work(facts: Facts) -> tuple[int, ...]:
    """The training thread with most operators: several at a time would count the same time twice."""
    threads = training_threads(facts.trace)
    counts = np.bincount(facts.trace.ops.thread, minlength=max(threads, default=0) + 1)
    return tuple(sorted(threads, key=lambda thread: -int(counts[thread]))[:1])


def _before_launches(facts: Facts, main: DeviceFacts, code: Code) -> Rows:
    """The time in which a launch was being made stands for that launch, the rest for what the host did in it."""
    trace = facts.trace
    gaps = main.activity.any.gaps(*trace.window_ns)
    row = ending_rows(trace, main.activity, gaps.end_ns)
    launch = np.where(row >= 0, trace.gpu.launch_row[row], -1) if len(trace.gpu) else row
    making = (main.idle.launch - main.idle.turnaround).covered_ns(gaps.start_ns, gaps.end_ns)
    return Rows.of_calls(trace, launch, making) + _during(facts, main, code, main.idle.host)


def _during(facts: Facts, main: DeviceFacts, code: Code, times: Intervals) -> Rows:
    """Times of the threads that make the launches which end these gaps; what no launch ends is the main one's."""
    trace = facts.trace
    gaps = main.activity.any.gaps(*trace.window_ns)
    row = ending_rows(trace, main.activity, gaps.end_ns)
    launch = np.where(row >= 0, trace.gpu.launch_row[row], -1) if len(trace.gpu) else row
    if len(trace.calls) == 0 or not times:
        return Rows.of_host(code, (), times)
    usual = int(np.bincount(trace.calls.thread[launch[launch >= 0]], minlength=1).argmax())
    thread = np.where(launch >= 0, trace.calls.thread[np.maximum(launch, 0)], usual)
    rows = Rows.of_host(code, (), times)
    for one in np.flatnonzero(np.bincount(thread)).tolist():
        mine = Intervals(gaps.start_ns[thread == one], gaps.end_ns[thread == one])
        rows += Rows.of_host(code, (one,), times & mine)
    return rows
