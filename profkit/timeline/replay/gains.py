"""What the window of a device would last without a cause on its host."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.findings.capture import QUALITY
from profkit.findings.host import SYNC
from profkit.model import arrays
from profkit.model.arrays import I64, is_one_of, of_rows, order_of, place_among
from profkit.model.intervals import Intervals
from profkit.model.trace import CallKind, RuntimeCalls, Trace
from profkit.timeline.activity import Activity
from profkit.timeline.host import HostStates, blocking_calls
from profkit.timeline.idle import IdleCauses, Queue, profiler_work
from profkit.timeline.replay.clocks import WAIT, Events, Program, program_of, run
from profkit.timeline.replay.streams import Stream, holding, streams_of, timed, waiting

_DRIVING_SHARE: Final = 0.1
"""A thread with this share of the launches drives the device: the others' launches do not show that the host is free.
Chosen: the forward and the autograd thread have 0.3 to 0.7 each, a thread that copies batches has a few hundredths."""
_WORTH: Final = 0.01
"""Of the window: what gains less is no finding, whatever it consists of."""


class Gains(msgspec.Struct, frozen=True, kw_only=True):
    """By how much the window would be shorter without a cause, ns each; they overlap, so they must not be added."""

    sync_ns: int = 0
    """Without calls that wait for the device, those of the allocator apart."""
    allocator_ns: int = 0
    data_ns: int = 0
    host_ns: int = 0
    """With a host that takes no time for its own work: waits for data and for the device stay."""
    longest_sync_ns: int = 0
    """Without the longest of these calls alone; 0 where it is too short to have most of that, or that is little."""
    all_host_ns: int = 0
    """With a host that takes no time at all but for its waits for data."""
    held_ns: int = 0
    """Host time inside the calls of `sync_ns`, in the window."""
    is_replayed: bool = True
    """Whether debts that later idle time pays off are part of it."""


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The launches and waits of one device's window, ready to be replayed without some host time."""

    program: Program
    sync: Intervals
    """When calls that wait for the device held the host."""
    allocator: Intervals
    begin_ns: int
    """Where the host begins: the window, or the first launch of it."""
    before_ns: tuple[int, ...]
    """When each stream was done with what came before."""
    end_ns: int
    """When the window's work was done."""
    until_ns: int
    """The end of the window."""
    idle_ns: int
    """All idle time of the device in the window, and communication alone under which the host was behind: no more is
    credited. That streams would also work side by side for longer is not: what waits for what is not known."""
    replayed_ns: int = 0
    """How long the replay takes with nothing taken out: the window, but where streams waited for what is not known, or
    calls of one thread overlap. What changes nothing against it gains nothing; what does is compared with the window,
    as what the replay does not know could be gone too."""

    def gain_ns(self, removed: Intervals) -> int:
        """By how much the window's work would be done sooner, had the host not spent these times.

        Where the device is the last to finish, what the host did at the end belongs to what follows.
        """
        if not removed:
            return 0
        done_ns = self.done_ns(removed)
        if done_ns >= self.replayed_ns:
            return 0
        return min(max(self.end_ns - self.begin_ns - done_ns, 0), self.idle_ns)

    def done_ns(self, removed: Intervals) -> int:
        """How long the replayed work of the window takes without these times of the host."""
        events = self.program.events
        at, left, begin = events.at_ns, events.left_ns, self.begin_ns
        waits = np.flatnonzero(events.lane == WAIT)
        until_begin = int(arrays.coverage(removed.sets, np.array([begin]))[0])
        gone = arrays.coverage(removed.sets, at)  # worked on in place: of a large trace each column is 10 MB
        spent = np.empty(at.size, np.int64)
        spent[0] = at[0] - begin + until_begin
        np.subtract(at[1:], left[:-1], out=spent[1:])
        spent -= gone
        through = arrays.coverage(removed.sets, left[waits])
        is_gone = np.zeros(at.size, np.bool_)
        is_gone[waits] = through - gone[waits] >= left[waits] - at[waits]
        gone[waits] = through  # a launch takes no time here
        spent[1:] += gone[:-1]
        del gone
        last = left[-1:]
        host, *streams = run(self.program, spent, is_gone, tuple(at - self.begin_ns for at in self.before_ns))
        until = np.maximum(last, self.until_ns)
        host += int((until - last - removed.covered_ns(last, until))[0])
        return round(max(host, *streams) if self.end_ns <= self.until_ns else max(streams))


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """A replay beside what idles for the profiler's own work, which nobody would gain without the profiler."""

    replay: Replay
    profiler: Intervals
    beside_ns: int
    """What the replay gains without the profiler's own work alone."""

    def gain_ns(self, removed: Intervals) -> int:
        """By how much the device would idle less in the window, had the host not spent these times."""
        return max(self.replay.gain_ns(removed | self.profiler) - self.beside_ns, 0) if removed else 0


