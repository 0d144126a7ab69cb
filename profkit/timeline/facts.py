"""`Facts`: a trace with everything about it that several analyzers need, computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.allocator import return_free_memory
from profkit.model.arrays import I64, distinct_codes, is_one_of, of_rows, place_among
from profkit.model.budget import Budget
from profkit.model.intervals import Intervals
from profkit.model.names import is_of_training
from profkit.model.trace import CallKind, GpuWork, Kind, SpanKind, Spans, Trace
from profkit.timeline.activity import Activity, device_activity
from profkit.timeline.code import code_of
from profkit.timeline.cpu import CpuBudget, cpu_budget
from profkit.timeline.elsewhere import is_of_torch
from profkit.timeline.host import HostStates, enclosing_op, host_states
from profkit.timeline.idle import MAX_LATENCY_NS, IdleCauses, IdlePlaces, Queue, idle_causes, idle_places, launch_queue
from profkit.timeline.launch_order import asked_ns, shortened
from profkit.timeline.replay import Gains, gains, what_if
from profkit.timeline.steps import step_lengths_ns, steps_in_window

if TYPE_CHECKING:
    from profkit.timeline.code.code import Code

T = TypeVar("T")

EDGE_STEPS: Final = 2
"""Chosen: a window that begins and ends inside steps holds less than that beside the whole ones."""

_NO_CALLS: Final = np.empty(0, np.int32)


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One device over the window.

    All but activity, queue and budget are of the busiest device; of others they are empty, for each would hold the
    host's ranges once more, and the verdict speaks of the busiest.
    """

    device: int
    activity: Activity
    queue: Queue
    budget: Budget
    idle: IdleCauses = IdleCauses()
    unasked: Intervals = Intervals.empty()
    """Exposed communication under which the host, at its own pace, had not asked for the next compute."""
    most_unasked_ns: int = 0
    """The same where the host may have waited unseen, too."""
    gains: Gains = Gains()
    """What each cause on the host costs, debts that later idle time pays off included."""
    places: IdlePlaces = IdlePlaces()

    @property
    def parts(self) -> dict[str, Intervals]:
        """The parts of the budget of the busiest device, disjoint."""
        return _parts(self.activity, self.idle)


