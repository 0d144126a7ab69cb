"""Jobs that look like a late rank, and are something else or not proven; each beside the one that is."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import profkit
from profkit.model.documents.report import Report
from tests.ranks.disk_jobs import Job, programs
from tests.ranks.jobs import edited
from tests.ranks.scripted import MS, Group, Op, Rank, in_steps, of, run, triaged, write

Extra = Callable[[int, int], int]
Times = Callable[[int, int], float]


def program(rank: int, world: Group, n_steps: int, n_layers: int, late_ns: Extra, slower: Times) -> Iterator[Op]:
    """Steps of layers of 4 ms with an all-reduce each; `late_ns` and `slower` by rank and step."""
    generator = np.random.default_rng(rank)
    for step in range(n_steps):
        yield Op(what="step")
        yield Op(what="data", ns=MS)
        if late_ns(rank, step):
            yield Op(what="host", ns=late_ns(rank, step))
        for _ in range(n_layers):
            for _ in range(4):
                ns = MS * slower(rank, step) * (1 + 0.02 * generator.standard_normal())
                yield Op(what="compute", ns=round(ns))
            yield Op(what="collective", name="allreduce", group=world)
        yield Op(what="join")
        yield Op(what="sync")


def job(
    n_ranks: int,
    n_steps: int,
    n_layers: int = 10,
    late_ns: Extra = lambda rank, step: 0,
    slower: Times = lambda rank, step: 1.0,
) -> dict[int, Rank]:
    world = Group(name="0", ranks=tuple(range(n_ranks)))
    return run({rank: program(rank, world, n_steps, n_layers, late_ns, slower) for rank in range(n_ranks)})


def texts(report: Report) -> str:
    found = [*report.verdict.findings, *report.findings]
    return "\n".join(text for one in found for text in (one.title, *(each.statement for each in one.evidence)))


@pytest.mark.parametrize(("n_ranks", "n_steps"), [(4, 5), (8, 3), (2, 5)])
def test_a_rank_that_is_slow_in_one_step_of_few_is_no_straggler(tmp_path, n_ranks, n_steps):
    """Its ten collectives are late together: for the question whether it is late always they count once."""
    report = triaged(job(n_ranks, n_steps, slower=lambda rank, step: 1.8 if (rank, step) == (1, 1) else 1.0), tmp_path)
    assert of(report) == []
    assert f"% of that in 1 of {n_steps} steps; it is not proven to be late: in the other steps" in texts(report)


def test_a_rank_that_is_slow_in_two_steps_of_few_is_one(tmp_path):
    report = triaged(job(4, 3, slower=lambda rank, step: 1.5 if rank == 1 and step != 1 else 1.0), tmp_path)
    assert [one.rank for one in of(report)] == [1]


def without_steps(document: dict) -> None:
    document["traceEvents"] = [one for one in document["traceEvents"] if not one["name"].startswith("ProfilerStep")]


@pytest.mark.parametrize(("is_always", "named"), [(False, []), (True, [1])])
def test_without_steps_one_late_collective_names_nobody(tmp_path, is_always, named):
    def late_ns(rank: int, step: int) -> int:
        return 40 * MS if rank == 1 and (is_always or step == 2) else 0

    folder = write(job(4, 4, n_layers=2, late_ns=late_ns), tmp_path)
    for path in folder.iterdir():
        edited(path, without_steps)
    report = profkit.triage([str(folder)])
    assert [one.rank for one in of(report)] == named
    if not is_always:
        assert "mostly for rank 1, late in 1 of 8 collectives" in report.verdict.headline


@pytest.mark.parametrize("n_steps", [2, 3, 4])
def test_two_ranks_that_are_late_together_in_few_steps_are_both_named(tmp_path, n_steps):
    both = triaged(job(8, n_steps, 3, late_ns=lambda rank, step: 20 * MS * (rank in {1, 5})), tmp_path)
    assert both.verdict.headline.startswith("6 ranks wait for ranks 1, 5")
    assert [one.title.startswith("6 ranks wait for rank") for one in of(both)] == [True, True]
    assert n_steps > 2 or "several times that of any rank that is not named" in texts(both)


def test_two_ranks_that_are_late_in_turn_in_few_steps_name_nobody(tmp_path):
    report = triaged(job(8, 4, 3, late_ns=lambda rank, step: 20 * MS * (rank == (1, 5)[step % 2])), tmp_path)
    assert of(report) == []
    assert "mostly for rank" not in texts(report)


def test_of_ranks_alike_none_stands_for_the_others(tmp_path):
    """Four of eight come 20 ms later than the other four: half of the ranks are no exception."""
    report = triaged(job(8, 3, 3, late_ns=lambda rank, step: 20 * MS * (rank < 4)), tmp_path)
    assert "mostly for rank" not in texts(report)


KERNELS = (("nvjet_hsh_128x256_64x4_1x2_h", 1500), ("flash_fwd_kernel", 800), ("vectorized_elementwise_kernel", 400))
Kernel = Callable[[int, int], float]


def kernels(rank: int, world: Group, slower: Kernel, grid: Kernel, names: dict[int, str]) -> Iterator[Op]:
    """Ten steps of three kernels in each of four layers; `slower` and `grid` by rank and kernel."""
    generator = np.random.default_rng(rank)
    for _ in range(10):
        yield Op(what="step")
        yield Op(what="data", ns=MS)
        for _ in range(4):
            for number, (name, usual_us) in enumerate(KERNELS):
                ns = usual_us * 1000 * slower(rank, number) * (1 + 0.02 * generator.standard_normal())
                yield Op(what="compute", ns=round(ns), name=names.get(rank, "") + name, grid=int(grid(rank, number)))
            yield Op(what="collective", name="allreduce", group=world)
        yield Op(what="join")
        yield Op(what="sync")


def fixed(rank: int, number: int) -> int:
    return 132


def ran(slower: Kernel, grid: Kernel = fixed, names: dict[int, str] | None = None) -> dict[int, Rank]:
    world = Group(name="0", ranks=(0, 1, 2, 3))
    return run({rank: kernels(rank, world, slower, grid, names or {}) for rank in range(4)})


def cause(report: Report) -> str:
    return next(row.cause for row in report.fleet.rows if row.ranks == (2,))


def slower(factor: float, n_kernels: int = 3) -> Kernel:
    """Of these many first kernels, on rank 2."""
    return lambda rank, number: factor if rank == 2 and number < n_kernels else 1.0


def grown(rank: int, number: int) -> int:
    """More work on rank 2: its grids are larger but for the persistent kernel's, which fits the device."""
    return 132 if number == 0 else 64 + 20 * (rank == 2)


