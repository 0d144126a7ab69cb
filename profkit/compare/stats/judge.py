"""Did the change help? Two sets of runs to one of four answers, with the error rate that is promised.

What is counted is runs. Steps of one process share its allocator, clocks and placement, so they are never independent
samples: tests on the steps of one run per side call 81 % of no-changes significant (docs/statistics.md 1).

What is done depends on the number of runs n of the smaller side:

    n = 1     the ratio, nothing else: one run cannot tell
    n = 2     Welch's interval as a pilot, no answer: its width hangs on one or two degrees of freedom
    n = 3     Welch's t on logs; an exact permutation test cannot go below p = 0.10
    n = 4, 5  Welch's t on logs and the exact permutation test, which must both see it
    n >= 6    Welch's t on logs
    blocks    Student's t on the log ratios within blocks: interleaved runs share the machine's drift, which cancels
"""

from __future__ import annotations

import math
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from profkit.compare.stats import sentences
from profkit.compare.stats.inference import Estimate, paired, permutation_p, welch
from profkit.compare.stats.sample import Sample
from profkit.model.documents.comparison import Answer, Judgement
from profkit.model.grouped import grouped

__all__ = ["DEFAULT_ALPHA", "DEFAULT_MARGIN", "MIN_RUNS", "Answer", "Judgement", "Sample", "judge"]

DEFAULT_MARGIN: Final = 0.02
"""Changes below it do not matter: about the run-to-run noise of a quiet machine (chosen; say yours before looking)."""
DEFAULT_ALPHA: Final = 0.05
MIN_RUNS: Final = 3
"""Runs on the smaller side from which an answer is given."""
_MIN_PERMUTED: Final = 4
_MAX_PERMUTED: Final = 5
_SMALL_CHANGE: Final = math.log(1.05)
_MOST_SPREAD: Final = 100
"""Spread of the runs over the change to be seen, up to which the runs that would see it are counted (chosen).

Beyond it they are more than 100,000 a side.
"""


def judge(
    baseline: Sample,
    candidate: Sample,
    *,
    margin: float = DEFAULT_MARGIN,
    alpha: float = DEFAULT_ALPHA,
    metric: str = "",
) -> Judgement:
    """The answer, with at most `alpha` false alarms where nothing changed.

    `equivalent` means that the 1 - 2 alpha interval lies within a factor 1 + margin of no change (two one-sided tests,
    Schuirmann 1987); it goes before improved and regressed, since a change within the margin does not matter. Raises
    ValueError for samples of different units or directions.

    The seed's prefetch study, four runs each, is the check: -3.3 %, interval [-8.2, +1.6] %, Welch p = 0.14, detectable
    about 7 %, inconclusive. Those are the figures of raw values; logs give [-8.2, +1.7] % and the same p to two digits.
    """
    if (baseline.unit, baseline.higher_is_better) != (candidate.unit, candidate.higher_is_better):
        raise ValueError(f"samples of different kinds: {baseline.unit!r} and {candidate.unit!r}")
    arms = _arms(baseline, candidate)
    draft = _draft(baseline, candidate, arms, margin, metric)
    if min(arms.n) == 1:
        return replace(draft, sentence=sentences.verdict(draft, baseline, candidate, alpha))
    logs = _Arms(baseline=_logs(arms.baseline), candidate=_logs(arms.candidate), is_paired=arms.is_paired)
    on_logs, on_values = logs.estimate(), arms.estimate()
    if on_logs is None or on_values is None:
        draft = replace(draft, test="none: no spread", method_note=sentences.NO_SPREAD)
        return replace(draft, sentence=sentences.verdict(draft, baseline, candidate, alpha))
    low, high = _interval(on_logs, on_values, arms.mean_baseline, alpha)
    permuted = logs.permutation_p()
    is_seen = on_logs.p_value < alpha and not low <= 0 <= high and (permuted is None or permuted < alpha)
    answer = Answer.INCONCLUSIVE
    if min(arms.n) >= MIN_RUNS:
        answer = _answer(on_logs, is_seen=is_seen, higher_is_better=baseline.higher_is_better, limits=(margin, alpha))
    change = replace(
        draft,
        answer=answer,
        interval=(low, high) if baseline.higher_is_better else (-high, -low),
        p_value=on_logs.p_value,
        test=sentences.test(is_paired=arms.is_paired, is_permuted=permuted is not None),
        minimum_detectable_effect=math.expm1(on_logs.detectable(alpha)),
        runs_to_settle=_runs_to_settle(on_logs, arms, margin, alpha) if answer is Answer.INCONCLUSIVE else None,
        method_note=sentences.method(arms.n, is_paired=arms.is_paired, permuted=permuted),
    )
    return replace(change, sentence=sentences.verdict(change, baseline, candidate, alpha))


