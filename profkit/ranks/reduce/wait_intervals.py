"""Where a rank's own work stood still for a collective, and when its own work had made each collective ready.

What remains of the rank's time without these waits is its own: it takes as long whenever its peers come, and that is
what a replay keeps (docs/sources.md, rule 20).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.model.arrays import I64, Bool
from profkit.model.intervals import Intervals
from profkit.model.trace import Kind
from profkit.ranks.reduce.collective_rows import Collected
from profkit.ranks.reduce.records import BlockRows
from profkit.timeline import Facts
from profkit.timeline.idle import MAX_LATENCY_NS

NO_END: Final = np.iinfo(np.int64).max


def blocks(facts: Facts, rows: Collected, exposed: Intervals) -> BlockRows:
    """The times the rank waited: where communication ran with nothing beside it, up to the last end therein.

    What follows that end is the host's. Where the next device work had not been launched by then and the host was in no
    blocking call, the device did not wait for the collective but for the host: that is no block either.
    """
    order = np.argsort(rows.end_ns, kind="stable")
    ends = rows.end_ns[order]
    place = np.searchsorted(ends, exposed.end_ns, "right") - 1
    released = ends[np.maximum(place, 0)] if ends.size else np.zeros(len(exposed), np.int64)
    is_block = (place >= 0) & (released > exposed.start_ns)
    is_block[is_block] &= ~_is_host_bound(facts, released[is_block])
    return BlockRows(
        start_ns=exposed.start_ns[is_block], end_ns=released[is_block], row=order[place[is_block]].astype(np.int64)
    )


def _is_host_bound(facts: Facts, at_ns: I64) -> Bool:
    """Tell, for each end of a collective, whether a host that was free launched the next device work after it."""
    main, trace = facts.main_device, facts.trace
    if main is None:
        return np.zeros(at_ns.size, np.bool_)
    gpu = trace.gpu
    work = np.flatnonzero((gpu.device == main.device) & (gpu.kind != Kind.COMM) & (gpu.launch_row >= 0))
    if work.size == 0:
        return np.zeros(at_ns.size, np.bool_)
    place = np.searchsorted(gpu.start_ns[work], at_ns)
    launched = trace.calls.start_ns[gpu.launch_row[work[np.minimum(place, work.size - 1)]]]
    late: Bool = (place < work.size) & (launched > at_ns) & ~facts.host.blocked.contains(at_ns - 1)
    return late


def ready_ns(facts: Facts, rows: Collected) -> I64:
    """When each collective could have begun as far as its own rank goes, at the latest when it did begin.

    gloo: when the host asked. On a device: when the host had launched it and all compute launched before it had ended,
    for the communication stream waits for the event that the host recorded on the compute stream at the call
    (torch, `ProcessGroupNCCL::syncStream`). Replays of a captured graph, launched together, tell only their start, and
    so does one before which the device did nothing though it was launched: another process has its turn there.
    """
    main, trace = facts.main_device, facts.trace
    if main is None:
        return np.minimum(rows.issued_ns, rows.start_ns)
    gpu = trace.gpu
    work = np.flatnonzero((gpu.device == main.device) & (gpu.kind == Kind.COMPUTE) & (gpu.launch_row >= 0))
    if work.size == 0:
        return rows.start_ns.copy()
    launched = trace.calls.start_ns[gpu.launch_row[work]]
    order = np.argsort(launched, kind="stable")
    reach = np.maximum.accumulate(gpu.end_ns[work[order]])
    place = np.searchsorted(launched[order], rows.issued_ns) - 1
    produced = np.where(place >= 0, reach[np.maximum(place, 0)], rows.issued_ns)
    ready = np.minimum(np.maximum(rows.issued_ns, produced), rows.start_ns)
    together = np.zeros(ready.size, np.bool_)
    together[1:] |= rows.issued_ns[1:] == rows.issued_ns[:-1]
    together[:-1] |= together[1:]
    return np.where(together | _follows_long(facts.parts["idle_dependency"], rows.start_ns), rows.start_ns, ready)


def _follows_long(idle: Intervals, start_ns: I64) -> Bool:
    """Tell, for each start, whether one of these idle times ends there, longer than any platform takes to launch."""
    long = idle.lengths_ns > MAX_LATENCY_NS
    ends = idle.end_ns[long]
    found: Bool = np.append(ends, NO_END)[np.searchsorted(ends, start_ns)] == start_ns
    return found
