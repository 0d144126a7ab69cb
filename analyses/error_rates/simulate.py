"""Sessions of runs in which nothing changed, or a known change was made: what the judge says of them.

A run is a fresh process: its mean step varies from run to run, its steps follow an AR(1) process around it, and the
machine under all runs may drift. These are the conditions under which tests on steps fail (docs/statistics.md 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profkit.compare.bench.interleaved import ARMS, Design, measure, orders, report
from profkit.compare.bench.process import Outcome
from profkit.compare.stats.judge import Answer, Judgement, Sample, judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """How runs vary: cv from run to run, of steps within a run, and the slow-down from first run to last.

    `correlation` is that of neighbouring steps. `candidate_cv` is the run to run cv of the other side, if it differs.
    """

    run_cv: float = 0.015
    step_cv: float = 0.05
    correlation: float = 0.8
    n_steps: int = 200
    drift: float = 0.0
    candidate_cv: float | None = None


def run_means(rng: np.random.Generator, machine: Machine, shape: tuple[int, ...], cv: float) -> NDArray[np.float64]:
    """Give the mean step of runs: shape as asked for, around 1."""
    steps = rng.normal(0, machine.step_cv, shape)
    total = np.zeros(shape)
    noise = machine.step_cv * math.sqrt(1 - machine.correlation**2)
    for _ in range(machine.n_steps):
        total += steps
        steps = machine.correlation * steps + rng.normal(0, noise, shape)
    return np.exp(rng.normal(0, cv, shape)) * (1 + total / machine.n_steps)


def sessions(
    n_sessions: int, n_runs: int, machine: Machine, *, effect: float = 0.0, seed: int = 0
) -> Iterator[tuple[Sample, Sample]]:
    """Give pairs of samples of step times, with blocks; the candidate's are longer by `effect`."""
    rng = np.random.default_rng((seed, n_runs, round(1e6 * machine.drift), round(1e6 * effect)))
    cvs = machine.run_cv, machine.candidate_cv or machine.run_cv
    arms = [run_means(rng, machine, (n_sessions, n_runs), cv) for cv in cvs]
    arms[1] *= 1 + effect
    places = np.array(
        [[2 * block + order.index(arm) for block, order in enumerate(orders(n_runs, seed))] for arm in ARMS]
    )
    slowed = 1 + machine.drift * places / max(2 * n_runs - 1, 1)
    blocks = tuple(range(n_runs))
    for session in range(n_sessions):
        yield tuple(
            Sample(
                name=name,
                values=tuple(1e7 * arms[arm][session] * slowed[arm]),
                unit="ns/step",
                higher_is_better=False,
                blocks=blocks,
            )
            for arm, name in enumerate(ARMS)
        )  # type: ignore[misc]


def unblocked(pair: tuple[Sample, Sample]) -> tuple[Sample, Sample]:
    """Give the samples as if nobody had written down the blocks."""
    first, second = (
        Sample(name=one.name, values=one.values, unit=one.unit, higher_is_better=one.higher_is_better) for one in pair
    )
    return first, second


def alarms(changes: list[Judgement]) -> float:
    """Give the share of improved and regressed: of sessions without a change, the false alarms."""
    return sum(change.answer in (Answer.IMPROVED, Answer.REGRESSED) for change in changes) / len(changes)


def coverage(changes: list[Judgement], effect: float) -> float:
    """Give the share of intervals that hold the true effect; positive is better, so that slower is negative."""
    given = [change.interval for change in changes if change.interval is not None]
    return sum(low <= -effect <= high for low, high in given) / len(given)


def judge_all(pairs: Iterator[tuple[Sample, Sample]], *, is_blocked: bool, margin: float = 0.001) -> list[Judgement]:
    """Give the judgement of each pair. The margin is small so that no alarm hides behind `equivalent`."""
    return [judge(*(pair if is_blocked else unblocked(pair)), margin=margin) for pair in pairs]


def early_alarms(n_sessions: int, design: Design, machine: Machine, *, seed: int = 0) -> tuple[float, float]:
    """Give the share of false alarms of sessions that may end early, and the mean share of their blocks that ran."""
    rng = np.random.default_rng((seed, 7))
    means = run_means(rng, machine, (n_sessions, 2 * design.n_blocks), machine.run_cv)
    means *= 1 + machine.drift * np.linspace(0, 1, 2 * design.n_blocks)
    found, used = 0, 0
    for session in means:
        values = iter(session)
        trials = measure(lambda _, values=values: Outcome(wall_ns=round(1e9 * next(values))), design)
        result = report(trials, design, dict.fromkeys(ARMS, ""))
        if result is None:
            raise ValueError("a design has at least one block")
        found += result.answer in ("improved", "regressed")
        used += result.n_blocks
    return found / n_sessions, used / (n_sessions * design.n_blocks)
