"""Launches, their lag, and the idle time they leave, of a device or of a CPU; and what that time consists of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from profkit.analyzers.base import Scope, before_launches, busiest_thread, launched_by_operators, scope_of
from profkit.findings.host import LAUNCH_BOUND, STALL
from profkit.model.arrays import median, middle, of_rows, place_among
from profkit.model.intervals import Intervals
from profkit.model.names import is_inductors
from profkit.model.trace import CallKind, Kind, SpanKind, Trace
from profkit.timeline import DeviceFacts, Facts, IdlePlaces
from profkit.timeline.code import Rows
from profkit.timeline.cpu import training_threads
from profkit.timeline.first_use import first_use
from profkit.timeline.host import os_waits
from profkit.timeline.period import repeats
from profkit.timeline.scheduled import cored_share
from profkit.timeline.steps import edges, steps_in_window
from profkit.timeline.totals import Sampled, waiting_samples

if TYPE_CHECKING:
    from profkit.timeline.code.code import Code

_ALIKE: Final = 0.5
"""Chosen: stretches of one cause differ by less from step to step, a start-up from what follows it by more."""
_STEADY: Final = 2 / 3
"""Chosen: what single ones of these stretches have beyond the median is a third of their time or less."""
_WORTH_APART: Final = 0.02
"""Of the window: less changes no verdict. Chosen: as the least severity."""
_LITTLE: Final = 0.25
"""Of the window: what is judged apart changes nothing of the rest. Chosen: as the start-up that a window may hold."""
_MOST_UNKNOWN: Final = 0.5
"""Of the window. Chosen: more than half unknown shows no job."""
_MOST_ONCE: Final = 1
"""One step cannot show that something recurs."""


class Apart(msgspec.Struct, frozen=True, kw_only=True):
    """Late time that is start-up or single events, and the late time beside it, ns."""

    total_ns: int
    known: tuple[tuple[str, int], ...]
    """The part of it in which the host does what is done once, by what that is; the largest first."""
    launch_ns: int
    host_ns: int
    gain_ns: int | None
    """By how much the window would be shorter if the host took no time for its own work beside it; None on a CPU."""
    repeats: bool
    """Whether the work beside it repeats."""

    @property
    def unknown_ns(self) -> int:
        """The part of it of which the trace does not say what it is."""
        return max(self.total_ns - sum(ns for _, ns in self.known), 0)

    def shows_the_job(self, window_ns: int) -> bool:
        """Whether what lies beside it is enough, and repeats or is nearly all, so that it shows how the job goes on.

        Single stalls of which nobody knows what they are must leave half of the window.
        """
        is_little = self.total_ns <= _LITTLE * window_ns > 0
        return (self.repeats or is_little) and self.unknown_ns <= _MOST_UNKNOWN * window_ns


class Launches(msgspec.Struct, frozen=True, kw_only=True):
    """How work is issued. On a CPU-only trace an "operation" is a leaf operator and its cost is estimated."""

    scope: Scope
    n_operations: int
    n_launch_calls: int
    n_graph_launches: int = 0
    n_drained: int
    rho_count: float | None
    rho_time: float | None = None
    floor_p5_ns: int | None = None
    floor_median_ns: int | None = None
    launch_idle_ns: int
    """Without `turnaround_ns`: what the host cannot shorten by being faster."""
    host_idle_ns: int
    sync_idle_ns: int = 0
    data_idle_ns: int
    median_kernel_ns: int
    shorter_than_launch: float | None = None
    """Share of kernels that end sooner than their own launch call takes."""
    few_gaps_share: float
    """Share of launch, host and sync idle time in its three longest stretches."""
    each_step_share: float
    """Share of it in the longest stretch of each step, where these are alike; 0 where some step has none like it."""
    longest_gap_ns: tuple[int, int]
    top_operators: tuple[tuple[str, int, int], ...] = ()
    """(operator, launches, device ns) with the most launches."""
    op_cost_ns: int = 0
    one_stretch_ns: int = 0
    """The time of the stretches of `each_step_share`, on a CPU."""
    has_ops: bool = True
    """Whether dispatch can be told from other host work."""
    turnaround_ns: int = 0
    """Idle time between operations that had been issued in time."""
    gain_ns: int | None = None
    """By how much the window would be shorter if the host took no time for its own work; None on a CPU."""
    unasked_ns: int = 0
    """Communication alone under which the host, not held, had not launched the next compute."""
    places: IdlePlaces = IdlePlaces()
    """Where the device is idle."""
    os_waits: tuple[tuple[str, int], ...] = ()
    """(call of the operating system, ns) of the launching threads in `host_idle_ns`."""

    samples: tuple[Sampled, ...] = ()
    """CPU samples of the launching threads while the device waits for a launch; on a CPU, between operators."""
    is_beside: bool = False
    """Whether the idle time is that beside what is judged apart."""
    apart: Apart | None = None
    """What of the late time is no cost of launches: first use, and the three longest stretches where they are it."""

    trains: bool = False
    """Whether the trace shows a backward pass or an optimizer."""
    cored: float = 1.0
    """On a CPU the share (0-1) of the recorded time in which the training thread did not wait for a core: the rest is
    no cost of launches."""
    is_compiled: bool = False
    """Whether kernels or calls show that torch.compile made some of it."""

    @property
    def hidden_ns(self) -> int:
        """Communication alone that hides the host: without the host's own time the window is so much shorter, too."""
        saved_ns = (self.gain_ns or 0) - self.launch_idle_ns - self.host_idle_ns
        return min(max(saved_ns, 0), self.unasked_ns)

    @property
    def late_ns(self) -> int:
        """All that the host's own time costs: idle time, and communication alone that hides the rest."""
        return self.launch_idle_ns + self.host_idle_ns + self.hidden_ns

    @property
    def waits_for_system(self) -> bool:
        """Whether most of `host_idle_ns` is in calls of the operating system."""
        return 2 * sum(spent for _, spent in self.os_waits) > self.host_idle_ns > 0