def what_if(trace: Trace, activity: Activity, queue: Queue, awaited: Intervals, unasked_ns: int = 0) -> WhatIf | None:
    """What times of the host cost a device; None where launches and starts do not agree, or no launch is known.

    What is awaited comes when it comes, however soon the host is there: batches of workers that do not keep up.
    """
    if queue.n_early > QUALITY.limit("no_cause") * queue.n_linked:
        return None
    found = replay(trace, activity, queue, awaited)
    if found is None:
        return None
    found = replace(found, idle_ns=found.idle_ns + unasked_ns)
    profiler = profiler_work(trace)
    return WhatIf(replay=found, profiler=profiler, beside_ns=found.gain_ns(profiler))


def gains(
    trace: Trace, activity: Activity, host: HostStates, idle: IdleCauses, queue: Queue, unasked_ns: int = 0
) -> Gains:
    """What each cause on the host costs the window of one device; without a replay the idle time it has at once."""
    asked = what_if(trace, activity, queue, host.input.awaited, unasked_ns)
    if asked is None:
        return _at_once(idle)
    found, gain_ns = asked.replay, asked.gain_ns
    low, high = trace.window_ns
    elsewhere = found.sync | found.allocator | host.loader
    own = elsewhere.gaps(found.begin_ns, max(high, found.begin_ns))
    sync_ns, host_ns, longest = gain_ns(found.sync), gain_ns(own), _longest(found.sync)
    may_be_one = (
        longest.total_ns + asked.profiler.total_ns >= SYNC.limit("one_off") * sync_ns
    )  # it gains no more than it lasts
    others = found.sync | found.allocator
    return Gains(
        sync_ns=sync_ns,
        longest_sync_ns=gain_ns(longest) if may_be_one and sync_ns >= _WORTH * (high - low) else 0,
        allocator_ns=gain_ns(found.allocator),
        data_ns=gain_ns(host.loader),
        host_ns=host_ns,
        all_host_ns=gain_ns(own | (others - host.loader)) if others else host_ns,
        held_ns=found.sync.clip(low, high).total_ns,
    )


def _at_once(idle: IdleCauses) -> Gains:
    own_ns = idle.launch.total_ns - idle.turnaround.total_ns + idle.host.total_ns
    return Gains(
        sync_ns=idle.sync.total_ns,
        data_ns=idle.data.total_ns,
        host_ns=own_ns,
        all_host_ns=own_ns + idle.sync.total_ns,
        longest_sync_ns=_longest(idle.sync).total_ns,
        is_replayed=False,
    )


def _longest(times: Intervals) -> Intervals:
    place = slice(*((at := int(times.lengths_ns.argmax())), at + 1)) if times else slice(0)
    return Intervals(times.start_ns[place], times.end_ns[place])


class _Launches(msgspec.Struct, frozen=True, kw_only=True):
    """What a window's work is launched by, in the order of launches."""

    streams: list[Stream]
    at_ns: I64
    held: NDArray[np.intp]
    """The calls that held the host."""
    begin_ns: int
    end_ns: int
    """When the last of the work was done."""


def replay(trace: Trace, activity: Activity, queue: Queue, awaited: Intervals | None = None) -> Replay | None:
    """The replay of one device's window; None where no launch of its operations is known.

    `awaited` are waits of the host whose end others decide.
    """
    calls, (low, high) = trace.calls, trace.window_ns
    launches = _launches(trace, activity, queue)
    if launches is None:
        return None
    held = launches.held
    before_ns = tuple(stream.before_ns for stream in launches.streams)
    others = _apart(awaited, launches) if awaited else Intervals.empty()
    made = Replay(
        program=program_of(_events(trace, launches, others, queue)),
        sync=Intervals.of_rows(calls, held[calls.kind[held] != CallKind.ALLOC]),
        allocator=Intervals.of_rows(calls, held[calls.kind[held] == CallKind.ALLOC]),
        begin_ns=launches.begin_ns,
        before_ns=(*before_ns, launches.begin_ns) if others else before_ns,
        end_ns=max(high, launches.end_ns),
        until_ns=high,
        idle_ns=high - low - activity.any.total_ns,
    )
    return replace(made, replayed_ns=made.done_ns(Intervals.empty()))