class Facts(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A trace and what follows from it. `cpu` is there exactly when there is no device."""

    trace: Trace
    host: HostStates
    devices: tuple[DeviceFacts, ...] = ()
    cpu: CpuBudget | None = None
    cpu_budget: Budget | None = None
    op_of_call: NDArray[np.int32] = _NO_CALLS
    """Per runtime call, the row of the innermost operator around it, `NO_ROW` for none; empty without a device."""
    code: Code | None = None
    """The lines, functions and modules of the user's code; None where no Python frames were recorded."""

    @classmethod
    def of(cls, trace: Trace, code: Code | None = None) -> Facts:
        """The facts of a trace; `code` is given where its places were recorded apart."""
        code = code_of(trace) if code is None else code
        if not trace.device_indices:
            host, cpu = host_states(trace), cpu_budget(trace)
            return cls(trace=trace, host=host, cpu=cpu, cpu_budget=_cpu_parts(trace, cpu), code=code)
        # first, since it needs the most room beside the trace
        inside = enclosing_op(trace.ops, trace.calls.thread, trace.calls.start_ns).astype(np.int32)
        host = host_states(trace)
        active = [device_activity(trace, index) for index in trace.device_indices]
        main = _busiest(active)
        devices = tuple(
            _device(trace, activity, host, (index, inside, code) if place == main else (index, None, None))
            for place, (index, activity) in enumerate(zip(trace.device_indices, active, strict=True))
        )
        return_free_memory(trace.meta.n_events)
        return cls(trace=trace, host=host, devices=devices, op_of_call=inside, code=code)

    def once(self, make: Callable[[Facts], T]) -> T:
        """What `make` works out of these facts; several may ask, and it is worked out once."""
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made

    @cached_property
    def _made(self) -> dict[Callable[[Facts], Any], Any]:
        return {}

    @cached_property
    def is_of_torch(self) -> bool:
        """Whether PyTorch ran."""
        return is_of_torch(self.trace)

    @cached_property
    def trains(self) -> bool:
        """Whether the trace shows a backward pass or an optimizer."""
        return is_training(self.trace)

    @cached_property
    def long_kernels(self) -> Mapping[str, str]:
        """For each kernel with a long name an expression of a few characters that finds it alone in this trace."""
        return shortened({self.trace.name(int(code)) for code in distinct_codes(self.trace.gpu.name)})

    @property
    def main_device(self) -> DeviceFacts | None:
        """The device that is busiest: the one the verdict speaks of."""
        return self.devices[_busiest([device.activity for device in self.devices])] if self.devices else None

    @property
    def budget(self) -> Budget:
        """The budget the verdict stands on."""
        main = self.main_device
        budget = main.budget if main is not None else self.cpu_budget
        assert budget is not None  # noqa: S101 - `of` sets one or the other
        return budget

    @property
    def busy(self) -> Activity | CpuBudget:
        """What `compute` and `comm` are asked of: the busiest device, or the CPU."""
        main = self.main_device
        busy = main.activity if main is not None else self.cpu
        assert busy is not None  # noqa: S101 - as in `budget`
        return busy

    @property
    def parts(self) -> dict[str, Intervals]:
        """The parts of `budget` as sets; on a CPU without the host's, which has the rest of the window."""
        holder = self.main_device or self.cpu
        assert holder is not None  # noqa: S101 - as in `budget`
        return holder.parts

    @property
    def communication(self) -> tuple[GpuWork | Spans, NDArray[np.intp]]:
        """The rows of communication that touch the window: a device's, or of a CPU trace the ranges of its threads."""
        main, trace = self.main_device, self.trace
        if main is not None:
            rows = main.activity.rows
            return trace.gpu, rows[trace.gpu.kind[rows] == Kind.COMM]
        spans, (low, high) = trace.spans, trace.window_ns
        return spans, np.flatnonzero((spans.kind == SpanKind.COMM) & (spans.end_ns > low) & (spans.start_ns < high))

    @property
    def window_ns(self) -> int:
        """Length of the window."""
        return self.trace.window_duration_ns

    @property
    def n_steps(self) -> int:
        """Steps that the window holds; 1 where none are known, so that "per step" means the window.

        Steps found by their period begin at an operation inside them: the window holds a part of one more. Where it
        holds more than that, it is start-up, and no step.
        """
        inside = steps_in_window(self.trace)
        if inside and self.trace.step_source == "period" and not self.startup_ns:
            total = sum(step.duration_ns for step in inside)
            return max(round(self.window_ns * len(inside) / total), 1)
        return max(len(inside), 1)

    @property
    def step_ns(self) -> int | None:
        """The mean length of the steps; None where none are known."""
        lengths = step_lengths_ns(self.trace)
        return round(float(lengths.mean())) if lengths.size else None

    @property
    def startup_ns(self) -> int:
        """What the window holds beside the steps found by their period, if more than parts of steps at its edges."""
        inside = steps_in_window(self.trace)
        if not inside or self.trace.step_source != "period":
            return 0
        total = sum(step.duration_ns for step in inside)
        beside = self.window_ns - total
        return beside if beside * len(inside) > EDGE_STEPS * total else 0

    def host_gains_ns(self, *times: Intervals) -> tuple[int, ...]:
        """By how much the busiest device would idle less without each of these times of the host, ns.

        A pattern of the host costs a device so much, and no more: calls that wait for the device are no time of it,
        nor is what it launches. Without a replay, the idle time that the host causes under it.
        """
        main = self.main_device
        if main is None or not any(times):
            return (0,) * len(times)
        own = [each - self.host.blocked for each in times]
        asked = what_if(self.trace, main.activity, main.queue, self.host.input.awaited, main.most_unasked_ns)
        if asked is None:
            late = (main.idle.launch - main.idle.turnaround) | main.idle.host
            return tuple((each & late).total_ns for each in own)
        return tuple(asked.gain_ns(each) for each in own)

    def per_step(self, total_ns: int) -> int:
        """A total over the window per step, in ns."""
        return total_ns // self.n_steps

    def calls_in_window(self, *kinds: CallKind) -> I64:
        """The rows of runtime calls of these kinds that start inside the window."""
        calls = self.trace.calls
        low, high = self.trace.window_ns
        chosen = is_one_of(calls.kind, kinds) & (calls.start_ns >= low) & (calls.start_ns < high)
        return np.flatnonzero(chosen)


def is_training(trace: Trace) -> bool:
    """Whether names of operators, ranges or kernels show a backward pass or an optimizer."""
    tables = trace.ops, trace.spans, trace.gpu
    return any(is_of_training(trace.name(code)) for table in tables for code in distinct_codes(table.name).tolist())


def _busiest(devices: Sequence[Activity]) -> int:
    """The place of the device that is busy for longest, the first of several."""
    if len(devices) == 1:  # as a rule; the sum over a million intervals can be spared
        return 0
    return max(range(len(devices)), key=lambda place: devices[place].any.total_ns)


def _device(
    trace: Trace,
    activity: Activity,
    host: HostStates,
    known: tuple[int, NDArray[np.int32] | None, Code | None],
) -> DeviceFacts:
    """The facts of a device, by its number; operators of calls and places in the code are given for the busiest."""
    device, op_of_call, code = known
    queue = launch_queue(trace, activity)
    return_free_memory(trace.meta.n_events)
    idle = idle_causes(trace, activity, host, queue)
    parts = _parts(activity, idle)
    budget = Budget(window_ns=trace.window_duration_ns, **{name: times.total_ns for name, times in parts.items()})
    if op_of_call is None:
        return DeviceFacts(device=device, activity=activity, queue=queue, budget=budget)
    unasked, at_most = _unasked(trace, activity, parts["comm_exposed"], host, queue.latency_ns)
    del parts
    return_free_memory(trace.meta.n_events)  # the replay needs the most room
    gained = gains(trace, activity, host, idle, queue, at_most.total_ns)
    return_free_memory(trace.meta.n_events)  # and the places nearly as much
    return DeviceFacts(
        device=device,
        activity=activity,
        queue=queue,
        idle=idle,
        unasked=unasked,
        most_unasked_ns=at_most.total_ns,
        budget=budget,
        gains=gained,
        places=idle_places(trace, activity, idle, queue, (op_of_call, code)),
    )


def _unasked(
    trace: Trace, activity: Activity, exposed: Intervals, host: HostStates, latency_ns: int
) -> tuple[Intervals, Intervals]:
    """Exposed communication under which the host had not asked for the next compute: surely its own pace, and at most.

    Exposed is not blocking: had the communication taken no time, the device would have waited for the host there.
    What the host spends in a blocking call counts as held: it may wait for this very communication. So does a loader.
    A host of which nothing is recorded until it goes on as a collective ends may wait for that: at most it was behind.
    Empty where a launch is not known.
    """
    none = Intervals.empty()
    if not exposed or not host.is_known:
        return none, none
    rows = activity.rows[of_rows(trace.gpu.kind, activity.rows) == Kind.COMPUTE]
    if rows.size == 0:
        return none, none
    place = place_among(trace.gpu.start_ns[rows], exposed.end_ns)
    exists = place < rows.size
    following = rows[np.minimum(place, rows.size - 1)]
    is_linked = trace.gpu.launch_row[following] >= 0
    asked = np.where(exists & is_linked, asked_ns(trace, following), exposed.start_ns)
    late = Intervals.of(exposed.start_ns, np.minimum(asked, exposed.end_ns)) - host.blocked - host.loader
    recorded = host.dispatching | host.blocked | host.loader
    following_starts = np.append(recorded.start_ns, np.iinfo(np.int64).max // 2)
    goes_on = following_starts[place_among(recorded.start_ns, exposed.start_ns)]
    ends = np.sort(trace.gpu.end_ns[activity.rows[of_rows(trace.gpu.kind, activity.rows) == Kind.COMM]])
    may_wait = place_among(ends, goes_on + latency_ns, after=True) > place_among(ends, goes_on - MAX_LATENCY_NS)
    may_wait &= ~recorded.contains(exposed.start_ns)
    return late - Intervals(exposed.start_ns[may_wait], exposed.end_ns[may_wait]), late


def _parts(activity: Activity, idle: IdleCauses) -> dict[str, Intervals]:
    return {
        "compute": activity.compute,
        "comm_exposed": activity.comm_exposed,
        "copy_exposed": activity.copy_exposed,
        **idle.parts,
    }


def _cpu_parts(trace: Trace, cpu: CpuBudget) -> Budget:
    window = trace.window_duration_ns
    parts = {name: times.total_ns for name, times in cpu.parts.items()}
    rest = window - sum(parts.values())
    # without any operator it is not known that the thread is outside of them
    known, unknown = (0, rest) if cpu.has_no_operators else (rest, 0)
    return Budget(window_ns=window, idle_sync=0, idle_host=known, idle_dependency=0, idle_unknown=unknown, **parts)
