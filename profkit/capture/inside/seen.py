"""What a capture has timed and recorded so far, and why it came to no trace.

Runs in the traced process: standard library and torch only.
"""

from __future__ import annotations

import math
import sys
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from ..beside import units
from ..options import (
    LEAST_RUN_NS,
    STEPS_OF_SHORT,
    WRITES_NS,
    WRITTEN_OVER_SLOWER,
    Options,
    Window,
    steps_of_one,
    steps_of_ranks,
    why_steps_of_ranks,
    why_too_few,
)
from . import clock, store
from .places.datasets import made_by
from .steps import MIN_CALLS, StepFinder

_FEW_LONG: Final = 3
_LONG_ENOUGH_NS: Final = 1_500_000_000
"""Unprofiled steps before the recording of a run whose steps are long: so many, and so much time. Chosen: their median
is steady, and a run of fourteen accumulated updates still has a recording."""
_CALL = "call profkit.capture.step() at the end of a step"
_MOST_COUNTS: Final = 10_000
_MOST_LOADERS: Final = 64


class Seen:
    """The marks of steps before, while and after they are recorded, the window they belong to, and facts of it."""

    def __init__(self) -> None:
        self.times: dict[str, list[clock.Mark]] = {"baseline": [], "profiled": [], "after": []}
        self.window: Window | None = None
        self.first_step = 0
        self.n_boundaries = 0
        self.facts: dict[str, Any] = {}
        self.stalled_ns = 0
        self.whole_steps_ns = 0  # what the whole steps take to be written, by their price
        self.has_waited = False  # for a profiler of the script's own

    def told(self) -> dict[str, Any]:
        """All of it as plain values; times of steps without those that hold another loop (`odd_steps`, by place)."""
        most = _most_fetches([*clock.fetches(self.times["baseline"]), *clock.fetches(self.times["profiled"])])
        summaries = {name: clock.summary(_usual_ns(marks, most)) for name, marks in self.times.items()}
        fetches = clock.fetches(self.times["profiled"])
        n_steps = max(len(self.times["profiled"]) - 1, 0)
        own = {"stalled_ns": self.stalled_ns, "first_step": self.first_step, "n_steps": n_steps}
        odd = [place for place, count in enumerate(fetches) if count > most]
        return {**self.facts, **summaries, **own, "fetches_per_step": fetches, "odd_steps": odd}


