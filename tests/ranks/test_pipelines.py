"""Pipelines of four stages by 1F1B, drawn whole: a slow stage, a slow pair of ranks, a loader, and none of these."""

import json
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

import profkit
from profkit.testing import to_json
from tests.analyzers.test_overlap import stages
from tests.ranks.jobs import edited
from tests.ranks.pipeline import schedule
from tests.ranks.scripted import MS, US, Group, Op, Rank, cause, of, run, triaged, write

N_STEPS, N_STAGES, N_MICRO = 6, 4, 8
KERNELS = {"F": ("flash_fwd_kernel", "ampere_sgemm_128x64_tn"), "B": ("flash_bwd_kernel", "ampere_sgemm_64x64_nt")}


def program(
    rank: int,
    n_lines: int,
    slow: Mapping[int, float],
    data_ns: int,
    pairs: Mapping[tuple[int, int], int],
    is_each: bool,
    *,
    more: float,
) -> Iterator[Op]:
    """One stage of one of the pipelines; what goes between two stages takes 60 us, or as `pairs` says.

    The first stage loads each micro-batch (`is_each`), or all before the first.
    """
    generator = np.random.default_rng(rank)
    stage, line = divmod(rank, n_lines)
    members = tuple(line + n_lines * place for place in range(N_STAGES))
    world = Group(name="world", ranks=tuple(range(N_STAGES * n_lines)), transfer_ns=50 * US)

    def between(what: str, peer: int, stream: int) -> Iterator[Op]:
        lasts = pairs.get((min(rank, peer), max(rank, peer)), 60 * US)
        group = Group(name=f"pp{line}", ranks=members, transfer_ns=lasts)
        yield Op(what="collective", name=what, group=group, peer=peer, elements=4_000_000, stream=stream)
        if what == "recv":
            yield Op(what="join_stream", stream=stream)

    for _ in range(N_STEPS):
        yield Op(what="step")
        loads = [is_each for _ in range(N_MICRO - 1)] + [data_ns > 0]
        for what, _, _ in schedule("1f1b", stage, N_STAGES, N_MICRO, 1):
            towards = -1 if what == "F" else 1
            if what == "F" and stage == 0 and loads.pop():
                yield Op(what="data", ns=data_ns)
            if 0 <= stage + towards < N_STAGES:
                yield from between("recv", rank + towards * n_lines, 30 + towards)
            for number in range(round(8 * more)):
                usual = (2 if what == "F" else 4) * MS / 8 * slow.get(rank, 1.0)
                ns = round(usual * (1 + 0.02 * generator.standard_normal()))
                yield Op(what="compute", ns=ns, name=KERNELS[what][number % 2])
            if 0 <= stage - towards < N_STAGES:
                yield from between("send", rank - towards * n_lines, 40 + towards)
        yield Op(what="join")
        yield Op(what="collective", name="allreduce", group=world, elements=1)
        yield Op(what="join")
        yield Op(what="compute", ns=MS, name="multi_tensor_apply_kernel")
        yield Op(what="sync")


def job(
    n_lines: int = 2,
    slow: Mapping[int, float] | None = None,
    data_ns: int = 0,
    pairs: Mapping[tuple[int, int], int] | None = None,
    uneven: float = 0.0,
    more: Mapping[int, float] | None = None,
) -> dict[int, Rank]:
    """All stages, `more`: of layers; with `uneven` all is loaded at once, by this share longer in each pipeline."""

    def of_line(rank: int) -> int:
        return round(data_ns * (1 + uneven * (rank % n_lines)))

    ranks = range(N_STAGES * n_lines)
    return run(
        {
            rank: program(
                rank,
                n_lines,
                slow or {},
                of_line(rank),
                pairs or {},
                data_ns > 0 == uneven,
                more=(more or {}).get(rank, 1.0),
            )
            for rank in ranks
        }
    )


def step_ns(ranks: Mapping[int, Rank]) -> float:
    return (max(max(rank.device.values()) for rank in ranks.values()) - 10 * MS) / N_STEPS


@pytest.mark.parametrize(("n_lines", "rank"), [(2, 5), (1, 2)])
def test_a_slow_stage_is_named_against_its_twin_or_the_other_stages(tmp_path, n_lines, rank):
    ranks = job(n_lines, slow={rank: 1.4})
    report = triaged(ranks, tmp_path)
    won = step_ns(ranks) - step_ns(job(n_lines))
    assert report.verdict.headline == f"{N_STAGES * n_lines - 1} ranks wait for rank {rank}, which computes longer"
    assert cause(report, rank).startswith("compute: same kernels 1.")
    assert won <= report.verdict.recoverable_ns <= 1.3 * won


