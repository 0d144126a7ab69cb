"""Runs of several arms in turns: blocks of one run each, in a drawn order, and early ends at a kept error rate."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from profkit.compare.bench.interleaved import Trial as Placed
from profkit.compare.bench.interleaved import looks
from profkit.compare.bench.process import TooLongError
from profkit.compare.stats.judge import DEFAULT_ALPHA, DEFAULT_MARGIN, judge
from profkit.compare.stats.sample import Sample
from profkit.errors import ProfkitError
from profkit.model.documents.comparison import Answer, Judgement
from profkit.trial.outcome import Run
from profkit.units import format_ns

BASELINE: Final = ""
_SLOW: Final = 2
"""Times what the unchanged run takes, from which an arm may be left out for its time. Chosen."""


class Session(msgspec.Struct):
    """Arms by key, the unchanged one first, with their runs by block.

    `failed` says how the run of an arm went wrong, `unmade` why a run came by nothing that the arm changes: neither is
    run again. `settled` has the answers of early looks.
    """

    arms: tuple[str, ...]
    n_blocks: int
    seed: int = 0
    stops_early: bool = True
    runs: dict[str, dict[int, Run]] = {}
    failed: dict[str, str] = {}
    unmade: dict[str, str] = {}
    settled: dict[str, Judgement] = {}
    most_ns: int | None = None
    """What all runs may take, wall time; None without a limit."""
    spent_ns: int = 0
    walls_ns: dict[str, int] = {}
    """What the last run of each arm took, ended ones too."""
    order: list[tuple[str, int]] = []

    @property
    def alpha(self) -> float:
        """The error of one comparison: all of them together have the usual one (Bonferroni)."""
        return DEFAULT_ALPHA / max(len(self.arms) - 1, 1)

    @property
    def left_ns(self) -> int | None:
        """What is left of the time that all runs may take."""
        return None if self.most_ns is None else max(self.most_ns - self.spent_ns, 1)

    def fits(self, arms: Sequence[str]) -> bool:
        """Whether one more block of these arms is over in the time that is left."""
        usual = max(self.walls_ns.values(), default=0)
        return self.left_ns is None or sum(self.walls_ns.get(arm, usual) for arm in arms) <= self.left_ns

    @property
    def n_whole(self) -> int:
        """Blocks that the unchanged arm was run in."""
        return len(self.runs.get(BASELINE, {}))

    def open_arms(self) -> list[str]:
        """The arms that the next block holds; [] where none is left to compare."""
        over = {*self.failed, *self.unmade, *self.settled}
        left = [arm for arm in self.arms if arm not in over]
        return left if left != [BASELINE] else []

    def judged(self, arm: str, alpha: float | None = None) -> Judgement | None:
        """What the blocks that hold both say of an arm beside the unchanged one; None without any.

        A session that was cut short has spent nothing early: it is judged as its last look would be.
        """
        if arm in self.settled:
            return self.settled[arm]
        pair = self.samples(arm)
        last = looks(self.n_blocks, self.alpha, stops_early=self.stops_early)[self.n_blocks]
        return None if pair is None else judge(*pair, margin=DEFAULT_MARGIN, alpha=alpha or last)

    def samples(self, arm: str) -> tuple[Sample, Sample] | None:
        """The step of the unchanged arm and of this one, over the blocks that hold both."""
        mine, base = self.runs.get(arm, {}), self.runs.get(BASELINE, {})
        blocks = tuple(sorted(mine.keys() & base.keys()))
        if not blocks:
            return None

        def sample(name: str, runs: dict[int, Run]) -> Sample:
            values = tuple(runs[block].step_ns for block in blocks)
            return Sample(name=name, values=values, unit="ns/step", higher_is_better=False, blocks=blocks)

        return sample(BASELINE, base), sample(arm, mine)

    def placed(self) -> list[Placed]:
        """All runs in the order they were made (`profkit/compare/bench` measures the drift of such)."""
        return [
            Placed(order=place, block=block, arm=arm, outcome=self.runs[arm][block])  # type: ignore[arg-type]
            for place, (arm, block) in enumerate(self.order)
        ]


def measure(
    session: Session, run: Callable[[str], Run], *, on_run: Callable[[str, int], None] = lambda *_: None
) -> None:
    """Make the runs of a session. `on_run` is told arm and block before each.

    An arm whose run fails ends, with the reason; where the unchanged one fails, that is raised.
    """
    draw = random.Random(session.seed)  # noqa: S311 - an order of runs, no secret
    plan = looks(session.n_blocks, session.alpha, stops_early=session.stops_early)
    last: list[str] = []
    for block in range(1, session.n_blocks + 1):
        arms = session.open_arms()
        if not arms or not session.fits(arms):
            return
        # Each second block goes backwards, so that linear drift cancels.
        order = [arm for arm in reversed(last) if arm in arms] if block % 2 == 0 else draw.sample(arms, len(arms))
        last = order
        for arm in order:
            on_run(arm, block)
            _one(session, run, arm, block)
            if session.left_ns == 1:
                return
        if block in plan and block < session.n_blocks:
            _settle(session, plan[block])
        _without_slow(session, session.n_blocks - block)


def _without_slow(session: Session, n_left: int) -> None:
    """Leave out the arm that takes longest, as long as the blocks to come do not fit in the time that is left."""
    while session.left_ns is not None and n_left:
        arms = [arm for arm in session.open_arms() if arm in session.walls_ns]
        slowest = max((arm for arm in arms if arm != BASELINE), key=lambda arm: session.walls_ns[arm], default=None)
        needed = n_left * sum(session.walls_ns[arm] for arm in arms)
        others = session.walls_ns.get(BASELINE, 0)
        if slowest is None or needed <= session.left_ns or session.walls_ns[slowest] <= _SLOW * others:
            return
        spent = format_ns(session.walls_ns[slowest])
        session.unmade[slowest] = (
            f"one run of it takes {spent}, too long for the time announced; --only {slowest} tries it alone"
        )


def _one(session: Session, run: Callable[[str], Run], arm: str, block: int) -> None:
    begun_ns = time.perf_counter_ns()
    try:
        made = run(arm)
    except TooLongError as ended:
        session.spent_ns += time.perf_counter_ns() - begun_ns
        if arm != BASELINE:
            session.unmade[arm] = ended.message
        return
    except ProfkitError as error:
        if arm == BASELINE:
            raise
        session.failed[arm] = error.message
        return
    session.spent_ns += made.wall_ns
    session.walls_ns[arm] = made.wall_ns
    session.runs.setdefault(arm, {})[block] = made
    session.order.append((arm, block))
    if arm != BASELINE and not made.record.done:
        session.unmade[arm] = made.record.why_not


def _settle(session: Session, alpha: float) -> None:
    """Arms that an early look answers are run no more."""
    for arm in session.open_arms():
        if arm == BASELINE:
            continue
        found = session.judged(arm, alpha)
        if found is not None and found.answer is not Answer.INCONCLUSIVE:
            session.settled[arm] = found


def keys(arms: Sequence[str]) -> tuple[str, ...]:
    """The arms of a session of these changes."""
    return (BASELINE, *arms)