@pytest.mark.parametrize(("n_kernels", "factor"), [(3, "1.30x"), (2, "1.26x")], ids=["all", "what multiplies matrices"])
def test_a_device_that_runs_all_kernels_slower_is_slow(tmp_path, n_kernels, factor):
    """Low clocks slow what multiplies matrices, and not what memory limits."""
    report = triaged(ran(slower(1.3, n_kernels)), tmp_path)
    assert cause(report) == f"compute: same kernels {factor}"
    assert "the late rank's device is slow" in of(report)[0].fix


def test_a_persistent_kernel_with_more_to_do_does_not_make_the_device_slow(tmp_path):
    report = triaged(ran(slower(1.3), grown), tmp_path)
    assert cause(report) == "compute: same kernels 1.30x"
    assert "for more work that the trace does not show, or on a slower device" in of(report)[0].fix
    assert report.verdict.next_tool.name == "profkit compare"


def test_a_hot_expert_is_more_work_and_no_slow_device(tmp_path):
    """Its products take 1.5x on rank 2, attention as long as elsewhere: a slow device is slow in both."""
    report = triaged(ran(slower(1.5, 1)), tmp_path)
    assert cause(report) == "compute: more work"
    assert "the late rank has more work, not a slower device" in of(report)[0].fix


def other_model(document: dict) -> None:
    document["deviceProperties"][0]["name"] = "Another GPU"


@pytest.mark.parametrize("names", [{}, {2: "sm80_"}])
def test_another_model_of_device_is_said(tmp_path, names):
    """Its kernels may have names of their own: that is no more work."""
    folder = write(ran(slower(1.8), names=names), tmp_path)
    edited(folder / "rank2.json.gz", other_model)
    report = profkit.triage([str(folder)])
    assert cause(report) == "compute: other model of device"
    assert "its device is Another GPU, its peers have Simulated GPU" in texts(report)
    assert "same model of device" in of(report)[0].fix


def test_kernels_that_take_longer_in_some_steps_are_not_more_work(tmp_path):
    report = triaged(job(4, 20, 4, slower=lambda rank, step: 1.6 if rank == 2 and step % 5 < 2 else 1.0), tmp_path)
    assert cause(report) == "compute: longer at times"
    assert "compare the late rank's inputs" in of(report)[0].fix


