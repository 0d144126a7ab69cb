"""Interleaved repeats of two commands: the order of runs, when to stop, what the machine did meanwhile.

Runs alternate in blocks of one run per arm, so that a machine that warms up or slows down does so for both. The arms
are compared within blocks (`judge`), which is said before the first run.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from profkit.compare.bench.process import SETTLING_STEPS, Outcome
from profkit.compare.stats.inference import paired, two_sided_p
from profkit.compare.stats.judge import DEFAULT_ALPHA, DEFAULT_MARGIN, MIN_RUNS, judge
from profkit.compare.stats.sample import Sample, variation
from profkit.model.documents.bench import Arm, BenchReport, Drift
from profkit.model.documents.comparison import Answer, Judgement

ARMS: Final = ("A", "B")
_FIRST_LOOK: Final = 4
"""Blocks before the first look at an early end: a paired t of fewer has hardly any power at such levels."""
_EARLY_ALPHA: Final = 0.005
"""Error spent on all early looks together; the last look keeps the rest."""
_DRIFT_FROM: Final = 0.01
_EFFECTS: Final = (0.01, 0.02, 0.05)
_MEASURES: Final = (  # the first that every run told is judged
    ("metric", "", True),
    ("tokens_per_s", "tokens/s", True),
    ("samples_per_s", "samples/s", True),
    ("step_ns", "ns/step", False),
    ("wall_ns", "ns", False),
)


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One measured run: its place in the session, from 0, its block, and the arm it belongs to."""

    order: int
    block: int
    arm: str
    outcome: Outcome


class Design(msgspec.Struct, frozen=True, kw_only=True):
    """What is said before the first run; `unit`, `scale`, `higher_is_better` are of a metric read from the output."""

    n_blocks: int
    seed: int = 0
    stops_early: bool = False
    margin: float = DEFAULT_MARGIN
    alpha: float = DEFAULT_ALPHA
    unit: str = ""
    scale: float = 1.0
    higher_is_better: bool = True


def orders(n_blocks: int, seed: int) -> list[tuple[str, str]]:
    """The order of arms in each block: ABBA or BAAB, drawn for every two blocks, so that linear drift cancels.

    The session begins with A: who reads the table takes the arm of its first row for the baseline.
    """
    draw = random.Random(seed)  # noqa: S311 - an order of runs, no secret
    placed: list[tuple[str, str]] = [ARMS, ARMS[::-1]]
    while len(placed) < n_blocks:
        first = ARMS if draw.random() < 0.5 else ARMS[::-1]
        placed += [first, first[::-1]]
    return placed[:n_blocks]


def looks(n_blocks: int, alpha: float, *, stops_early: bool) -> dict[int, float]:
    """The blocks after which the arms are judged, each with the error it may spend; the sum is alpha.

    Haybittle and Peto's rule: early looks ask for overwhelming evidence, so that the last one keeps nearly all of
    alpha. The chance of any false alarm is at most the sum (Bonferroni), whatever the looks have in common.
    """
    early = range(_FIRST_LOOK, n_blocks) if stops_early else range(0)
    spent = _EARLY_ALPHA * alpha / DEFAULT_ALPHA if early else 0.0
    return {**{block: spent / len(early) for block in early}, n_blocks: alpha - spent}


def measure(
    run: Callable[[str], Outcome], design: Design, *, on_trial: Callable[[Sequence[Trial]], None] = lambda _: None
) -> list[Trial]:
    """The runs of a session, in order; `run` makes one of an arm. `on_trial` is told all runs after each.

    It gets the same growing list that is given at the end, so that a caller keeps what was measured when `run` raises.
    """
    trials: list[Trial] = []
    plan = looks(design.n_blocks, design.alpha, stops_early=design.stops_early)
    for block, order in enumerate(orders(design.n_blocks, design.seed), 1):
        for arm in order:
            trials.append(Trial(order=len(trials), block=block, arm=arm, outcome=run(arm)))
            on_trial(trials)
        if block in plan and block < design.n_blocks:
            change = judged(trials, replace(design, alpha=plan[block]))
            if change is not None and change.answer is not Answer.INCONCLUSIVE:
                break
    return trials


def samples(trials: Sequence[Trial], design: Design) -> tuple[Sample, Sample] | None:
    """Both arms over the blocks that are whole, by the best measure that every run told; None without a block."""
    whole = [trial for trial in trials if sum(other.block == trial.block for other in trials) == len(ARMS)]
    if not whole:
        return None
    column, unit, higher = measure_of(whole)
    scale = 1.0
    if column == "metric":
        unit, higher, scale = design.unit, design.higher_is_better, design.scale

    def sample(arm: str) -> Sample:
        mine = [trial for trial in whole if trial.arm == arm]
        values = tuple(scale * float(getattr(trial.outcome, column)) for trial in mine)
        blocks = tuple(trial.block for trial in mine)
        return Sample(name=arm, values=values, unit=unit, higher_is_better=higher, blocks=blocks)

    return sample(ARMS[0]), sample(ARMS[1])


def measure_of(trials: Sequence[Trial]) -> tuple[str, str, bool]:
    """Field, unit and direction of the measure to judge by."""
    return next(one for one in _MEASURES if all(getattr(trial.outcome, one[0]) is not None for trial in trials))


