"""Step times without touching what they time: host clock on CPU, events in the stream on CUDA."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch


class StepClock(Protocol):
    """Times the steps of one run, in order."""

    def start(self) -> None:
        """Marks the start of a step."""

    def stop(self) -> None:
        """Marks the end of the step that was started last."""

    def durations_ns(self) -> list[int]:
        """Gives the duration of every finished step in ns; on CUDA it waits for the device first."""


class HostClock:
    """Times steps by `time.perf_counter_ns`."""

    def __init__(self) -> None:
        self._starts_ns: list[int] = []
        self._stops_ns: list[int] = []

    def start(self) -> None:
        """Marks the start of a step."""
        self._starts_ns.append(time.perf_counter_ns())

    def stop(self) -> None:
        """Marks the end of a step."""
        self._stops_ns.append(time.perf_counter_ns())

    def durations_ns(self) -> list[int]:
        """Gives the duration of every finished step in ns."""
        pairs = zip(self._starts_ns, self._stops_ns, strict=False)
        return [stop - start for start, stop in pairs]


class CudaClock:
    """Times steps by two CUDA events each (resolution 0.5 us): no synchronisation is added to the loop."""

    def __init__(self) -> None:
        self._starts: list[torch.cuda.Event] = []
        self._stops: list[torch.cuda.Event] = []

    def start(self) -> None:
        """Marks the start of a step."""
        self._starts.append(_recorded_event())

    def stop(self) -> None:
        """Marks the end of a step."""
        self._stops.append(_recorded_event())

    def durations_ns(self) -> list[int]:
        """Gives the duration of every finished step in ns, after waiting for the last of them."""
        if not self._stops:
            return []
        self._stops[-1].synchronize()
        pairs = zip(self._starts, self._stops, strict=False)
        return [round(start.elapsed_time(stop) * 1e6) for start, stop in pairs]


def _recorded_event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def make_clock(device_type: str) -> StepClock:
    """Gives the clock for this device type ("cpu" or "cuda")."""
    return CudaClock() if device_type == "cuda" else HostClock()


@contextmanager
def timed_step(clock: StepClock) -> Iterator[None]:
    """Times its body as one step."""
    clock.start()
    yield
    clock.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """The steady steps of a run: count, mean and percentiles in ns, throughput in samples per second."""

    n_steps: int
    mean_ns: float
    p50_ns: float
    p95_ns: float
    samples_per_s: float


def summarise(durations_ns: Sequence[int], *, batch: int) -> StepTimes:
    """Gives the summary of step times in ns, for `batch` samples per step.

    Percentiles interpolate linearly between the two nearest ranks, as numpy does. Raises `ValueError` if
    there is no step.
    """
    if not durations_ns:
        raise ValueError("no step to summarise")
    mean_ns = statistics.fmean(durations_ns)
    return StepTimes(
        n_steps=len(durations_ns),
        mean_ns=mean_ns,
        p50_ns=percentile(durations_ns, 0.50),
        p95_ns=percentile(durations_ns, 0.95),
        samples_per_s=batch / mean_ns * 1e9,
    )


def percentile(values: Sequence[int], fraction: float) -> float:
    """Gives the value below which `fraction` (0 to 1) of the values lie, by linear interpolation."""
    ordered = sorted(values)
    position = fraction * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