def _launches(trace: Trace, activity: Activity, queue: Queue) -> _Launches | None:
    gpu, calls, low = trace.gpu, trace.calls, trace.window_ns[0]
    # rows are in order of start: those of before stand first
    n_before = int(np.count_nonzero(of_rows(gpu.start_ns, activity.rows) < low))
    rows, before = activity.rows[n_before:], activity.rows[:n_before]
    launch = of_rows(gpu.launch_row, rows)
    linked = launch >= 0
    known = of_rows(launch, np.flatnonzero(linked))
    thread = calls.thread[known]
    threads = _driving(thread)
    if not threads:
        return None
    blocking = blocking_calls(trace)
    key = _issued(calls, launch, of_rows(gpu.start_ns, rows), blocking, queue.latency_ns)
    key[~linked] = np.iinfo(np.int64).min
    begin = min(low, int(key[linked].min()))
    driving = np.sort(known[is_one_of(thread, threads)], kind="stable")  # calls are in order of time
    held = holding(trace, blocking & is_one_of(calls.thread, threads), calls.start_ns[driving], begin)
    if not linked.all():
        key = np.where(linked, key, np.maximum.accumulate(key))  # without a launch: behind the one before it
    del launch, known, thread, driving  # of a large trace 10 MB each
    order = order_of(key)
    at = np.maximum(key[order], begin)
    return _Launches(
        streams=streams_of(trace, rows[order], before, at, linked[order]),
        at_ns=at,
        held=held,
        begin_ns=begin,
        end_ns=int(gpu.end_ns[rows].max()),
    )


def _driving(threads: NDArray[np.int32]) -> tuple[int, ...]:
    """The threads that drive the device, of the thread of each launch."""
    if threads.size == 0:
        return ()
    counts = np.bincount(threads)
    return tuple(int(code) for code in np.flatnonzero(counts >= _DRIVING_SHARE * threads.size))


def _issued(calls: RuntimeCalls, launch: I64, start: I64, blocking: NDArray[np.bool_], latency_ns: int) -> I64:
    """When the host gave the device each operation: at its launch call, of a long one shortly before it returns.

    A first call loads modules before it launches.
    """
    begun = calls.start_ns[launch]
    issued: I64 = np.where(blocking[launch], begun, calls.end_ns[launch])
    np.minimum(issued, start, out=issued)
    issued -= latency_ns
    np.maximum(issued, begun, out=issued)
    return np.minimum(issued, start, out=issued)


def _apart(awaited: Intervals, launches: _Launches) -> Intervals:
    """What is awaited from where the replay begins on, without waits during which another thread launches."""
    start, end = awaited.start_ns, awaited.end_ns
    is_held = place_among(launches.at_ns, end) == place_among(launches.at_ns, start, after=True)
    is_held &= start >= launches.begin_ns
    return Intervals(start[is_held], end[is_held])


def _events(trace: Trace, launches: _Launches, awaited: Intervals, queue: Queue) -> Events:
    """The events of streams, which are given up on the way: of a large trace each column is megabytes.

    Behind the streams stands what is awaited: a clock that nothing moves.
    """
    calls, streams, at = trace.calls, launches.streams, launches.at_ns
    held = launches.held[~awaited.contains(calls.start_ns[launches.held])] if awaited else launches.held
    lane = np.zeros(at.size, np.int8)
    reach = np.zeros(at.size)
    behind = [np.zeros(at.size) for _ in streams]
    for number, stream in enumerate(streams):
        lane[stream.place] = number
        x, reach[stream.place], z = timed(stream, [other for other in streams if other is not stream], queue)
        for column, values in zip(behind, (*z[:number], x, *z[number:]), strict=True):
            column[stream.place] = values
        del x, z
    start, end = calls.start_ns[held], np.minimum(calls.end_ns[held], trace.window_ns[1])
    place = place_among(at, start, after=True)
    own, after = waiting(trace, held, end, [stream.done_by(place) for stream in streams])
    streams.clear()
    if awaited:
        start, end = np.concatenate((start, awaited.start_ns)), np.concatenate((end, awaited.end_ns))
        by_time = order_of(start)
        own = np.concatenate((own, np.zeros(len(awaited))))[by_time]
        after = [np.concatenate((each, np.full(len(awaited), -np.inf)))[by_time] for each in after]
        comes = np.concatenate((np.full(held.size, -np.inf), awaited.end_ns - launches.begin_ns))[by_time]
        after, behind = [*after, comes], [*behind, np.full(at.size, -np.inf)]
        start, end = start[by_time], end[by_time]
    if start.size:  # what another thread launched while this one was held comes behind the wait
        wait = np.maximum(place_among(start, at) - 1, 0)
        later = np.where((start[wait] < at) & (at < end[wait]), end[wait], at)
        reach, at = reach - (later - at), later
        del wait, later
    left = np.concatenate((at, end))
    at = np.concatenate((at, start))
    order = order_of(at)  # at one time the launch comes first
    lane, reach = np.concatenate((lane, np.full(start.size, WAIT, np.int8))), np.concatenate((reach, own))
    ordered = [np.concatenate((behind.pop(0), waits))[order] for waits in after]
    return Events(at_ns=at[order], left_ns=left[order], lane=lane[order], reach=reach[order], behind=tuple(ordered))
