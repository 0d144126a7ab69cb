"""What the scheduler says of the training thread and of its job, where a capture read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from profkit.model.trace import Trace

BESIDE: Final = 0.2
"""Of a core, what may run beside an operator's threads on the last one. Chosen: what profkit and a shell take."""


def cored_share(trace: Trace) -> float:
    """The share (0-1) of the recorded time in which it ran, or wanted no core; 1 where that is not known."""
    told = trace.meta.scheduling
    span_ns, wait_ns = told.get("span_ns", 0), told.get("wait_ns", 0)
    return max(1 - wait_ns / span_ns, 0.0) if span_ns else 1.0


def usable_cores(told: Mapping[str, int]) -> float | None:
    """The cores of the process, or less where its container has a quota; None or 0 where nobody counted."""
    cores, quota = told.get("cores"), told.get("quota_millicores")
    return min(cores, quota / 1000) if cores and quota else cores


def own_share(trace: Trace) -> float | None:
    """Share (0-1) of the time of the usable cores in which this job ran: its ranks here, and what they started.

    None where that is not known.
    """
    told = trace.meta.scheduling
    run_ns = told.get("all_run_ns")
    if run_ns is None or "children" not in told:
        return None
    return share_of_cores(told, ranks_here(told) * (run_ns + told.get("children_run_ns", 0)))


def share_of_cores(told: Mapping[str, int], run_ns: int | None) -> float | None:
    """So much running as a share (0-1) of the time of the usable cores; None where nobody counted."""
    cores, span_ns = usable_cores(told), told.get("span_ns")
    return min(run_ns / (cores * span_ns), 1.0) if cores and span_ns and run_ns is not None else None


def ranks_here(told: Mapping[str, int]) -> int:
    """Processes of the job that were started with the same cores."""
    return max(told.get("ranks", 1), 1)


def fitting_threads(told: Mapping[str, int]) -> int | None:
    """How many threads each rank has a core for, beside what else ran on them meanwhile; None where nobody counted.

    Other ranks' main threads have theirs. CPUs that share a core, as hyper-threads do, are one.
    """
    span_ns, run_ns, idle_ns, cores = (told.get(name, 0) for name in ("span_ns", "run_ns", "idle_ns", "cores"))
    usable, ranks = usable_cores(told), ranks_here(told)
    if not (span_ns and run_ns and cores and usable and "idle_ns" in told):
        return None
    of_others = max(cores - (idle_ns + ranks * run_ns) / span_ns, 0.0)
    beside_ns = max(told.get("all_run_ns", run_ns) - run_ns, 0) + told.get("children_run_ns", 0)
    left = min(told.get("physical", cores) - of_others, usable - ranks * beside_ns / span_ns)
    return int(left / ranks + BESIDE)