def measure(facts: Facts) -> Launches:
    """Count launches and the idle time between them."""
    return _measure_cpu(facts) if facts.cpu is not None else _measure_device(facts)


def _measure_device(facts: Facts) -> Launches:
    main = facts.main_device
    assert main is not None  # noqa: S101 - called only with a device
    trace, queue = facts.trace, main.queue
    late = main.idle.launch | main.idle.host | main.idle.sync
    share, longest = _concentration(late)
    worst_step, each_step = _worst_step_share(facts, late), _each_step_share(facts, late)
    few = _longest(late) if _is_one_off(facts.n_steps, share, worst_step, each_step) else Intervals.empty()
    apart = _apart(facts, late, few)
    del late
    rows = main.activity.rows
    kernels = rows[of_rows(trace.gpu.kind, rows) == Kind.COMPUTE]
    duration = trace.gpu.end_ns[kernels] - trace.gpu.start_ns[kernels]
    launch = trace.gpu.launch_row[kernels]
    linked = launch >= 0
    linked[linked] &= trace.calls.kind[launch[linked]] != CallKind.GRAPH_LAUNCH  # one call for many kernels
    call = trace.calls.end_ns[launch[linked]] - trace.calls.start_ns[launch[linked]]
    return Launches(
        scope=scope_of(facts),
        n_operations=int(rows.size),
        n_launch_calls=int(facts.calls_in_window(CallKind.LAUNCH).size),
        n_graph_launches=int(facts.calls_in_window(CallKind.GRAPH_LAUNCH).size),
        n_drained=queue.n_drained,
        rho_count=queue.rho_count,
        rho_time=queue.rho_time,
        floor_p5_ns=queue.floor_p5_ns,
        floor_median_ns=queue.floor_median_ns,
        launch_idle_ns=main.budget.idle_launch - main.idle.turnaround.total_ns,
        turnaround_ns=main.idle.turnaround.total_ns,
        host_idle_ns=main.budget.idle_host,
        sync_idle_ns=main.budget.idle_sync,
        data_idle_ns=main.budget.idle_data,
        median_kernel_ns=median(duration) if duration.size else 0,
        shorter_than_launch=float((duration[linked] < call).mean()) if call.size else None,
        few_gaps_share=share,
        each_step_share=each_step,
        longest_gap_ns=longest,
        top_operators=_top_operators(facts),
        has_ops=facts.host.has_ops,
        gain_ns=main.gains.host_ns,
        unasked_ns=main.unasked.total_ns,
        places=main.places,
        os_waits=os_waits(trace, facts.host.threads, main.idle.host),
        samples=waiting_samples(facts),
        apart=apart,
        trains=facts.trains,
        is_compiled=_is_compiled(trace),
    )