def test_a_stage_that_is_slow_in_all_pipelines_is_named_with_all_its_ranks(tmp_path):
    report = triaged(job(slow={4: 1.4, 5: 1.4}), tmp_path)
    assert report.verdict.headline == "6 ranks wait for ranks 4-5, which compute longer"


def test_the_loader_of_the_first_stage_is_what_the_others_wait_for(tmp_path):
    ranks = job(data_ns=3 * MS)
    report = triaged(ranks, tmp_path)
    assert report.verdict.headline == "6 ranks wait for ranks 0-1, which wait for their DataLoaders"
    assert report.verdict.recoverable_ns >= step_ns(ranks) - step_ns(job())


@pytest.mark.parametrize(("n_lines", "pair", "said"), [(2, (2, 4), "2, 4"), (1, (1, 2), "1-2")])
@pytest.mark.parametrize("has_peers", [True, False])
def test_a_slow_pair_of_ranks_is_named_by_what_its_transfers_take(tmp_path, n_lines, pair, said, has_peers):
    ranks = job(n_lines, pairs={pair: 1_500 * US})
    folder = write(ranks, tmp_path)
    for path in () if has_peers else folder.iterdir():
        edited(path, _without_peers)
    report = profkit.triage([str(folder)])
    assert report.verdict.findings[0].id == "comm.slow_link"
    assert f"the pair (ranks {said}) transfers at 10." in report.verdict.headline
    assert report.verdict.recoverable_ns >= step_ns(ranks) - step_ns(job(n_lines))


def _without_peers(document: dict) -> None:
    text = json.dumps(document["traceEvents"]).replace('"Dst Rank"', '"_"').replace('"Src Rank"', '"_"')
    document["traceEvents"] = json.loads(text)


def test_a_hop_that_all_pipelines_have_slow_is_by_design(tmp_path):
    report = triaged(job(pairs={(2, 4): 400 * US, (3, 5): 400 * US}), tmp_path)
    assert not {"comm.slow_link", "straggler.rank"} & {one.id for one in report.findings}


@pytest.mark.parametrize("n_lines", [1, 2])
def test_stages_that_wait_as_the_schedule_says_name_nobody(tmp_path, n_lines):
    report = triaged(job(n_lines), tmp_path)
    assert report.verdict.findings[0].id == "pipeline.bubble"
    assert not {"comm.slow_link", "straggler.rank"} & {one.id for one in report.findings}


def test_stages_on_cpus_whose_sends_nothing_joins_are_told_what_to_spare_first(tmp_path) -> None:
    """Of gloo no trace tells which send and receive belong together, however many steps are recorded."""
    for rank, name in enumerate(("gloo:send", "gloo:recv")):
        told = {"distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 2}}
        data = to_json(stages(name, again=True), metadata=told)
        (tmp_path / f"rank{rank}.pt.trace.json").write_bytes(data)
    report = profkit.triage(tmp_path)
    assert [one.id for one in report.verdict.findings][:2] == ["work.recompute", "comm.exposed"]
    found = report.verdict.findings[1]
    assert "micro-batches" in found.fix
    assert found.next_tools[0].purpose == "which stage does the schedule wait for?"
    assert not [item for item in found.evidence if "one rank's trace" in item.statement]


@pytest.mark.parametrize(
    ("stage", "factor", "is_named"), [(1, 1.5, True), (1, 1.15, False), (N_STAGES - 1, 1.5, False)]
)
def test_a_middle_stage_with_more_layers_sets_the_pace(tmp_path, stage, factor, is_named):
    """The last stage has the loss as well, by design; grids of other sizes are no slow device."""
    ranks, spared = (job(2, more={2 * stage: more, 2 * stage + 1: more}) for more in (factor, 1.0))
    report = triaged(ranks, tmp_path)
    assert bool(of(report)) == is_named
    if is_named:
        assert report.verdict.headline == "6 ranks wait for ranks 2-3, which compute longer"
        assert cause(report, 2) == "compute: more work"
        won = step_ns(ranks) - step_ns(spared)
        assert won <= report.verdict.recoverable_ns <= 1.4 * won  # part of what the others wait is the schedule's
