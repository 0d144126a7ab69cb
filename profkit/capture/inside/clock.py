"""When steps began and ended: the host's clock, and on CUDA an event in the stream, which waits for nothing.

Runs in the traced process: standard library and torch only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, quantiles
from typing import Any

import torch


@dataclass(frozen=True)
class Mark:
    """A step boundary: the old step ended at `ended_ns`, the new one began at `began_ns`, after profkit's own work.

    Times are of `time.perf_counter_ns`; `ended` and `began` are CUDA events, `None` where CUDA is not in use. `n_loads`
    counts the batches fetched until then, `collectives` the collectives of each process group.
    """

    ended_ns: int
    began_ns: int
    ended: Any = None
    began: Any = None
    n_loads: int = 0
    collectives: tuple[int, ...] = ()


def cuda_in_use() -> bool:
    """Whether this process has used CUDA; asking does not start it."""
    return bool(torch.cuda.is_initialized())


def is_capturing_graph() -> bool:
    """Whether the current stream records a CUDA graph: nothing may be started or recorded then."""
    return cuda_in_use() and bool(torch.cuda.is_current_stream_capturing())


def recorded_event() -> Any:
    """An event recorded in the current stream, `None` without CUDA."""
    if not cuda_in_use():
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def begun(ended_ns: int, ended: Any, n_loads: int) -> Mark:
    """The mark of a boundary whose old step ended then; its new step begins now."""
    counts = collectives()
    return Mark(
        ended_ns=ended_ns,
        began_ns=time.perf_counter_ns(),
        ended=ended,
        began=recorded_event(),
        n_loads=n_loads,
        collectives=counts,
    )


def collectives() -> tuple[int, ...]:
    """How many collectives this process has begun in each process group, () where that cannot be told.

    The groups count them to find ranks that have lost step; to ask communicates nothing.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return ()
    world = getattr(torch.distributed.distributed_c10d, "_world", None)
    try:
        return tuple(int(group._get_sequence_number_for_group()) for group in world.pg_map)  # type: ignore[union-attr] # noqa: SLF001
    except Exception:  # noqa: BLE001 - a backend without the number, or another torch: then it is not known
        return ()


def collectives_per_step(marks: Sequence[Mark]) -> float | None:
    """The mean number of collectives in a step between marks, of the group that has most; None where not counted."""
    if len(marks) < 2 or not marks[0].collectives:
        return None
    first, last = marks[0].collectives, marks[-1].collectives
    if len(first) != len(last):
        return None  # a group was made, or taken down
    return max(end - begin for begin, end in zip(first, last)) / (len(marks) - 1)  # noqa: B905 - Python 3.9


def fetches(marks: Sequence[Mark]) -> list[int]:
    """The batches fetched in each step between marks."""
    return [second.n_loads - first.n_loads for first, second in zip(marks, marks[1:])]  # noqa: B905, RUF007


def durations_ns(marks: Sequence[Mark]) -> list[int]:
    """The durations in ns of the steps between marks: by the device's events where all of them are done."""
    pairs = list(zip(marks, marks[1:]))  # noqa: B905, RUF007 - Python 3.9
    if pairs and all(_is_done(mark.ended) and _is_done(mark.began) for mark in marks):
        return [round(first.began.elapsed_time(second.ended) * 1e6) for first, second in pairs]
    return [second.ended_ns - first.began_ns for first, second in pairs]


def _is_done(event: Any) -> bool:
    return event is not None and bool(event.query())


def summary(values_ns: Sequence[int]) -> dict[str, Any]:
    """Count, mean, median and quartiles (ns) of step times as plain values; `{"n": 0}` of none."""
    if not values_ns:
        return {"n": 0}
    ordered = sorted(values_ns)
    low, middle, high = quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else [ordered[0]] * 3
    return {
        "n": len(ordered),
        "mean_ns": round(fmean(ordered)),
        "median_ns": round(middle),
        "quartile1_ns": round(low),
        "quartile3_ns": round(high),
        "steps_ns": [int(value) for value in values_ns],
    }
