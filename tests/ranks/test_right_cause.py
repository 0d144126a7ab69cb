"""Why a rank is late, as its peers show it; who waits for it; slow links; captures that are short or merged."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import profkit
from profkit.errors import UnsupportedTraceError
from profkit.model.documents.report import Bottleneck
from tests.ranks.disk_jobs import Job, programs
from tests.ranks.merged import merged
from tests.ranks.scripted import MS, US, Clock, Group, Op, Writing, cause, found, in_steps, run, said, triaged, write

WORLD = Group(name="0", ranks=(0, 1, 2, 3))


def step(rank: int, *, late_ns: int = 0, sync_ns: int = 0, group: Group = WORLD) -> Iterator[Op]:
    """A step of 30 ms in which every rank waits for its device twice; `late_ns` is a sleep that leaves no row."""
    yield Op(what="step")
    yield Op(what="data", ns=MS)
    for part in range(3):
        yield Op(what="compute", ns=9 * MS + rank * 20 * US)
        yield Op(what="sync")
        if sync_ns:
            yield Op(what="host", ns=sync_ns, name="allocate")
        if part == 1 and late_ns:
            yield Op(what="host", ns=late_ns)
    yield Op(what="compute", ns=MS)
    yield Op(what="collective", name="allreduce", group=group)
    yield Op(what="join")
    yield Op(what="sync")


def slept(n_steps: int, late_ns: int, *, n_ranks: int = 4) -> dict[int, list[Op]]:
    """Four ranks of which rank 1 sleeps in each step, though all of them wait for their allocator as long."""
    group = Group(name="0", ranks=tuple(range(n_ranks)))
    return {
        rank: [
            op for _ in range(n_steps) for op in step(rank, late_ns=late_ns * (rank == 1), sync_ns=3 * MS, group=group)
        ]
        for rank in range(n_ranks)
    }


@pytest.mark.parametrize("n_steps", [3, 12])
def test_a_sleep_is_host_time_with_nothing_recorded_and_not_what_all_ranks_have(tmp_path, n_steps):
    report = triaged(run(slept(n_steps, 1001 * MS)), tmp_path)
    late = found(report)
    assert (report.verdict.rank, late.rank) == (1, 1)
    assert cause(report, 1) == "host: not recorded"
    assert "its CPU spends 1.00 s per step longer than its peers with nothing recorded, mostly before aten::mm" in said(
        late
    )
    assert "allocate takes" not in said(late)


@pytest.mark.parametrize("n_steps", [1, 2, 3, 4])
@pytest.mark.parametrize("absent", [None, 3])
def test_a_gross_straggler_of_a_short_capture_is_named_with_less_confidence(tmp_path, n_steps, absent):
    """Each step has one collective: 20 are needed for clocks, and to tell waiting from transfer."""
    folder = write(run(slept(n_steps, 1001 * MS)), tmp_path)
    if absent is not None:
        (folder / f"rank{absent}.json.gz").unlink()
    report = profkit.triage([str(folder)])
    assert report.verdict.bottleneck is Bottleneck.STRAGGLER
    assert report.verdict.rank == 1
    assert found(report).confidence <= 0.9 * 0.8 * 0.8
    assert "halve the bytes" not in report.verdict.proof
    assert any("too short for this test" in item.statement for item in found(report).evidence)


def test_where_the_late_rank_is_missing_its_trace_is_asked_for(tmp_path):
    folder = write(run(slept(4, 1001 * MS)), tmp_path)
    (folder / "rank1.json.gz").unlink()
    verdict = profkit.triage([str(folder)]).verdict
    assert verdict.headline.startswith("collectives take long; rank 1, which may be the late one, is missing")
    assert verdict.next_tool.purpose.startswith("bring the trace of rank 1 ")
    assert verdict.fixes[0].startswith("first bring the trace of rank 1")
    assert "halve the bytes" not in verdict.proof


def test_one_hiccup_in_a_short_capture_names_nobody(tmp_path):
    program = {
        rank: [op for number in range(4) for op in step(rank, late_ns=60 * MS * (rank == 1 and number == 2))]
        for rank in range(4)
    }
    report = triaged(run(program), tmp_path)
    assert not [one for one in report.findings if one.id == "straggler.rank"]
    assert report.verdict.findings[0].title == (
        "ranks wait, mostly for rank 1, late in 1 of 4 collectives: too few to call it a straggler"
    )
    assert "if rank 1 is late again" in report.verdict.proof


def test_more_work_is_said_of_a_rank_that_has_more_and_named(tmp_path):
    report = triaged(run(programs(Job(slow={2: 5 * MS}, phase="work"))), tmp_path)
    assert cause(report, 2) == "compute: more work"
    assert "flash_fwd_kernel takes 5.0" in said(found(report))


@in_steps(10)
def moved_work(rank: int, sleep_ns: int) -> Iterator[Op]:
    """Rank 1 sleeps, and runs its large kernel one collective later than its peers: no rank computes more."""
    yield Op(what="data", ns=MS)
    if rank == 1:
        yield Op(what="host", ns=sleep_ns)
    for part in range(4):
        yield Op(what="compute", ns=5 * MS if part == (2 if rank == 1 else 1) else MS)
        yield Op(what="collective", name="allreduce", group=WORLD)
        yield Op(what="join")


@pytest.mark.parametrize(("sleep_ms", "why"), [(12, "host: not recorded"), (2, "mixed")])
def test_no_rank_computes_more_where_all_compute_the_same(tmp_path, sleep_ms, why):
    """Before the collectives it is late for, rank 1 computes 4 ms longer than its peers; over the step it does not."""
    report = triaged(run({rank: moved_work(rank, sleep_ms * MS) for rank in range(4)}), tmp_path)
    late = found(report)
    assert (report.verdict.rank, cause(report, 1)) == (1, why)
    assert "longer in compute" not in said(late)
    assert ("no single cause" in late.title) == (why == "mixed")


def test_work_that_starts_late_on_a_shared_device_is_the_devices(tmp_path):
    """Another process has rank 2's device for 2 of each 6 ms; what would begin then begins after it."""
    ranks = run(programs(Job()), machines={2: {"others_slice": (6 * MS, 2 * MS)}})
    report = triaged(ranks, tmp_path)
    late = found(report)
    assert (late.rank, cause(report, 2)) == (2, "device: late")
    assert late.title == "3 ranks wait for rank 2, whose device starts its work late"
    assert report.verdict.next_tool.command == "nvidia-smi pmon -c 10"
    assert not any("too few to call it a straggler" in one.title for one in report.findings)
    row = {row.ranks[0]: row for row in report.fleet.rows}
    assert row[2].device_ns > 2 * MS > 10 * row[0].device_ns
    assert row[2].host_ns < MS


