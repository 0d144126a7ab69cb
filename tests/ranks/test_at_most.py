"""What is saved at most is no less than what mending gives: all loaders, tokens of a group, a stage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.ranks.scripted import MS, US, Group, Op, run
from tests.ranks.test_pipelines import job as pipelines
from tests.ranks.test_pipelines import step_ns as pipeline_step_ns
from tests.ranks.test_who_must_be_mended import N_STEPS, WORLD, layers, step_ns, triaged

_ALIKE = (0.98, 1.15)
"""Of the true saving, where "at most" is right: no less but by what steps vary, and of some use."""


def is_right(said_ns: float, won: float) -> bool:
    return _ALIKE[0] * won <= said_ns <= _ALIKE[1] * won


def loaders(rank: int, data_ns: int) -> Iterator[Op]:
    """Every rank waits for its loader, some longer than others."""
    for _ in range(N_STEPS):
        yield Op(what="step")
        yield Op(what="data", ns=data_ns + data_ns * rank // 50)
        for ops in layers(rank, 6, 600 * US, "ampere_sgemm_128x64_tn"):
            yield from [*ops, Op(what="collective", name="allreduce", group=WORLD)]
        yield Op(what="join")
        yield Op(what="sync")


def test_where_all_loaders_are_late_the_step_waits_for_the_slowest(tmp_path: Path) -> None:
    ranks, spared = (run({rank: loaders(rank, ns) for rank in range(8)}) for ns in (8 * MS, 0))
    report = triaged(ranks, tmp_path)
    assert report.verdict.findings[0].id == "input.starved"
    assert is_right(report.verdict.recoverable_ns, step_ns(ranks) - step_ns(spared))


def tokens(rank: int, more: float) -> Iterator[Op]:
    """Pairs of ranks that share each layer; the second pair has more tokens to compute on, and to exchange."""
    block, place = divmod(rank, 2)
    longer = more if block == 1 else 1.0
    pair = Group(name=f"tp{block}", ranks=(2 * block, 2 * block + 1), transfer_ns=round(250 * US * longer))
    data = Group(name=f"dp{place}", ranks=tuple(range(place, 8, 2)), transfer_ns=400 * US)
    for _ in range(N_STEPS):
        yield Op(what="step")
        for number, ops in enumerate(layers(rank, 8, 600 * US, "ampere_sgemm_128x64_tn")):
            yield from ops
            extra = round(2_400 * US * (longer - 1))
            yield Op(what="compute", ns=extra or US, name="flash_fwd_kernel", grid=64 if extra else 1)
            yield Op(what="collective", name="allreduce", group=pair, elements=round(500_000 * longer))
            yield Op(what="join_stream")
            if number > 3:
                yield Op(what="collective", name="allreduce", group=data, stream=24)
        yield Op(what="join")
        yield Op(what="sync")


def test_more_tokens_of_a_pair_are_more_to_exchange_as_well(tmp_path: Path) -> None:
    ranks, spared = (run({rank: tokens(rank, more) for rank in range(8)}) for more in (1.5, 1.0))
    report = triaged(ranks, tmp_path)
    assert report.verdict.headline == "6 ranks wait for ranks 2-3, which compute longer"
    assert is_right(report.verdict.recoverable_ns, step_ns(ranks) - step_ns(spared))


def test_of_several_pipelines_the_one_with_the_slowest_loader_counts(tmp_path: Path) -> None:
    ranks = pipelines(4, data_ns=3_200 * US, uneven=0.04)
    report = triaged(ranks, tmp_path)
    assert report.verdict.headline == "12 ranks wait for ranks 0-3, which wait for their DataLoaders"
    won = pipeline_step_ns(ranks) - pipeline_step_ns(pipelines(4))
    assert 0.98 * won <= report.verdict.recoverable_ns <= 1.3 * won
