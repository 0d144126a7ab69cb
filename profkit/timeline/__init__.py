"""What every analyzer needs to know of a trace, worked out once: activity, host states, the launch queue, idle causes.

Between `model` and `analyzers`: facts without thresholds of blame. `Facts.of(trace)` gives them all.
"""

from profkit.timeline.facts import DeviceFacts, Facts
from profkit.timeline.idle import IdlePlaces

__all__ = ["DeviceFacts", "Facts", "IdlePlaces"]
