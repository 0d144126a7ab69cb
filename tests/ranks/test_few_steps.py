"""Few steps: whose collectives are late together, because each batch is long in all of its layers."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.ranks.scripted import US, Group, Op, of, run, triaged

_ALL = Group(name="0", ranks=tuple(range(8)))


def uneven(rank: int, seed: int, late_ns: int) -> Iterator[Op]:
    """Five steps of batches of uneven length."""
    for step in range(5):
        long_ns = 600 * US * (1 + 0.12 * np.random.default_rng((seed, step, rank)).standard_normal())
        yield Op(what="step")
        for _ in range(6):
            yield Op(what="compute", ns=round(long_ns) + (late_ns if rank == 2 else 0))
            yield from [Op(what="collective", name="allreduce", group=_ALL), Op(what="join")]
        yield Op(what="sync")


@pytest.mark.parametrize(("late_ns", "named"), [(0, set()), (600 * US, {2})])
def test_of_uneven_batches_in_few_steps_no_rank_is_named_that_is_not_late_in_most(
    tmp_path: Path, late_ns: int, named: set[int]
) -> None:
    for seed in range(4):
        ranks = run({rank: uneven(rank, seed, late_ns) for rank in range(8)})
        assert {one.rank for one in of(triaged(ranks, tmp_path / str(seed)))} == named