@in_steps(8)
def pairs(rank: int, slow_ns: int, tensor: Group, data: Group, *, late_ns: int = 0) -> Iterator[Op]:
    yield Op(what="data", ns=MS + late_ns)
    for _ in range(6):
        yield Op(what="compute", ns=2 * MS)
        yield Op(what="collective", name="allreduce", group=tensor, elements=2_000_000)
        yield Op(what="join_stream")
    yield Op(what="collective", name="allreduce", group=data, elements=4_000_000, stream=24)


def grid(slow_ns: int = 0, late: dict[int, int] | None = None) -> dict[int, Iterator[Op]]:
    """Eight ranks in four pairs, of which the third transfers in `slow_ns`; the other groups go across the pairs."""
    out = {}
    for rank in range(8):
        block, place = divmod(rank, 2)
        transfer = slow_ns if block == 2 and slow_ns else 200 * US
        tensor = Group(name=f"tp{block}", ranks=(2 * block, 2 * block + 1), transfer_ns=transfer)
        data = Group(name=f"dp{place}", ranks=tuple(range(place, 8, 2)))
        out[rank] = pairs(rank, slow_ns, tensor, data, late_ns=(late or {}).get(rank, 0))
    return out


@pytest.mark.parametrize("has_seq", [True, False])
def test_a_slow_link_is_named_by_its_group_against_its_twins(tmp_path, has_seq):
    report = triaged(run(grid(slow_ns=800 * US)), tmp_path, Writing(has_seq=has_seq))
    link = found(report, "comm.slow_link")
    assert report.verdict.bottleneck is Bottleneck.COMM
    assert report.verdict.findings[0].id == "comm.slow_link"
    assert link.title == "group tp2 (ranks 4-5) transfers at 10.0 GB/s, its 3 twin groups at 39.8 GB/s"
    # six transfers a step of 0.8 ms instead of 0.2
    assert link.recoverable_ns == pytest.approx(6 * 600 * US, rel=0.05)
    assert not [one for one in report.findings if one.id == "straggler.rank"]


