"""How long the steps are, and how much they vary."""

from __future__ import annotations

import msgspec
import numpy as np

from profkit.analyzers.base import Analyzer
from profkit.model.arrays import quantile
from profkit.model.documents.rank_report import Section, Steps, TableView
from profkit.model.finding import Skipped
from profkit.timeline import Facts
from profkit.timeline.steps import step_lengths_ns, steps_in_window


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


ANALYZER = Analyzer(
    name="steps",
    question="how long is a step, and how much does it vary?",
    needs="ProfilerStep# markers, optimizer ranges or a repeating launch sequence",
    measure=measure,
    present=present,
)
