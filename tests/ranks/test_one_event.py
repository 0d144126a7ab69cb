"""A host that holds all others up once, as garbage collection does: named as one event, and nothing else is."""

from collections.abc import Iterator, Mapping

import pytest

from tests.ranks.scripted import MS, US, Group, Op, Rank, run
from tests.ranks.test_who_must_be_mended import layers, of, said, step_ns, triaged

N_STEPS = 4

Pauses = Mapping[tuple[int, int, int], int]
"""ns by rank, step and layer."""


def grid(rank: int, pauses: Pauses, late_ns: int = 0) -> Iterator[Op]:
    """Pairs of ranks that share each layer, and two groups of four that reduce over the pairs."""
    block, place = divmod(rank, 2)
    tensor = Group(name=f"tp{block}", ranks=(2 * block, 2 * block + 1), transfer_ns=100 * US)
    data = Group(name=f"dp{place}", ranks=tuple(range(place, 8, 2)), transfer_ns=400 * US)
    for step in range(N_STEPS):
        yield Op(what="step")
        yield Op(what="data", ns=MS + late_ns)
        for number, ops in enumerate(layers(rank, 12, 600 * US, "ampere_sgemm_128x64_tn")):
            yield Op(what="host", ns=pauses.get((rank, step, number), 0))
            yield from ops
            yield Op(what="collective", name="allreduce", group=tensor, elements=500_000)
            yield Op(what="join_stream")
            if number > 5:
                yield Op(what="collective", name="allreduce", group=data, stream=24)
        yield Op(what="join")
        yield Op(what="sync")


def of_grid(pauses: Pauses) -> dict[int, Rank]:
    return run({rank: grid(rank, pauses) for rank in range(8)})


@pytest.mark.parametrize("where", [(5, 1, 2), (0, 3, 6), (2, 2, 0)])
def test_a_host_that_holds_all_others_up_once_is_named_as_one_event(tmp_path, where):
    ranks = of_grid({where: 30 * MS})
    report = triaged(ranks, tmp_path)
    won = step_ns(ranks, N_STEPS) - step_ns(of_grid({}), N_STEPS)
    late = of(report, "straggler.rank")
    assert [one.rank for one in late] == [where[0]]
    title = late[0].title
    assert title.startswith(f"7 ranks wait for rank {where[0]} once, for ")
    assert title.endswith("ms, while its host runs no operator")
    assert ", and no other is a third as long" in said(late[0])
    assert report.verdict.findings[0] == late[0]
    assert 0.98 * won <= late[0].recoverable_ns <= 1.1 * won
    assert late[0].confidence < 0.7
    assert not of(report, "comm.skew")


@pytest.mark.parametrize(
    "pauses",
    [{(5, 1, 2): 2 * MS}, {(5, 1, 2): 30 * MS, (2, 3, 5): 25 * MS}, {(rank, 1, 3): 30 * MS for rank in range(8)}],
    ids=["too short to matter", "two ranks in turn", "all ranks together"],
)
def test_what_is_no_single_event_of_one_rank_names_nobody(tmp_path, pauses):
    assert of(triaged(of_grid(pauses), tmp_path), "straggler.rank") == []