def test_groups_as_fast_as_each_other_are_not_named(tmp_path):
    report = triaged(run(grid()), tmp_path)
    assert not {"comm.slow_link", "straggler.rank"} & {one.id for one in report.findings}


def test_all_ranks_that_wait_are_counted_not_those_of_the_pair_alone(tmp_path):
    report = triaged(run(grid(late={5: 4 * MS})), tmp_path)
    assert found(report).title == "7 ranks wait for rank 5, which waits for its DataLoader"


def test_a_late_rank_is_the_verdict_though_the_work_takes_most_of_the_step(tmp_path):
    report = triaged(run(programs(Job(slow={3: 2 * MS}))), tmp_path)
    assert report.ranks[0].devices[0].budget.fraction("compute") > 0.7
    assert 0.05 < found(report).fraction < 0.15
    assert report.verdict.bottleneck is Bottleneck.STRAGGLER
    assert report.verdict.headline.startswith("3 ranks wait for rank 3")


@pytest.mark.parametrize("early_us", [0, 53])
def test_clocks_53_us_apart_leave_long_idle_times_their_cause(tmp_path, early_us):
    how = Writing(device_early_ns=early_us * US)
    report = triaged(run(slept(4, 1001 * MS)), tmp_path, how)
    assert report.verdict.bottleneck is Bottleneck.STRAGGLER
    assert cause(report, 1) == "host: not recorded"
    row = next(row for row in report.fleet.rows if row.ranks == (1,))
    assert row.host_ns == pytest.approx(1001 * MS, rel=0.02)


def test_a_file_of_several_ranks_is_split_by_rank(tmp_path):
    folder = write(run(programs(Job(slow={1: 6 * MS}))), tmp_path / "job")
    apart = profkit.triage([str(folder)])
    together = profkit.triage([str(merged(folder, tmp_path / "merged.json"))])
    assert together.fleet.ranks == apart.fleet.ranks == (0, 1, 2, 3)
    assert together.verdict.headline == apart.verdict.headline
    assert [row.compute_ns for row in together.fleet.rows] == [row.compute_ns for row in apart.fleet.rows]


def test_a_file_of_several_processes_without_ranks_is_refused_in_one_line(tmp_path):
    folder = write(run(programs(Job())), tmp_path / "job")
    with pytest.raises(UnsupportedTraceError, match="several ranks in one file"):
        profkit.triage([str(merged(folder, tmp_path / "merged.json", has_ranks=False))])


@pytest.mark.parametrize("has_args", [True, False])
@pytest.mark.parametrize("n_steps", [3, 12])
def test_a_clock_that_drifts_by_50_ppm_is_matched(tmp_path, has_args, n_steps):
    how = Writing(has_args=has_args, has_seq=False, clocks={2: Clock(offset_ns=4 * MS, drift=5e-5)})
    report = triaged(run(slept(n_steps, 1001 * MS)), tmp_path, how)
    assert report.fleet.refusals == ()
    assert [group.ranks for group in report.fleet.groups] == [(0, 1, 2, 3)]
    assert report.verdict.rank == 1


def test_the_report_is_the_same_whichever_file_comes_first(tmp_path):
    folder = write(run(grid(slow_ns=800 * US)), tmp_path)
    files = sorted(map(str, Path(folder).iterdir()))
    first, second = profkit.triage(files), profkit.triage(files[::-1])
    assert first.verdict.headline == second.verdict.headline
