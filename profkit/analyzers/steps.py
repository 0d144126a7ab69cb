"""How long the steps are, how much they vary, and how much of what they compute is padding."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.base import Analyzer, Scope, scope_of
from profkit.analyzers.tools import equal_batches
from profkit.findings.ranks.tokens import PADDING
from profkit.model.arrays import I64, median, quantile
from profkit.model.documents.rank_report import UNEVEN, Section, Steps, TableView
from profkit.model.finding import Evidence, Finding, NextTool, Skipped
from profkit.model.intervals import Intervals
from profkit.plain import clean
from profkit.timeline import Facts
from profkit.timeline.code.helpers import whole_ns
from profkit.timeline.input import loader_ranges
from profkit.timeline.steps import (
    EDGES_ON_DEVICE,
    edges,
    needed_ns,
    step_lengths_ns,
    steps_in_window,
    told,
    whole_steps,
)
from profkit.timeline.whole_run import whole_run
from profkit.units import MANY_FETCHES, format_count, format_fraction, format_ns, format_numbers

_COUNTED: Final = 0.85
"""Confidence in what padding takes: tokens are counted, that compute grows with them is an assumption. Chosen."""
_FASTER: Final = 1.25
"""Unprofiled over recorded step, from which the recording is of a faster stretch of the run. Chosen: a profiler makes no
step shorter, and captures of a steady job differ by a tenth."""

_OF_LOOPS: Final = 0.4
"""The recorded loop's share of the time of all loops of the run, below which it is not the job while another is longer.
Chosen: of two loops that alternate and take alike, either may be looked at."""
_OPTIONS: Final = re.compile(r"(--[a-z]+(-[a-z]+)* \d{1,9}( |\Z))+")
_MOST_CHARS: Final = 200

_FEW: Final = 5
UNEVEN_CAP: Final = 0.6
"""The most that a verdict may claim on fewer steps than that, if they differ so much that none of them is the usual one.
Chosen: as where there are one or two."""


class Padding(msgspec.Struct, frozen=True, kw_only=True):
    """What the script told of its steps' tokens, summed over the steps of the window that have both counts."""

    scope: Scope
    n_steps: int
    tokens: int
    padded_tokens: int
    """With the padding."""
    compute_ns: int
    """Of these steps."""
    spared_ns: int
    """Of that, what padding takes if compute grows with tokens."""

    @property
    def waste(self) -> float:
        """The share of the computed tokens that are padding, 0-1."""
        return 1 - self.tokens / self.padded_tokens


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of the steps in the window, ns, in order, and where the steps come from."""

    source: str
    numbers: tuple[int, ...]
    durations_ns: tuple[int, ...]
    padding: Padding | None = None
    """None where the script told no padded tokens beside real ones, or fewer of them."""


def measure(facts: Facts) -> StepTimes | Skipped:
    """The step times, unless no steps were found."""
    steps = steps_in_window(facts.trace)
    traits = facts.trace.meta.traits
    if not steps:
        return Skipped(
            reason=f"no {traits.step_marks}, and the launch sequence shows no period with an optimizer or a batch copy",
            how_to_get=traits.how_to_mark_steps,
        )
    return StepTimes(
        source=facts.trace.step_source,
        numbers=tuple(step.number for step in steps),
        durations_ns=tuple(step_lengths_ns(facts.trace).tolist()),
        padding=_padding(facts),
    )


def _padding(facts: Facts) -> Padding | None:
    trace, (low, high) = facts.trace, facts.trace.window_ns
    if len(trace.work) == 0:
        return None
    start, end = edges(trace.steps)
    counts = told(trace)
    tokens, padded = counts["tokens"], counts["padded_tokens"]
    known = (start >= low) & (end <= high) & (tokens > 0) & (padded > 0)
    if not known.any() or (padded < tokens)[known].any():
        return None
    start, end, tokens, padded = start[known], end[known], tokens[known], padded[known]
    compute = facts.busy.compute.covered_ns(start, end)
    return Padding(
        scope=scope_of(facts),
        n_steps=tokens.size,
        tokens=int(tokens.sum()),
        padded_tokens=int(padded.sum()),
        compute_ns=int(compute.sum()),
        spared_ns=round(float((compute - needed_ns(compute, tokens, padded)).sum())),
    )


def judge(result: StepTimes) -> tuple[Finding, ...]:
    """`padding.waste` where the job is of one rank; of several, all ranks together tell it."""
    padding = result.padding
    if padding is None or padding.scope.is_of_ranks or padding.waste < PADDING.limit("waste"):
        return ()
    scope, n = padding.scope, padding.n_steps
    spared_ns = padding.spared_ns // n
    return (
        PADDING.found(
            title=f"{format_fraction(padding.waste)} of computed tokens are padding",
            confidence=_COUNTED,
            recoverable_ns=spared_ns,
            fraction=min(scope.fraction(spared_ns * scope.n_steps), 1.0),
            evidence=(
                Evidence.share(
                    "padding.waste_fraction",
                    padding.waste,
                    f"{format_count(padding.tokens)} of {format_count(padding.padded_tokens)} computed tokens are"
                    f" real, in {n} step{'s' * (n > 1)}",
                    expected=f"< {format_fraction(PADDING.limit('waste'))}",
                ),
                Evidence.time(
                    "padding.recoverable_ns",
                    spared_ns,
                    f"compute takes {format_ns(padding.compute_ns // n)} per step; without padding it takes"
                    f" {format_ns(spared_ns)} less, if it grows with tokens",
                ),
            ),
            fix="; or ".join(PADDING.fixes),
            next_tools=(equal_batches(scope),),
        ),
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


def confidence_cap(steps: Steps) -> float:
    """The most a verdict may claim, given how many steps there are and how much they differ."""
    is_sure = steps.n >= _FEW or (steps.cv or 0.0) <= UNEVEN
    return 1.0 if is_sure else UNEVEN_CAP


def present(result: StepTimes) -> Section:
    """Show every step."""
    rows = tuple(zip(result.numbers, result.durations_ns, strict=True))
    return Section(
        title="steps",
        values={"n_steps": len(rows), "source": result.source},
        tables=(TableView.of("steps", {"step": "count", "time": "ns"}, rows),),
    )


def fetches_per_step(facts: Facts) -> I64:
    """How many batches each step fetches, shape (n,); empty where steps do not begin on the host."""
    trace = facts.trace
    steps = whole_steps(trace)
    if not steps or trace.step_source in EDGES_ON_DEVICE:
        return np.empty(0, np.int64)
    mine = loader_ranges(trace.spans, facts.host.threads)[0]
    begun = Intervals.of_rows(trace.spans, mine).start_ns  # ranges inside others apart
    start, end = edges(steps)
    place = np.searchsorted(start, begun, "right") - 1
    inside = (place >= 0) & (begun < end[place])
    return np.bincount(place[inside], minlength=start.size).astype(np.int64)


def not_the_job(facts: Facts) -> tuple[str, NextTool | None]:
    """Why the recorded steps are not of the loop that takes the run's time, and what records that; ("", None) if they are.

    As the capture tells it, which timed all loops of the run.
    """
    told = facts.trace.meta.metadata.get("profkit_other_loop")
    if not isinstance(told, dict) or (facts.trace.meta.world_size or 1) > 1:
        return "", None
    share, options, spent_ns = told.get("share"), told.get("options"), whole_ns(told.get("spent_ns"))
    if not isinstance(share, float) or not 0 <= share < _OF_LOOPS or not spent_ns:
        return "", None
    if not isinstance(options, str) or not _OPTIONS.fullmatch(options):
        return "", None
    other, mine = (clean(str(told.get(key, "")))[:_MOST_CHARS] for key in ("name", "recorded"))
    why = (
        f"its steps are of the loop of {mine}, {format_fraction(share)} of the time of the run's loops; that of {other}"
        f" took {format_ns(spent_ns)} and ended before it could be recorded"
    )
    line = scope_of(facts).command.under(f"profkit run {options}")
    return why, NextTool(
        name="profkit", line=line, purpose="record the loop that takes the time", look_for="its verdict"
    )


def notes(facts: Facts) -> tuple[str, ...]:
    """What limits the window as an example of the run, in sentences."""
    return tuple(filter(None, (_fewer(facts), _other_loop(facts), _faster(facts), _unsteady(facts))))


def _fewer(facts: Facts) -> str:
    """That the recording ended early, since to write so many operators may take long."""
    wanted = whole_ns(facts.trace.meta.metadata.get("profkit_steps_wanted"))
    if not wanted:
        return ""
    return (
        f"fewer than {wanted} steps were recorded: to write the operators of more may hold the script up for long, by"
        f" the memory that they take (--steps {wanted} records them all)"
    )


def _other_loop(facts: Facts) -> str:
    counts = fetches_per_step(facts)
    if counts.size == 0:
        return ""
    usual = median(counts)
    odd = np.flatnonzero(counts >= MANY_FETCHES * max(usual, 1))
    if odd.size == 0:
        return ""
    steps = whole_steps(facts.trace)
    numbers = [steps[place].number for place in odd.tolist()]
    who = f"step {numbers[0]} fetches" if odd.size == 1 else f"steps {format_numbers(numbers)} fetch up to"
    first, last = _longest_without(odd, counts.size)
    out = f" (--step-range {first}:{last} leaves {'it' if odd.size == 1 else 'them'} out)" if last - first > 1 else ""
    it = "it" if odd.size == 1 else "them"
    return f"{who} {int(counts.max())} batches, the others {usual}: is a validation in {it}?{out}"


def _longest_without(odd: I64, n: int) -> tuple[int, int]:
    """The longest stretch of steps without the odd ones, as first and one past the last."""
    bounds = [-1, *odd.tolist(), n]
    gaps = [(after - before - 1, before + 1, after) for before, after in pairwise(bounds)]
    _, first, last = max(gaps, key=lambda gap: gap[0])
    return first, last


def _faster(facts: Facts) -> str:
    plain, profiled = facts.trace.meta.unprofiled_step_ns, facts.trace.meta.profiled_step_ns
    if plain is None or profiled is None or plain < _FASTER * profiled:
        return ""
    return (
        f"the steps before the recording took {format_ns(plain)}, the recorded ones {format_ns(profiled)}: the run was not"
        " steady, or shares its machine; record again, later in the run (--unprofiled-steps 30)"
    )


def _unsteady(facts: Facts) -> str:
    run = whole_run(facts.trace)
    if run is None or not (run.is_slower or run.is_faster):
        return ""
    return (
        f"the run becomes {'slower' if run.is_slower else 'faster'}: {format_ns(run.first_ns)} a step in its"
        f" first third, {format_ns(run.last_ns)} in its last, without the profiler"
    )


ANALYZER = Analyzer(
    name="steps",
    question="how long is a step, how much does it vary, and how much of it computes padding?",
    needs="ProfilerStep# markers, optimizer ranges or a repeating launch sequence",
    measure=measure,
    present=present,
    judge=judge,
)