def _most_fetches(counts: Sequence[int]) -> int:
    """The most batches that a step of the training fetches: where it is more another loop is in it, a validation."""
    usual = sorted(counts)[len(counts) // 2] if counts else 0
    return int(units().MANY_FETCHES) * max(usual, 1) - 1


def _usual_ns(marks: Sequence[clock.Mark], most: int) -> list[int]:
    """The durations (ns) of steps that fetch no more batches than that."""
    pairs = zip(clock.durations_ns(marks), clock.fetches(marks))  # noqa: B905 - Python 3.9
    return [spent_ns for spent_ns, count in pairs if count <= most]


def with_fewer_before(window: Window, options: Options, begins_ns: Sequence[int]) -> Window:
    """The window with fewer steps before it where each is long: a run of them may have few.

    Ranks record the same steps. `begins_ns`: of the steps that count so far, and of the one that begins.
    """
    n_seen = len(begins_ns) - 1
    if options.baseline or store.world_size() > 1 or not _FEW_LONG <= n_seen < window.baseline:
        return window
    return replace(window, baseline=n_seen) if begins_ns[-1] - begins_ns[0] >= _LONG_ENOUGH_NS else window


def with_enough(window: Window, options: Options, seen: Seen, n_batches_left: float) -> Window:
    """The window with as many steps as tell rare causes and late ranks, where nothing else was asked for.

    All ranks take what the first one settles for. What follows the window needs steps of the run, too.
    """
    n_ranks = store.world_size()
    if options.steps or (options.tool and n_ranks == 1):
        return window
    baseline = seen.times["baseline"]
    step_ns = clock.summary(clock.durations_ns(baseline))["median_ns"]
    if n_ranks == 1:
        fetches = sorted(clock.fetches(baseline))
        n_left = n_batches_left / max(fetches[len(fetches) // 2], 1) if fetches else n_batches_left
        n_left -= window.warmup + window.after + 2 * options.stack_steps
        if not any(fetches) and not options.finishes:  # a block that code records may be one of thirty steps
            n_seen = window.settling + window.baseline
            n_left = min(LEAST_RUN_NS // max(step_ns, 1) - n_seen, STEPS_OF_SHORT)
        return replace(window, steps=steps_of_one(step_ns, window.steps, n_left), least=window.steps)
    n_collectives = clock.collectives_per_step(baseline)
    steps = store.agreed(options, "steps", max(window.steps, steps_of_ranks(step_ns, n_collectives)))
    seen.facts["why_steps"] = why_steps_of_ranks(steps, n_ranks, n_collectives)
    return replace(window, steps=steps)


def has_enough(window: Window, seen: Seen, n_recorded: int) -> bool:
    """Whether the steps recorded so far are enough, since to write them holds the script up long by now."""
    if not window.least or n_recorded < window.least or n_recorded % window.least:
        return False
    usual_ns = clock.summary(clock.durations_ns(seen.times["baseline"]))["median_ns"]
    slower_ns = sum(clock.durations_ns(seen.times["profiled"])) - (n_recorded - 1) * usual_ns
    return bool(WRITTEN_OVER_SLOWER * slower_ns > WRITES_NS)


def why_none(finder: StepFinder, seen: Seen, window: Window) -> str:
    """Why steps that were seen came to no trace, and the options with which they would."""
    if seen.has_waited:
        return "the script's own profiler ran all the time; triage the trace that it writes"
    n_rows = len(finder.step_rows())
    n_steps = (n_rows or finder.n_candidates) + seen.n_boundaries
    if not n_steps:
        return why_no_step(finder)
    least = 0 if finder.is_alone or not finder.calls else MIN_CALLS
    if not n_rows and n_steps >= max(window.n_needed, least):
        return f"it stayed open which of {len(finder.calls)} optimizers ends a step; {_CALL}"
    return why_too_few(n_steps, window, least=least)


def why_no_step(finder: StepFinder) -> str:
    """Why no step was seen."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and dynamo.counters["stats"]:
        return f"no training step was seen: all of it runs inside torch.compile; {_CALL}"
    if finder.n_made:
        return f"no training step was seen: an optimizer was made, but its step() was never called; {_CALL}"
    return f"no training step was seen (no optimizer, DataLoader or module was used); {_CALL}"


class Counters:
    """What the script has told of its steps, as it was told: a tensor may be on a device."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, dict[str, Any]]] = []

    def add(self, counts: dict[str, Any]) -> None:
        """A step has ended that held so much."""
        self._rows.append((time.time_ns(), counts))
        if len(self._rows) > _MOST_COUNTS:
            del self._rows[: _MOST_COUNTS // 2]

    def as_numbers(self) -> list[tuple[int, dict[str, float]]]:
        """The counts that are finite numbers and not 0: a NaN would make the trace no JSON."""
        return [
            (unix_ns, {name: number for name, value in counts.items() if (number := store.finite(value))})
            for unix_ns, counts in self._rows
        ]


class Queue:
    """The most workers that a loader of the script has, and the most batches that they may have ready."""

    def __init__(self) -> None:
        self.n_workers = 0
        self.n_batches = 0
        self.loaders: list[dict[str, Any]] = []
        """The code behind each loader whose batches the recorded steps took."""
        self._known: set[int] = set()
        self._latest: weakref.ref[Any] | None = None

    @property
    def n_left(self) -> float:
        """The batches that are left for certain: of an epoch with a length its rest, of a stream without one no end.

        A loop without a loader promises none.
        """
        iterator = self._latest() if self._latest else None
        if iterator is None:
            return 0
        try:
            return float(len(iterator._index_sampler) - iterator._num_yielded)  # noqa: SLF001
        except Exception:  # noqa: BLE001 - a sampler without a length, or one of the script's own
            return math.inf

    def use(self, iterator: Any) -> None:
        """A loader's iterator is asked for a batch of a recorded step."""
        key = id(iterator)
        if key not in self._known and len(self._known) < _MOST_LOADERS:
            self._known.add(key)
            with suppress(Exception):  # the script's own classes may be of any kind
                made = made_by(iterator)
                self.loaders += [made] if made not in self.loaders else []

    def note(self, iterator: Any) -> None:
        """A loader's iterator is asked for a batch."""
        if self._latest is None or self._latest() is not iterator:
            self._latest = weakref.ref(iterator)
        self.n_workers = max(self.n_workers, int(getattr(iterator, "_num_workers", 0)))
        prefetch = int(getattr(iterator, "_prefetch_factor", 0) or 0)
        self.n_batches = max(self.n_batches, self.n_workers * prefetch)
