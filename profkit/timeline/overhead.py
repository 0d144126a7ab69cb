"""When the profiler worked for itself: what idles then is not the job's doing."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from profkit.model.intervals import Intervals
from profkit.model.trace import Trace
from profkit.redact.later import later

_OWN: Final = later(r"buffer flush|instrumentation|^resource$|buffer request|^uvm activity init", re.IGNORECASE)
"""CUPTI's own work, as Kineto's `ActivityType` names it. Not "Command Buffer Full", which is a launch queue that is
full, and not the loading of modules and functions, which the job does without a profiler too."""


def profiler_work(trace: Trace) -> Intervals:
    """When the profiler was busy with its own buffers, inside the window; on which thread is not recorded."""
    rows = trace.overhead
    if len(rows) == 0:
        return Intervals.empty()
    chosen = np.flatnonzero(trace.named(rows.name, _OWN))
    return Intervals.of(rows.start_ns[chosen], rows.end_ns[chosen]).clip(*trace.window_ns)
