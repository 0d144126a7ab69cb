"""How many steps the collectives of all ranks fill, on simulated ranks with known steps."""

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from profkit.model.table import NO_ROW
from profkit.ranks.align.clocks import Clocks, aligned
from profkit.ranks.align.match import matched
from profkit.ranks.measure.waits import GroupWaits, split
from profkit.ranks.measure.windows import steps_in_common, steps_measured
from profkit.ranks.reduce.records import RankSummary
from tests.ranks.simulate import Job, simulate, without

N_STEPS = 12


def _analysed(ranks: Sequence[RankSummary]) -> tuple[Sequence[RankSummary], Clocks, Sequence[GroupWaits]]:
    matching = matched(ranks)
    clocks = aligned(ranks, matching)
    return ranks, clocks, split(ranks, matching, clocks)


def _with_steps(summary: RankSummary, first: int, last: int) -> RankSummary:
    """The same collectives, but only these steps are marked."""
    rows = summary.collectives
    step = np.where((rows.step >= first) & (rows.step < last), rows.step - first, NO_ROW).astype(np.int32)
    steps = summary.steps.take(np.arange(first, last))
    return replace(summary, steps=steps, collectives=replace(rows, step=step))


def test_whole_steps_are_all_measured():
    ranks = _analysed(simulate(Job(n_ranks=4, n_steps=N_STEPS)).summaries)
    assert steps_in_common(*ranks[:2]) == steps_measured(*ranks) == N_STEPS


@pytest.mark.parametrize(("first", "last"), [(0, 9), (3, 12), (4, 8)])
def test_collectives_beside_one_ranks_steps_count_as_the_steps_that_they_fill(first, last):
    one, *others = simulate(Job(n_ranks=4, n_steps=N_STEPS)).summaries
    ranks = _analysed([_with_steps(one, first, last), *others])
    assert steps_in_common(*ranks[:2]) == last - first
    assert steps_measured(*ranks) == N_STEPS


def test_no_more_steps_than_are_usually_marked():
    ranks = _analysed([_with_steps(one, 3, 9) for one in simulate(Job(n_ranks=4, n_steps=N_STEPS)).summaries])
    assert steps_measured(*ranks) == 6  # its collectives fill all twelve


def test_a_clock_that_is_off_by_half_a_step_cannot_tell():
    summaries, clocks, waits = _analysed(simulate(Job(n_ranks=4, n_steps=N_STEPS)).summaries)
    step_ns = int((summaries[2].steps.end_ns - summaries[2].steps.start_ns).mean())
    unsure = replace(clocks.ranks[2], residual_p95_ns=step_ns // 2 + step_ns // 10)
    off = replace(clocks, ranks={**clocks.ranks, 2: unsure})
    assert steps_measured(summaries, clocks, waits) == N_STEPS
    assert steps_in_common(summaries, off) is None
    assert steps_measured(summaries, off, waits) is None


def test_a_collective_that_one_rank_lacks_counts_nowhere():
    one, *others = simulate(Job(n_ranks=4, n_steps=N_STEPS, has_seq=True)).summaries
    assert steps_measured(*_analysed([without(one, 20), *others])) == N_STEPS


def test_ranks_without_steps_cannot_tell():
    one, *others = simulate(Job(n_ranks=4, n_steps=N_STEPS)).summaries
    assert steps_measured(*_analysed([_with_steps(one, 0, 0), *others])) is None
