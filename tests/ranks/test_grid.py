"""Tensor parallel by data parallel: whom a slow rank's peers pass their lateness on to is not to blame."""

import numpy as np
import pytest
from msgspec.structs import replace

from profkit.ranks.reduce.records import PHASES, CollectiveRows, Group
from tests.ranks.simulate import MS, TRANSFER, US, Job, measured, shifted, simulate, stragglers_of

TENSOR = Group(name="tp", ranks=(), size=2)
DATA = Group(name="dp", ranks=(), size=2)
N_STEPS, N_TENSOR = 24, 3


def grid(slow_rank, *, has_seq=True):
    """Ranks 0 1 | 2 3 share layers, 0 2 and 1 3 gradients; each step three collectives of the first, one of the second.

    Gives summaries of ranks whose clocks are 10 ms apart.
    """
    rng = np.random.default_rng(1)
    pairs = {"tp": ((0, 1), (2, 3)), "dp": ((0, 2), (1, 3))}
    free = np.full(4, 10 * MS, np.int64)
    rows = {rank: [] for rank in range(4)}
    for _ in range(N_STEPS):
        for place in range(N_TENSOR + 1):
            lead = rng.normal(4 * MS, 0.02 * MS, 4).astype(np.int64)
            lead[slow_rank] += 2 * MS if place < N_TENSOR else 0
            start = free + lead
            for pair in pairs["tp" if place < N_TENSOR else "dp"]:
                left = start[list(pair)].max() + TRANSFER
                for rank in pair:
                    end = left + int(rng.exponential(2 * US))
                    name = pairs["tp"].index(pair) if place < N_TENSOR else 2 + pairs["dp"].index(pair)
                    rows[rank].append((name, start[rank], end, lead[rank]))
                    free[rank] = end
    base = simulate(Job(n_ranks=4, n_steps=N_STEPS, n_buckets=N_TENSOR + 1, max_offset_ns=0, max_drift=0.0)).summaries
    return [shifted(summary_of(base[rank], rows[rank], has_seq=has_seq), 10 * MS * rank) for rank in range(4)]


def summary_of(base, rows, *, has_seq):
    table = np.array(rows, np.int64)
    names, group = np.unique(table[:, 0], return_inverse=True)
    lead = np.zeros((len(table), len(PHASES)), np.int64)
    lead[:, PHASES.index("compute")] = table[:, 3]
    seq = np.full(len(table), -1)
    for code in range(len(names)):
        seq[group == code] = np.arange((group == code).sum())
    changed = {"group": group.astype(np.int32), "lead_ns": lead, "start_ns": table[:, 1], "end_ns": table[:, 2]}
    changed |= {"own_ns": lead, "ready_ns": table[:, 1]}
    if has_seq:
        changed["seq"] = seq
    columns = base.collectives.columns() | changed | {"issued_ns": table[:, 1]}
    members = {0: (0, 1), 1: (2, 3), 2: (0, 2), 3: (1, 3)}
    groups = tuple(replace(TENSOR if n < 2 else DATA, ranks=members[int(n)]) for n in names)
    return replace(base, groups=groups, collectives=CollectiveRows(**columns))


@pytest.mark.parametrize("has_seq", [True, False])
@pytest.mark.parametrize("slow_rank", [0, 3])
def test_only_the_slow_rank_is_blamed(slow_rank, has_seq):
    ranks = grid(slow_rank, has_seq=has_seq)
    matching, _, _ = measured(ranks)
    assert len(matching.groups) == 4
    assert matching.refusals == ()
    answers = stragglers_of(ranks)
    assert {straggler.rank for answer in answers for straggler in answer.named} == {slow_rank}
    assert any("held it up" in answer.reason for answer in answers)


def test_clocks_reach_ranks_that_share_no_group():
    clocks = measured(grid(0))[1].ranks
    assert [round(clocks[rank].offset_ns / MS, 2) for rank in range(4)] == [0, 10, 20, 30]
    assert all(clock.is_fitted for clock in clocks.values())
