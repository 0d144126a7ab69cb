"""Communication that nothing hides, and the part of it that holds nothing up."""

from __future__ import annotations

import numpy as np

from profkit.model.arrays import of_rows, place_among
from profkit.model.intervals import Intervals
from profkit.model.trace import Kind, Trace
from profkit.timeline.activity import Activity
from profkit.timeline.host import HostStates
from profkit.timeline.launch_order import asked_ns


def unasked(trace: Trace, activity: Activity, exposed: Intervals, host: HostStates) -> Intervals:
    """Exposed communication under which the host had not asked for the next compute, though nothing held it.

    Exposed is not blocking: had the communication taken no time, the device would have waited for the host there.
    What the host spends in a blocking call counts as held: it may wait for this very communication. So does a loader.
    Empty where a launch is not known.
    """
    if not exposed or not host.is_known:
        return Intervals.empty()
    rows = activity.rows[of_rows(trace.gpu.kind, activity.rows) == Kind.COMPUTE]
    if rows.size == 0:
        return Intervals.empty()
    place = place_among(trace.gpu.start_ns[rows], exposed.end_ns)
    exists = place < rows.size
    following = rows[np.minimum(place, rows.size - 1)]
    is_linked = trace.gpu.launch_row[following] >= 0
    asked = np.where(exists & is_linked, asked_ns(trace, following), exposed.start_ns)
    late = Intervals.of(exposed.start_ns, np.minimum(asked, exposed.end_ns))
    return late - host.blocked - host.loader
