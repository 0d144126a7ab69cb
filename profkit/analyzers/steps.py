"""How long the steps are, and how much they vary."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.base import Analyzer
from profkit.model.arrays import I64, median, quantile
from profkit.model.documents.rank_report import Section, Steps, TableView
from profkit.model.finding import Skipped
from profkit.model.intervals import Intervals
from profkit.timeline import Facts
from profkit.timeline.host import loader_ranges
from profkit.timeline.steps import EDGES_ON_DEVICE, edges, step_lengths_ns, steps_in_window, whole_steps
from profkit.units import format_ns, format_numbers

_MANY_FETCHES: Final = 3
"""Batches to one of the usual step, from which another loop is in a step; as `profkit capture` has it."""
_FASTER: Final = 1.25
"""Unprofiled over recorded step, from which the recording is of a faster stretch of the run. Chosen: a profiler makes no
step shorter, and captures of a steady job differ by a tenth."""


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of the steps in the window, ns, in order, and where the steps come from."""

    source: str
    numbers: tuple[int, ...]
    durations_ns: tuple[int, ...]


def measure(facts: Facts) -> StepTimes | Skipped:
    """The step times, unless no steps were found."""
    steps = steps_in_window(facts.trace)
    traits = facts.trace.meta.traits
    if not steps:
        return Skipped(
            analyzer="steps",
            reason=f"no {traits.step_marks}, and the launch sequence shows no period with an optimizer or a batch copy",
            how_to_get=traits.how_to_mark_steps,
        )
    return StepTimes(
        source=facts.trace.step_source,
        numbers=tuple(step.number for step in steps),
        durations_ns=tuple(step_lengths_ns(facts.trace).tolist()),
    )


def summary(result: StepTimes | None) -> Steps:
    """The numbers of the report; where steps are marked, the mean is the window's time per step."""
    if result is None:
        return Steps(n=0, source="span", mean_ns=None, p50_ns=None, p95_ns=None, cv=None)
    durations = np.array(result.durations_ns, np.int64)
    mean = float(durations.mean())
    return Steps(
        n=durations.size,
        source=result.source,
        mean_ns=round(mean),
        p50_ns=int(quantile(durations, 0.50)),
        p95_ns=int(quantile(durations, 0.95)),
        cv=float(durations.std(ddof=1) / mean) if durations.size > 1 and mean else 0.0,
        durations_ns=result.durations_ns,
    )


def present(result: StepTimes) -> Section:
    """Show every step."""
    rows = tuple(zip(result.numbers, result.durations_ns, strict=True))
    return Section(
        analyzer="steps",
        title="steps",
        values={"n_steps": len(rows), "source": result.source},
        tables=(TableView(title="steps", headers=("step", "time"), units=("count", "ns"), rows=rows),),
    )


def fetches_per_step(facts: Facts) -> I64:
    """How many batches each step fetches, shape (n,); empty where steps do not begin on the host."""
    trace = facts.trace
    steps = whole_steps(trace)
    if not steps or trace.step_source in EDGES_ON_DEVICE:
        return np.empty(0, np.int64)
    mine = loader_ranges(trace.spans, facts.host.threads)[0]
    begun = Intervals.of(trace.spans.start_ns[mine], trace.spans.end_ns[mine]).start_ns  # ranges inside others apart
    start, end = edges(steps)
    place = np.searchsorted(start, begun, "right") - 1
    inside = (place >= 0) & (begun < end[place])
    return np.bincount(place[inside], minlength=start.size).astype(np.int64)


def notes(facts: Facts) -> tuple[str, ...]:
    """What limits the window as an example of the run, in sentences."""
    return (*_other_loop(facts), *_faster(facts))


def _other_loop(facts: Facts) -> tuple[str, ...]:
    counts = fetches_per_step(facts)
    if counts.size == 0:
        return ()
    usual = median(counts)
    odd = np.flatnonzero(counts >= _MANY_FETCHES * max(usual, 1))
    if odd.size == 0:
        return ()
    steps = whole_steps(facts.trace)
    numbers = [steps[place].number for place in odd.tolist()]
    who = f"step {numbers[0]} fetches" if odd.size == 1 else f"steps {format_numbers(numbers)} fetch up to"
    first, last = _longest_without(odd, counts.size)
    out = f" (--step-range {first}:{last} leaves {'it' if odd.size == 1 else 'them'} out)" if last - first > 1 else ""
    it = "it" if odd.size == 1 else "them"
    return (f"{who} {int(counts.max())} batches, the others {usual}: is a validation in {it}?{out}",)


def _longest_without(odd: I64, n: int) -> tuple[int, int]:
    """The longest stretch of steps without the odd ones, as first and one past the last."""
    bounds = [-1, *odd.tolist(), n]
    gaps = [(after - before - 1, before + 1, after) for before, after in pairwise(bounds)]
    _, first, last = max(gaps, key=lambda gap: gap[0])
    return first, last


def _faster(facts: Facts) -> tuple[str, ...]:
    plain, profiled = facts.trace.meta.unprofiled_step_ns, facts.trace.meta.profiled_step_ns
    if plain is None or profiled is None or plain < _FASTER * profiled:
        return ()
    said = (
        f"the steps before the recording took {format_ns(plain)}, the recorded ones {format_ns(profiled)}: the run was not"
        " steady, or shares its machine; record again, later in the run (--unprofiled-steps 30)"
    )
    return (said,)


ANALYZER = Analyzer(
    name="steps",
    question="how long is a step, and how much does it vary?",
    needs="ProfilerStep# markers, optimizer ranges or a repeating launch sequence",
    measure=measure,
    present=present,
)
