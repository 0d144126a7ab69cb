"""Steps that are slow among others: one of many is no cause, and medians stand beside means where a few make them."""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.compare.captures.measured import SLOW
from profkit.compare.captures.pair import Pair, Reading, measure, reading
from profkit.compare.captures.sides import Run, Side
from profkit.findings.changes import SLOW_STEP
from profkit.model.budget import words
from profkit.units import format_change, format_ns, format_numbers, format_time_change

_FEW: Final = 0.2
"""Of the steps: where more are slow, they are what the job does. Chosen."""
_APART: Final = 0.02
"""By which the changes of means and of medians differ. Chosen, the margin of a comparison."""
_MOST_NAMED: Final = 5
"""Chosen: more numbers do not fit in a sentence."""


def slow_step(pair: Pair) -> Reading | None:
    """The reading that one step of many makes a part of the change."""
    cost = pair.waterfall.delta_ns - pair.steady.delta_ns
    if abs(pair.fraction(cost)) < SLOW_STEP.limit("effect"):
        return None
    found = [(side, slow, trace.n_steps) for side in pair.sides for trace in side.traces if (slow := trace.slow)]
    side, slow, n_steps = max(found, key=lambda item: item[1].duration_ns - item[1].median_ns)
    longest = max(slow.parts, key=lambda name: slow.parts[name])
    said = f"of the slow one {format_ns(slow.parts[longest])} are {words(longest, is_cpu=pair.is_cpu)}"
    steady = f"without it the step changes by {format_change(pair.steady.delta_ns / pair.steady.baseline_ns)}"
    return reading(
        SLOW_STEP,
        f"one step of {n_steps} is slow: step {slow.number} of the {side.name} takes {format_ns(slow.duration_ns)}",
        measure(f"the median step takes {format_ns(slow.median_ns)}; {said}", "slow_step_ns", slow.duration_ns),
        measure(steady, "steady_change_ns", pair.steady.delta_ns),
        fix="record more steps: one slow step says nothing of the change",
        confidence=0.7,
        explained_ns=cost,
    )


def without_slow_step(pair: Pair) -> str:
    """What the step does without the one that is slow, "" where none is, or it changes little."""
    if slow_step(pair) is None:
        return ""
    steady = pair.steady
    return f"without its slow step {format_time_change(steady.candidate_ns / steady.baseline_ns)}"


def medians(sides: tuple[Side, Side]) -> str:
    """What medians say where a few slow steps make the means, "" where both change alike or steps are not known."""
    steps = [side.runs[0].steps_ns(is_unprofiled=False) if len(side.runs) == 1 else () for side in sides]
    if not all(steps):
        return ""
    slow = [np.flatnonzero(np.array(times) > SLOW * np.median(times)) for times in steps]
    if not any(places.size for places in slow) or any(
        places.size > _FEW * len(times) for places, times in zip(slow, steps, strict=True)
    ):
        return ""
    means, middles = ([float(of(times)) for times in steps] for of in (np.mean, np.median))
    changed = [after / before - 1 for before, after in (means, middles)]
    if abs(changed[1] - changed[0]) < _APART:
        return ""
    named = [
        f"{format_numbers(_numbers(side.runs[0], places.tolist()))} of the {side.name} take"
        f"{'s' * (places.size == 1)} over twice its median"
        for side, places in zip(sides, slow, strict=True)
        if 0 < places.size <= _MOST_NAMED
    ]
    told = f"step{'s' * (sum(places.size for places in slow) > 1)} {' and '.join(named)}; " if named else ""
    times = " -> ".join(map(format_ns, middles))
    return f"{told}the median step changes by {format_change(changed[1])} ({times})"


def _numbers(run: Run, places: list[int]) -> list[int]:
    """The job's own numbers of these steps of a run with one trace, else their places."""
    if len(run.traces) > 1:
        return places
    numbers = sorted(run.traces[0].step_numbers)
    return [numbers[place] if place < len(numbers) else place for place in places]
