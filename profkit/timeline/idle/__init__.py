"""Why a device was idle, and before which operations: the launch queue, a cause for each idle nanosecond, the places.

In: `Activity`, `HostStates` and a `Trace`. Out: `Queue`, `IdleCauses` and `IdlePlaces`, which `Facts` keeps. Begin with
`causes`; `queue` says when the device had caught up with the host, `places` what launches the work that ends idle time.
"""

from profkit.timeline.idle.causes import IdleCauses, ending_rows, idle_causes, profiler_work
from profkit.timeline.idle.places import IdlePlaces, Place, idle_places
from profkit.timeline.idle.queue import MAX_LATENCY_NS, MIN_LATENCY_NS, Queue, launch_queue

__all__ = [
    "MAX_LATENCY_NS",
    "MIN_LATENCY_NS",
    "IdleCauses",
    "IdlePlaces",
    "Place",
    "Queue",
    "ending_rows",
    "idle_causes",
    "idle_places",
    "launch_queue",
    "profiler_work",
]