def _is_compiled(trace: Trace) -> bool:
    return bool((trace.spans.kind == SpanKind.COMPILED).any()) or any(map(is_inductors, trace.strings))


def _is_one_off(n_steps: int, few_gaps: float, worst_step: float, each_step: float) -> bool:
    """Whether a few long stretches hold the late time: start-up, compilation, a checkpoint; not launch cost.

    Not where each step has one: what comes in every step is steady, in few steps too.
    """
    is_short = n_steps < 2 * STALL.limit("stretches")
    most = STALL.limit("one_off")
    return few_gaps >= most and (is_short or worst_step >= most) and each_step < most


def _longest(late: Intervals) -> Intervals:
    """The few longest stretches."""
    rows = np.sort(np.argsort(-late.lengths_ns, kind="stable")[: int(STALL.limit("stretches"))])
    return Intervals(late.start_ns[rows], late.end_ns[rows])


def _apart(facts: Facts, late: Intervals, few: Intervals) -> Apart | None:
    """What to judge apart from the cost of launches; None for nothing that shows."""
    trace, main = facts.trace, facts.main_device
    used = first_use(trace, facts.op_of_call)
    apart = few | (used.any & late) if used is not None else few
    if apart.total_ns < _WORTH_APART * facts.window_ns:
        return None
    known = [(words, (times & apart).total_ns) for words, times in used.kinds] if used is not None else []
    parts = facts.parts
    host = main.idle.host if main is not None else late - parts["idle_launch"]
    launch = parts["idle_launch"] - main.idle.turnaround if main is not None else parts["idle_launch"]
    beside = (apart | facts.host.loader).gaps(*trace.window_ns)
    return Apart(
        total_ns=apart.total_ns,
        known=tuple(sorted((one for one in known if one[1]), key=lambda one: -one[1])),
        launch_ns=(launch - apart).total_ns,
        host_ns=(host - apart).total_ns,
        gain_ns=facts.host_gains_ns(beside)[0] if main is not None else None,
        repeats=_repeats(facts),
    )


def _repeats(facts: Facts) -> bool:
    """Whether there are several steps, or the kernels repeat."""
    trace, main = facts.trace, facts.main_device
    if len(steps_in_window(trace)) > _MOST_ONCE:
        return True
    if main is None:
        return False
    rows = main.activity.rows[of_rows(trace.gpu.kind, main.activity.rows) == Kind.COMPUTE]
    return repeats(trace.gpu.name[rows])


def _measure_cpu(facts: Facts) -> Launches:
    cpu = facts.cpu
    assert cpu is not None  # noqa: S101 - called only without a device
    idle = cpu.operators | cpu.data | cpu.comm | cpu.compute
    between = idle.gaps(*facts.trace.window_ns)
    share, longest = _concentration(between)
    worst_step, each_step = _worst_step_share(facts, between), _each_step_share(facts, between)
    few = _longest(between) if _is_one_off(facts.n_steps, share, worst_step, each_step) else Intervals.empty()
    return Launches(
        scope=scope_of(facts),
        n_operations=cpu.n_leaf_ops,
        n_launch_calls=int(facts.calls_in_window(CallKind.LAUNCH).size),
        n_drained=cpu.n_small_ops,
        rho_count=cpu.n_small_ops / cpu.n_leaf_ops if cpu.n_leaf_ops else None,
        launch_idle_ns=facts.budget.idle_launch,
        host_idle_ns=facts.budget.idle_host,
        data_idle_ns=facts.budget.idle_data,
        median_kernel_ns=cpu.op_cost_ns,
        few_gaps_share=share,
        each_step_share=each_step,
        longest_gap_ns=longest,
        op_cost_ns=cpu.op_cost_ns,
        one_stretch_ns=round(each_step * between.total_ns),
        os_waits=os_waits(facts.trace, training_threads(facts.trace), between - cpu.dispatch),
        samples=waiting_samples(facts),
        apart=_apart(facts, between, few),
        cored=cored_share(facts.trace),
        trains=facts.trains,
        is_compiled=_is_compiled(facts.trace),
    )


