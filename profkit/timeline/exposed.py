"""Communication that nothing hides, and the part of it that holds nothing up."""

from __future__ import annotations

import numpy as np

from profkit.model.arrays import of_rows, place_among
from profkit.model.intervals import Intervals
from profkit.model.trace import Kind, Trace
from profkit.timeline.activity import Activity
from profkit.timeline.host import HostStates
from profkit.timeline.idle import MAX_LATENCY_NS
from profkit.timeline.launch_order import asked_ns


def unasked(
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
