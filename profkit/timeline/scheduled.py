"""What the scheduler says of the training thread, where a capture read it."""

from __future__ import annotations

from profkit.model.trace import Trace


def cored_share(trace: Trace) -> float:
    """The share (0-1) of the recorded time in which it ran, or wanted no core; 1 where that is not known."""
    told = trace.meta.scheduling
    span_ns, wait_ns = told.get("span_ns", 0), told.get("wait_ns", 0)
    return max(1 - wait_ns / span_ns, 0.0) if span_ns else 1.0
