"""Long steps with few collectives, windows of unequal length, clocks that drift: which collective is which?"""

from collections import Counter

import numpy as np
import pytest

from profkit.ranks.align.sequence_alignment import paired
from tests.ranks.scripted import MS, Clock, Group, Op, Writing, run, triaged


def drawn(generator: np.random.Generator) -> str:
    """Whether two to seven steps of 0.1 to 10 s are paired "right", "wrong" or "not": 50 or 100 ppm, a window cut."""
    n_steps, n_layers = int(generator.integers(2, 8)), int(generator.integers(2, 6))
    step, layer = float(generator.choice([1e8, 1e9, 3e9, 1e10])), float(generator.choice([1e6, 5e6, 5e7]))
    lengths = np.full((n_steps, n_layers), layer) * (1 + 0.02 * generator.standard_normal((n_steps, n_layers)))
    lengths[:, 0] += step * (1 + 0.02 * generator.standard_normal(n_steps))
    true = np.cumsum(lengths.ravel())
    mine, theirs = (true + generator.exponential(2_000, true.size) for _ in range(2))
    drift = float(generator.choice([5e-5, -5e-5, 1e-4]))
    first, last = generator.integers(0, n_layers + 1, 2)
    kept = np.arange(true.size)[first : true.size - last]
    symbol = np.zeros(true.size, np.int64)
    shown = (theirs * (1 + drift) + 9e8).astype(np.int64)
    found = paired(mine.astype(np.int64), symbol, shown[kept], symbol[kept])
    if not found.is_checked:
        return "not"
    row = found.row
    return "right" if (kept[row[row >= 0]] == np.flatnonzero(row >= 0)).all() else "wrong"


def test_few_collectives_of_long_steps_are_paired_though_clocks_drift():
    """Between steps of 3 s a clock of 50 ppm loses 150 us: the ends of one step agree, those of the next do not."""
    generator = np.random.default_rng(11)
    tally = Counter(drawn(generator) for _ in range(500))
    assert tally["wrong"] <= 5
    assert tally["right"] >= 330


@pytest.mark.parametrize("drift", [0.0, 5e-5, -5e-5])
def test_a_drifting_clock_whose_window_lacks_a_step_leaves_no_rank_out(tmp_path, drift):
    world = Group(name="0", ranks=(0, 1, 2, 3))

    def program(rank: int):
        generator = np.random.default_rng(rank)
        for _ in range(6):
            yield Op(what="step")
            yield Op(what="host", ns=3_000 * MS + 300 * MS * (rank == 3))
            for _ in range(3):
                yield Op(what="compute", ns=round(4 * MS * (1 + 0.02 * generator.standard_normal())))
                yield Op(what="collective", name="allreduce", group=world)
            yield Op(what="join")
            yield Op(what="sync")

    how = Writing(has_args=False, has_seq=False, dropped={1: 3}, clocks={1: Clock(offset_ns=900 * MS, drift=drift)})
    report = triaged(run({rank: program(rank) for rank in range(4)}), tmp_path, how)
    assert report.fleet.refusals == ()
    assert [group.ranks for group in report.fleet.groups] == [(0, 1, 2, 3)]
    assert [one.rank for one in report.findings if one.id == "straggler.rank"] == [3]