def _concentration(late: Intervals) -> tuple[float, tuple[int, int]]:
    length = late.lengths_ns
    total = int(length.sum())
    if total == 0:
        return 0.0, (0, 0)
    worst = int(length.argmax())
    top = np.sort(length)[-int(STALL.limit("stretches")) :]
    return float(top.sum() / total), (int(late.start_ns[worst]), int(late.end_ns[worst]))


def _worst_step_share(facts: Facts, late: Intervals) -> float:
    """The share that the worst step has, with what follows it until the next begins."""
    start, _ = edges(steps_in_window(facts.trace))
    per_step = late.covered_ns(start, np.append(start[1:], facts.trace.window_ns[1:])[: start.size])
    return float(per_step.max() / late.total_ns) if per_step.size and late.total_ns else 0.0


def _each_step_share(facts: Facts, late: Intervals) -> float:
    """The share that the longest stretch of each step has together, 0 where they are not alike.

    Alike: each is half as long as their median or longer, and what single ones have beyond it is a third of all or less:
    one step that was held up does not make what comes in every step a single event.
    """
    start, _ = edges(steps_in_window(facts.trace))
    if start.size <= _MOST_ONCE or not late:
        return 0.0
    place = place_among(start, late.start_ns, after=True) - 1
    longest = np.zeros(start.size, np.int64)
    np.maximum.at(longest, place[place >= 0], (late.end_ns - late.start_ns)[place >= 0])
    usual = middle(longest)
    steady = np.minimum(longest, usual).sum()
    is_alike = longest.min() >= _ALIKE * usual and steady >= _STEADY * longest.sum()
    return float(longest.sum() / late.total_ns) if is_alike else 0.0


def _top_operators(facts: Facts) -> tuple[tuple[str, int, int], ...]:
    main = facts.main_device
    assert main is not None  # noqa: S101
    names, spent = launched_by_operators(facts, main)
    counts = np.bincount(names, minlength=1)
    order = np.argsort(-counts, kind="stable")[:3]
    return tuple(
        (facts.trace.name(code), int(counts[code]), int(spent[names == code].sum())) for code in order if counts[code]
    )


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
    return Rows.of_host(code, busiest_thread(facts, training_threads(facts.trace)), between | cpu.dispatch)


def _before_launches(facts: Facts, main: DeviceFacts, code: Code) -> Rows:
    """The time in which a launch was being made stands for that launch, the rest for what the host did in it."""
    gaps, launch = before_launches(facts, main)
    making = (main.idle.launch - main.idle.turnaround).covered_ns(gaps.start_ns, gaps.end_ns)
    return Rows.of_calls(facts.trace, launch, making) + _during(facts, main, code, main.idle.host)


def _during(facts: Facts, main: DeviceFacts, code: Code, times: Intervals) -> Rows:
    """Times of the threads that make the launches which end these gaps; what no launch ends is the main one's."""
    trace, (gaps, launch) = facts.trace, before_launches(facts, main)
    if len(trace.calls) == 0 or not times:
        return Rows.of_host(code, (), times)
    usual = int(np.bincount(trace.calls.thread[launch[launch >= 0]], minlength=1).argmax())
    thread = np.where(launch >= 0, trace.calls.thread[np.maximum(launch, 0)], usual)
    rows = Rows.of_host(code, (), times)
    for one in np.flatnonzero(np.bincount(thread)).tolist():
        mine = Intervals(gaps.start_ns[thread == one], gaps.end_ns[thread == one])
        rows += Rows.of_host(code, (one,), times & mine)
    return rows
