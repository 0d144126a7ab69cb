"""Labels: what removing a pathology gained, measured in one process that turns it on and off in turns."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec

from analyses.accuracy.programs.loop import is_on
from profkit.compare.stats.inference import t_quantile

Interval = tuple[float, float]


class Times(msgspec.Struct, frozen=True):
    """What a label run writes: when steps ended, ns, how many are in a block, and how many its start leaves out."""

    ends_ns: list[int]
    block: int
    skipped: int


class Label(msgspec.Struct, frozen=True):
    """The share of the step that removal saves, with its 95 % interval, and the mean steps with and without, ns."""

    gain: float
    gain_interval: Interval | None
    step_on_ns: float
    step_off_ns: float
    n_blocks: int


def read_times(path: Path) -> Times:
    """Gives what a label run wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Times)


def blocks(times: Times) -> list[float]:
    """Gives the mean step of each whole block in ns, without its first steps: they show what came before it."""
    n = times.block - times.skipped
    if n < 1:
        raise ValueError(f"blocks of {times.block} steps leave none behind the first {times.skipped}")
    ends, size = times.ends_ns, times.block
    starts = range(times.skipped - 1, len(ends) - n, size)
    return [(ends[start + n] - ends[start]) / n for start in starts]


def label(*runs: Times) -> Label:
    """Gives the label of runs that turned the pathology on and off."""
    return of_pairs([pair for times in runs for pair in pairs(blocks(times))])


def pairs(steps: Sequence[float]) -> list[tuple[float, float]]:
    """Gives the mean steps with and without, ns, of each pair of neighbouring blocks of a run; a last one is left out.

    Which block is with it, `is_on` says.
    """
    return [_on_and_off(steps, first) for first in range(0, len(steps) - 1, 2)]


def of_pairs(found: Sequence[tuple[float, float]]) -> Label:
    """Gives the label of pairs of mean steps, with and without, ns; each pair is one observation.

    The gain is 1 - R, R the mean of blocks without over the mean of blocks with. Its interval is Student's, of the
    residuals off - R x on of the pairs (the ratio estimator of sampling theory).
    """
    on, off = zip(*found, strict=True)
    mean_on, mean_off = statistics.fmean(on), statistics.fmean(off)
    ratio = mean_off / mean_on
    return Label(
        gain=1 - ratio,
        gain_interval=_interval(found, ratio, mean_on),
        step_on_ns=mean_on,
        step_off_ns=mean_off,
        n_blocks=2 * len(found),
    )


def _on_and_off(steps: Sequence[float], first: int) -> tuple[float, float]:
    one, other = steps[first], steps[first + 1]
    return (one, other) if is_on(first) else (other, one)


def _interval(pairs: Sequence[tuple[float, float]], ratio: float, mean_on: float) -> Interval | None:
    if len(pairs) < 2:
        return None
    residuals = [off - ratio * on for on, off in pairs]
    error = (sum(each * each for each in residuals) / (len(pairs) - 1) / len(pairs)) ** 0.5 / mean_on
    reach = t_quantile(0.975, len(pairs) - 1) * error
    return (1 - ratio - reach, 1 - ratio + reach)
