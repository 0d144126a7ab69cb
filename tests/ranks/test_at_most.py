"""What is saved at most is no less than what mending gives: all loaders, all hosts, tokens of a group, a stage."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from profkit.findings.host import LAUNCH_BOUND, SYNC
from profkit.model.documents.report import Bottleneck
from profkit.model.finding import Evidence
from profkit.verdict.compete import put_first, ranked_causes
from tests.ranks.scripted import MS, US, Group, Op, Writing, in_steps, of, run
from tests.ranks.test_pipelines import job as pipelines
from tests.ranks.test_pipelines import step_ns as pipeline_step_ns
from tests.ranks.test_who_must_be_mended import N_STEPS, WORLD, layers, step_ns, triaged

_ALIKE = (0.98, 1.15)
"""Of the true saving, where "at most" is right: no less but by what steps vary, and of some use."""


def is_right(said_ns: float, won: float) -> bool:
    return _ALIKE[0] * won <= said_ns <= _ALIKE[1] * won


@in_steps(N_STEPS)
def loaders(rank: int, data_ns: int) -> Iterator[Op]:
    """Every rank waits for its loader, some longer than others."""
    yield Op(what="data", ns=data_ns + data_ns * rank // 50)
    for ops in layers(rank, 6, 600 * US, "ampere_sgemm_128x64_tn"):
        yield from [*ops, Op(what="collective", name="allreduce", group=WORLD)]


def test_where_all_loaders_are_late_the_step_waits_for_the_slowest(tmp_path: Path) -> None:
    ranks, spared = (run({rank: loaders(rank, ns) for rank in range(8)}) for ns in (8 * MS, 0))
    report = triaged(ranks, tmp_path)
    assert report.verdict.findings[0].id == "input.starved"
    assert is_right(report.verdict.recoverable_ns, step_ns(ranks) - step_ns(spared))


@in_steps(N_STEPS)
def hosts(rank: int, nap_ns: int) -> Iterator[Op]:
    """The host reads the loss at the end of each step, and is held up for a while before the next one."""
    yield Op(what="host", ns=nap_ns)
    for ops in layers(rank, 12, 1_700 * US, "ampere_sgemm_128x64_tn"):
        yield from [*ops, Op(what="collective", name="allreduce", group=WORLD, stream=24)]


@pytest.mark.parametrize(("nap_ns", "is_said"), [(10 * MS, True), (4 * MS, False)])
def test_a_tenth_of_the_step_that_all_hosts_take_is_the_bottleneck(tmp_path: Path, nap_ns: int, is_said: bool) -> None:
    ranks, spared = (run({rank: hosts(rank, ns) for rank in range(8)}) for ns in (nap_ns, 0))
    verdict = triaged(ranks, tmp_path).verdict
    assert (verdict.bottleneck in {Bottleneck.SYNC, Bottleneck.OVERHEAD}) == is_said
    assert (verdict.bottleneck is Bottleneck.KERNEL) != is_said
    assert not is_said or is_right(verdict.recoverable_ns, step_ns(ranks) - step_ns(spared))


@pytest.mark.parametrize(("sync", "is_first"), [(0.27, False), (0.31, True)])
def test_calls_that_explain_less_than_most_of_late_launches_come_second(sync: float, is_first: bool) -> None:
    """Both are on the same time; what the calls do not explain is the host's own."""
    seen = (Evidence(statement="seen", metric="x", value=1.0, unit=""),)
    late = LAUNCH_BOUND.found(confidence=0.6, recoverable_ns=58, fraction=0.36, evidence=seen, fix="")
    calls = SYNC.found(confidence=0.8, recoverable_ns=round(160 * sync), fraction=sync, evidence=seen, fix="")
    causes = put_first(ranked_causes([late, calls], is_alone=False))
    assert (causes[0].id == SYNC.id) == is_first


@in_steps(N_STEPS)
def tokens(rank: int, more: float) -> Iterator[Op]:
    """Pairs of ranks that share each layer; the second pair has more tokens to compute on, and to exchange."""
    block, place = divmod(rank, 2)
    longer = more if block == 1 else 1.0
    pair = Group(name=f"tp{block}", ranks=(2 * block, 2 * block + 1), transfer_ns=round(250 * US * longer))
    data = Group(name=f"dp{place}", ranks=tuple(range(place, 8, 2)), transfer_ns=400 * US)
    for number, ops in enumerate(layers(rank, 8, 600 * US, "ampere_sgemm_128x64_tn")):
        yield from ops
        extra = round(2_400 * US * (longer - 1))
        yield Op(what="compute", ns=extra or US, name="flash_fwd_kernel", grid=64 if extra else 1)
        yield Op(what="collective", name="allreduce", group=pair, elements=round(500_000 * longer))
        yield Op(what="join_stream")
        if number > 3:
            yield Op(what="collective", name="allreduce", group=data, stream=24)


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


def logged(rank: int, nap_ns: int) -> Iterator[Op]:
    """Rank 0 writes its metrics once its device is done: behind the last collective of each step."""
    for _ in range(5):
        yield Op(what="step")
        for ops in layers(rank, 6, 600 * US, "ampere_sgemm_128x64_tn"):
            yield from [*ops, Op(what="collective", name="allreduce", group=WORLD, stream=24)]
        yield from [Op(what="join"), Op(what="sync"), Op(what="host", ns=nap_ns if rank == 0 else 0)]


def test_what_a_rank_does_before_the_recorded_steps_is_no_gain_that_is_lost(tmp_path: Path) -> None:
    """The first step that is recorded waits for what the rank did in the one before; without it, no step does."""
    ranks = run({rank: logged(rank, 8 * MS) for rank in range(8)})
    report = triaged(ranks, tmp_path, Writing(windows=dict.fromkeys(range(8), (1, 5))))
    assert [one.rank for one in of(report, "straggler.rank")] == [0]
    assert is_right(report.verdict.recoverable_ns, 8 * MS)


@in_steps(N_STEPS)
def experts(rank: int, more: float) -> Iterator[Op]:
    """The expert of rank 4 is sent others' tokens; an all-to-all lasts as long as its busiest rank needs."""
    all_to_all = Group(name="ep", ranks=tuple(range(8)), transfer_ns=round(700 * US * more))
    mine = more if rank == 4 else (8 - more) / 7
    exchange = Op(what="collective", name="all_to_allv", group=all_to_all, elements=round(4_000_000 * mine))
    for ops in layers(rank, 4, 300 * US, "ampere_sgemm_128x64_tn"):
        expert = Op(what="compute", ns=round(900 * US * mine), name="flash_fwd_kernel", grid=round(64 * mine))
        yield from [*ops, exchange, Op(what="join"), expert, exchange, Op(what="join")]


def test_a_hot_expert_makes_the_exchange_longer_too(tmp_path: Path) -> None:
    ranks, spared = (run({rank: experts(rank, more) for rank in range(8)}) for more in (1.6, 1.0))
    report = triaged(ranks, tmp_path)
    assert [one.rank for one in of(report, "straggler.rank")] == [4]
    assert is_right(report.verdict.recoverable_ns, step_ns(ranks) - step_ns(spared))
