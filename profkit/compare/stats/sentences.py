"""The words of a judged change: one sentence to read, one note for who checks. Decides nothing."""

from __future__ import annotations

from typing import Final

from profkit.compare.stats.inference import batch_means_error
from profkit.compare.stats.sample import Sample
from profkit.model.documents.comparison import Answer, Judgement
from profkit.units import (
    format_change,
    format_effect,
    format_fraction,
    format_quantity,
    format_speedup,
    format_time_change,
)

_TWICE: Final = 2
"""Ratio from which a change is said as a factor (chosen): "80 % faster" of a fifth of the time misleads."""
UNLIKE_WINDOWS: Final = "the windows may hold different work"
NO_SPREAD: Final = "the runs of each side are equal to the last digit: rounded or copied values do not show the noise"


def test(*, is_paired: bool, is_permuted: bool) -> str:
    """The name of the test that was made."""
    if is_paired:
        return "paired t on log ratios of blocks"
    return "Welch t on log values and exact permutation" if is_permuted else "Welch t on log values"


def method(n: tuple[int, int], *, is_paired: bool, permuted: float | None) -> str:
    """What a reader who checks needs to know of the test."""
    parts = []
    if is_paired:
        parts.append("runs were interleaved: they are compared within blocks, and n counts blocks")
    if min(n) == 2:
        parts.append("a pilot: two runs on a side give an interval, but no answer")
    if permuted is not None:
        parts.append(f"exact permutation p = {permuted:.2g}; both tests must see a change")
    return "; ".join(parts)


def verdict(change: Judgement, baseline: Sample, candidate: Sample, alpha: float) -> str:
    """The change in one sentence: the means, the difference with its interval, n, and what would settle it.

    Percentages are of the value that was measured: a step that takes longer is `+2.9 %`.
    """
    means = means_moved(baseline.mean, candidate.mean, baseline.unit)
    moved = f"{means}, {format_change(change.change)}"
    runs = _runs(change)
    if min(change.n) == 1:
        return f"{means}{_seen(change)}; unproven: {runs} cannot rule out noise"
    if change.interval is None or change.p_value is None or change.minimum_detectable_effect is None:
        return f"{moved}, {runs}: {change.method_note}"
    level = f"{100 * (1 - alpha):g} % interval"
    low, high = change.change_interval or change.interval
    interval = f"{format_change(low).removesuffix(' %')} to {format_change(high)}"
    probability = "p < 0.001" if change.p_value < 0.001 else f"p = {change.p_value:.2g}"
    seen = f"{moved} ({level} {interval}), {runs}, {probability}"
    if change.answer is Answer.EQUIVALENT:
        return f"no change beyond {format_fraction(change.margin)}: {seen}"
    if change.answer is not Answer.INCONCLUSIVE:
        return seen
    sees = f"these runs can show changes of {format_effect(change.minimum_detectable_effect)} or more"
    if change.runs_to_settle is None:
        return f"{seen}; {sees}"
    target = max(abs(change.ratio - 1), change.margin)
    more = f"{change.runs_to_settle} {'blocks' if _is_blocked(change) else 'runs each'}"
    return f"{seen}; {sees}; {more} would show {format_fraction(target)}"


def of_unlike_windows(change: Judgement, baseline: Sample, candidate: Sample) -> str:
    """The change of recorded windows that may hold different work: what was seen, and why it proves nothing."""
    means = means_moved(baseline.mean, candidate.mean, baseline.unit)
    noise = f", and {_runs(change)} cannot rule out noise" if min(change.n) == 1 else ""
    return f"{UNLIKE_WINDOWS}, so this is unproven{noise}: {means}{_seen(change)}"


def _seen(change: Judgement) -> str:
    """What these runs did, in words: `: 40.0 % less time (1.67x) in this pair`."""
    where = "in this pair" if max(change.n) == 1 else "in these runs"
    moved = f", {format_change(change.change)}: "
    if abs(change.effect) < change.margin or not change.effect:
        beyond = f" beyond {format_fraction(change.margin)}" if change.margin else ""
        return f"{moved}no change{beyond} {where}"
    if change.unit.startswith("ns"):
        return f": {format_time_change(change.ratio)} {where}"
    is_speed = change.unit.endswith("/s")
    words = ("faster", "slower") if is_speed else ("better", "worse")
    factor = max(change.ratio, 1 / change.ratio)
    size = format_speedup(factor) if factor >= _TWICE else format_fraction(abs(change.change))
    word = words[change.effect < 0] if is_speed or factor < _TWICE else ("higher" if change.ratio > 1 else "lower")
    return f"{moved}{size} {word} {where}"


def means_moved(before: float, after: float, unit: str) -> str:
    """Two means, the unit of the first left out where the second has the same: `14,713 -> 100,923 tokens/s`."""
    first, second = format_quantity(before, unit), format_quantity(after, unit)
    number, _, of = first.partition(" ")
    return f"{number if second.endswith(f' {of}') else first} -> {second}"


def _runs(change: Judgement) -> str:
    first, second = change.n
    if _is_blocked(change):
        return f"{first} block" + "s" * (first != 1)
    return f"{first} run{'s' * (first != 1)} each" if first == second else f"{first} and {second} runs"


def _is_blocked(change: Judgement) -> bool:
    return change.test == test(is_paired=True, is_permuted=False)


def spread_of_steps(baseline: Sample, candidate: Sample) -> str:
    """How well the steps of single runs fix their own means: a description, never a comparison of the sides."""
    errors = [batch_means_error(steps) for sample in (baseline, candidate) for steps in sample.steps]
    known = [error for error in errors if error is not None]
    if not known:
        return ""
    return (
        f"within a run, the mean step is known to within {format_fraction(max(known))} (batch means); "
        "how much runs differ is unknown"
    )