class _Arms(msgspec.Struct, frozen=True, kw_only=True):
    """The values to be tested: of each run, or in a blocked design of each block the mean run of either side."""

    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    is_paired: bool

    @property
    def n(self) -> tuple[int, int]:
        return len(self.baseline), len(self.candidate)

    @property
    def mean_baseline(self) -> float:
        return float(np.mean(self.baseline))

    def estimate(self) -> Estimate | None:
        if self.is_paired:
            return paired([new - old for old, new in zip(self.baseline, self.candidate, strict=True)])
        return welch(self.baseline, self.candidate)

    def permutation_p(self) -> float | None:
        is_wanted = not self.is_paired and _MIN_PERMUTED <= min(self.n) <= _MAX_PERMUTED
        return permutation_p(self.baseline, self.candidate) if is_wanted else None


def _arms(baseline: Sample, candidate: Sample) -> _Arms:
    """Pair the blocks that both sides have; one block, or a block here and there in common, is no blocked design."""
    old, new = _by_block(baseline), _by_block(candidate)
    shared = sorted(old.keys() & new.keys())
    if len(shared) < 2 or (old.keys() != new.keys() and len(shared) < MIN_RUNS):
        return _Arms(baseline=baseline.values, candidate=candidate.values, is_paired=False)
    return _Arms(
        baseline=tuple(old[block] for block in shared), candidate=tuple(new[block] for block in shared), is_paired=True
    )


def _by_block(sample: Sample) -> dict[int, float]:
    """The geometric mean of a block's runs: their logs are what is compared."""
    of_block = grouped(zip(sample.blocks, map(math.log, sample.values), strict=False))  # or it has no blocks at all
    return {block: math.exp(float(np.mean(logs))) for block, logs in of_block.items()}


def _logs(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(math.log(value) for value in values)


def _draft(baseline: Sample, candidate: Sample, arms: _Arms, margin: float, metric: str) -> Judgement:
    """What holds for any number of runs."""
    ratio = float(np.mean(arms.candidate)) / arms.mean_baseline
    return Judgement(
        metric=metric,
        unit=baseline.unit,
        higher_is_better=baseline.higher_is_better,
        baseline_mean=baseline.mean,
        candidate_mean=candidate.mean,
        answer=Answer.INCONCLUSIVE,
        ratio=ratio,
        effect=ratio - 1 if baseline.higher_is_better else 1 - ratio,
        interval=None,
        p_value=None,
        test="none: one run per side" if max(arms.n) == 1 else "none: one run on one side",
        n=arms.n,
        unit_of_replication="run",
        margin=margin,
        minimum_detectable_effect=None,
        runs_to_settle=None,
        method_note=sentences.spread_of_steps(baseline, candidate),
        sentence="",
    )


def _interval(on_logs: Estimate, on_values: Estimate, unit: float, alpha: float) -> tuple[float, float]:
    """The interval of candidate / baseline - 1.

    Of a change within 5 % it is that of the difference of means, which anyone can recompute; the interval on logs
    differs from it by a tenth of a point. It ignores the baseline's own error, which costs half a percent of coverage
    at 5 % and more beyond (simulated), where the interval on logs is given.
    """
    if abs(on_logs.difference) <= _SMALL_CHANGE:
        low, high = on_values.interval(alpha)
        return low / unit, high / unit
    low, high = on_logs.interval(alpha)
    return math.expm1(low), math.expm1(high)


def _answer(on_logs: Estimate, *, is_seen: bool, higher_is_better: bool, limits: tuple[float, float]) -> Answer:
    margin, alpha = limits
    low, high = on_logs.interval(2 * alpha)
    if -math.log1p(margin) < low and high < math.log1p(margin):
        return Answer.EQUIVALENT
    if not is_seen:
        return Answer.INCONCLUSIVE
    return Answer.IMPROVED if (on_logs.difference > 0) == higher_is_better else Answer.REGRESSED


def _runs_to_settle(on_logs: Estimate, arms: _Arms, margin: float, alpha: float) -> int | None:
    """The runs per side that see the effect found, or the margin if that is larger; more than there were.

    None where the spread hides it from any number of runs that is made.
    """
    target = max(abs(on_logs.difference), math.log1p(margin))
    if math.sqrt(on_logs.variance) > _MOST_SPREAD * target:
        return None
    return max(on_logs.runs_to_detect(target, alpha), max(arms.n) + 1, MIN_RUNS)