@pytest.mark.parametrize("kept", [("kernel",), ("kernel", "user_annotation")])
def test_without_host_rows_it_is_not_known_what_a_late_host_does(tmp_path, kept):
    """Its loader takes 6 ms longer; a trace of the device alone shows idle time."""

    def device_alone(document: dict) -> None:
        document["traceEvents"] = [
            one for one in document["traceEvents"] if one["cat"] in kept and "DataLoader" not in one["name"]
        ]

    folder = write(run(programs(Job(slow={2: 6 * MS}))), tmp_path)
    for path in folder.iterdir():
        edited(path, device_alone)
    report = profkit.triage([str(folder)])
    assert report.verdict.rank == 2
    assert of(report)[0].title == "3 ranks wait for rank 2, whose host does something that its trace does not show"
    assert cause(report) == "host: not recorded"
    assert "its trace has no row of the host" in texts(report)
    assert report.verdict.next_tool.name == "torch.profiler"


def test_a_checkpoint_on_one_rank_is_said_to_be_in_one_step(tmp_path):
    report = triaged(job(4, 12, 3, late_ns=lambda rank, step: 200 * MS * ((rank, step) == (0, 6))), tmp_path)
    assert [one.title for one in of(report)] == [
        "3 ranks wait for rank 0 once, for 200 ms, while its host runs no operator"
    ]
    assert ", and no other is a third as long; a longer capture" in texts(report)


@pytest.mark.parametrize(("n_steps", "name"), [(12, "comm.bandwidth"), (4, "comm.exposed")])
@pytest.mark.parametrize(("transfer_ms", "is_first"), [(3, False), (10, True)])
def test_below_half_of_the_step_communication_stands_behind_a_late_rank(tmp_path, n_steps, name, transfer_ms, is_first):
    """Rank 1 is 3 ms late in steps of 25 or 46 ms, of which transfer takes 9 or 30 ms."""
    world = Group(name="0", ranks=(0, 1, 2, 3))

    @in_steps(n_steps)
    def program(rank: int) -> Iterator[Op]:
        yield Op(what="data", ns=MS + 3 * MS * (rank == 1))
        for _ in range(3):
            yield Op(what="compute", ns=4 * MS)
            yield Op(what="collective", name="allreduce", group=world)
            yield Op(what="join_stream")

    ranks = run({rank: program(rank) for rank in range(4)}, transfer_ns=transfer_ms * MS)
    found = [one.id for one in triaged(ranks, tmp_path).verdict.findings]
    assert found.index(name) < found.index("straggler.rank") if is_first else found[0] == "straggler.rank"
    assert name in found


def once(rank: int, world: Group, alone_ns: Callable[[int, int], int]) -> Iterator[Op]:
    """One pass that nobody marks as a step: twelve times what a rank does alone, work of 20 us, an all-reduce."""
    for number in range(12):
        if alone_ns(rank, number):
            yield Op(what="host", ns=alone_ns(rank, number))
        yield Op(what="compute", ns=MS // 50)
        yield Op(what="collective", name="allreduce", group=world)
        yield Op(what="join")
        yield Op(what="sync")


def passed(tmp_path: Path, transfer_ns: int, alone_ns: Callable[[int, int], int]) -> Report:
    world = Group(name="0", ranks=(0, 1))
    programs = {rank: once(rank, world, alone_ns) for rank in world.ranks}
    return triaged(run(programs, transfer_ns=transfer_ns), tmp_path)


def test_ranks_that_wait_in_turn_in_one_pass_have_no_verdict(tmp_path: Path) -> None:
    """Of twelve collectives each rank is last in half: one pass does not show whether either is late again."""
    report = passed(tmp_path, MS // 50, lambda rank, number: 2 * MS * (number % 2 == rank))
    assert report.verdict.bottleneck.value == "inconclusive"
    assert "of communication is waiting for ranks that come late" in report.verdict.headline
    assert "comm.exposed" in [one.id for one in report.verdict.findings]
    assert "20 collectives or more on every rank" in report.verdict.next_tool.look_for


def test_collectives_of_one_pass_that_mostly_transfer_are_communication(tmp_path: Path) -> None:
    report = passed(tmp_path, MS, lambda rank, number: 0)
    assert report.verdict.bottleneck.value == "comm-bound"