def judged(trials: Sequence[Trial], design: Design) -> Judgement | None:
    """The change between the arms, None before there is a whole block."""
    pair = samples(trials, design)
    return judge(*pair, margin=design.margin, alpha=design.alpha) if pair is not None else None


def report(
    trials: Sequence[Trial], design: Design, commands: Mapping[str, str], *, is_same: bool = False
) -> BenchReport | None:
    """What a session found; None without a whole block. `is_same` says that both arms run one command."""
    pair = samples(trials, design)
    if pair is None:
        return None
    n_blocks = len(pair[0].values)
    plan = looks(design.n_blocks, design.alpha, stops_early=design.stops_early)
    # A session that was cut short between looks has spent nothing early: it is judged as its last look would be.
    level = plan.get(n_blocks, plan[design.n_blocks])
    change = judge(*pair, margin=design.margin, alpha=level)
    return BenchReport(
        answer=change.answer.value,
        sentence=change.sentence,
        effect=change.effect,
        interval=change.interval,
        level=1 - level,
        p_value=change.p_value,
        minimum_detectable_effect=change.minimum_detectable_effect,
        runs_to_settle=change.runs_to_settle,
        margin=design.margin,
        is_same=is_same,
        n_blocks=n_blocks,
        n_planned=design.n_blocks,
        arms=(_arm(pair[0], commands), _arm(pair[1], commands)),
        blocks_for=_blocks_for(pair, design.alpha),
        drift=drift_of(trials, pair),
        judged_by=_judged_by(trials),
    )


def _judged_by(trials: Sequence[Trial]) -> str:
    """In words, the number of a run that the arms are compared by."""
    column, _, _ = measure_of(trials)
    outcomes = [trial.outcome for trial in trials]
    steps = f"the first {SETTLING_STEPS} steps of a run left out"
    if column == "metric":
        fewest, most = min(one.n_matches for one in outcomes), max(one.n_matches for one in outcomes)
        count = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        return f"the last match of --metric-regex in a run's output, of {count}"
    if column == "wall_ns":
        return "the wall time of the whole process, start-up included: not every run had steps to be seen"
    if column == "step_ns":
        sources = sorted({one.step_source for one in outcomes if one.step_source})
        return f"the mean step, {steps}; a step ends by {' or '.join(sources)}"
    return f"what the script counts with profkit.capture.step(), {steps}"


def _blocks_for(pair: tuple[Sample, Sample], alpha: float) -> tuple[tuple[float, int], ...]:
    """How many blocks would see each of a few changes, by the spread of this session."""
    ratios = [math.log(new / old) for old, new in zip(pair[0].values, pair[1].values, strict=True)]
    estimate = paired(ratios) if len(ratios) >= MIN_RUNS else None
    if estimate is None:
        return ()
    return tuple((effect, estimate.runs_to_detect(math.log1p(effect), alpha)) for effect in _EFFECTS)


def _arm(arm: Sample, commands: Mapping[str, str]) -> Arm:
    return Arm(name=arm.name, command=commands[arm.name], mean=arm.mean, unit=arm.unit, cv=variation(arm.values))


def drift_of(trials: Sequence[Trial], arms: Sequence[Sample]) -> Drift | None:
    """The trend of log values over the session, arms set equal; None below three blocks of two arms."""
    of_arms = ((sample.name, zip(sample.blocks, sample.values, strict=True)) for sample in arms)
    by_run = {(name, block): value for name, runs in of_arms for block, value in runs}
    kept = [trial for trial in trials if (trial.arm, trial.block) in by_run]
    n_runs = len(kept)
    if n_runs < 3 * len(arms):
        return None
    logs = np.log([by_run[trial.arm, trial.block] for trial in kept])
    own = [np.array([float(trial.arm == sample.name) for trial in kept]) for sample in arms]
    columns = np.column_stack((*own, np.linspace(0, 1, n_runs)))
    solution, *_ = np.linalg.lstsq(columns, logs, rcond=None)
    rest = logs - columns @ solution
    df = n_runs - len(arms) - 1
    variance = float(rest @ rest) / df * float(np.linalg.inv(columns.T @ columns)[-1, -1])
    slope = float(solution[-1])
    p_value = two_sided_p(slope / math.sqrt(variance), df) if variance > 0 else 1.0
    return Drift(
        fraction=math.expm1(slope), p_value=p_value, is_seen=abs(slope) > _DRIFT_FROM and p_value < DEFAULT_ALPHA
    )


def table(trials: Sequence[Trial], names: Mapping[str, str], metric: str = "metric") -> str:
    """The runs as CSV, one row each, in the order they were made; `profkit compare` reads it."""
    told = [field for field, _, _ in _MEASURES if all(getattr(trial.outcome, field) is not None for trial in trials)]
    headings = {"metric": metric, "step_ns": "step_ms", "wall_ns": "wall_s"}
    scales = {"step_ns": 1e-6, "wall_ns": 1e-9}
    told = [field for field in told if field == "metric" or headings.get(field, field) != metric]
    lines = [",".join(["block", "order", "arm", *(headings.get(field, field) for field in told)])]
    for trial in trials:
        values = [f"{getattr(trial.outcome, field) * scales.get(field, 1):.9g}" for field in told]
        lines.append(",".join([str(trial.block), str(trial.order), names[trial.arm], *values]))
    return "\n".join(lines) + "\n"
