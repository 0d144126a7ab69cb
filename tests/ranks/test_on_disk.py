"""Whole jobs as files, through `triage`: what is said of who is late, and how sure it is."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import profkit
from profkit.cli.triage import command
from profkit.findings.communication import SKEW
from profkit.findings.kind import Threshold
from profkit.model.documents.report import Bottleneck, Report
from profkit.render.words.fleet import facts_of, table_title
from tests.conftest import dear
from tests.ranks.disk_jobs import Job, programs
from tests.ranks.scripted import MS, Clock, Group, Op, Writing, found, run, said, triaged, write


def report_on(folder: Path, job: Job, how: Writing | None = None) -> Report:
    return triaged(run(programs(job)), folder, how)


def late(report: Report) -> list[int | None]:
    return [finding.rank for finding in report.findings if finding.id == "straggler.rank"]


@pytest.mark.parametrize(("phase", "where"), [("data", "wait for their DataLoaders"), ("device", "compute longer")])
@pytest.mark.parametrize("n_ranks", [4, dear(8)])
def test_two_ranks_that_are_as_late_as_each_other_are_the_verdict(tmp_path, phase, where, n_ranks):
    """Either of them mended gives next to nothing; both give the whole lateness, 6 of 20 ms."""
    report = report_on(tmp_path, Job(n_ranks=n_ranks, slow={1: 6 * MS, 3: 6 * MS}, phase=phase))
    assert sorted(late(report)) == [1, 3]
    assert report.verdict.bottleneck is Bottleneck.STRAGGLER
    first = next(finding for finding in report.findings if finding.id == "straggler.rank")
    assert first.title == f"{n_ranks - 2} ranks wait for ranks 1, 3, which {where}"
    assert first.recoverable_ns == pytest.approx(5.95 * MS, rel=0.02)
    assert "if ranks 1, 3 were as fast as their peers" in said(first)


@pytest.mark.parametrize(
    ("phase", "name", "longer_ms"), [("device", "ampere_sgemm_64x64_nt", 4), ("work", "flash_fwd_kernel", 6)]
)
def test_a_rank_late_by_its_compute_names_the_kernel_that_takes_longer(tmp_path, phase, name, longer_ms):
    """Half as long again: of 8 ms of products 4 ms; or 6 ms of a kernel that the other ranks do not run."""
    report = report_on(tmp_path, Job(slow={1: 6 * MS}, phase=phase))
    longer = found(report, "straggler.rank").seen("straggler.kernel_excess_ns")
    assert longer.value == pytest.approx(12 * longer_ms * MS, rel=0.01)
    assert longer.statement == f"{name} takes {longer_ms}.00 ms per step longer here than on the median rank"


def test_a_rank_late_by_its_loader_has_no_kernel_that_takes_longer(tmp_path):
    report = report_on(tmp_path, Job(slow={1: 6 * MS}))
    metrics = {evidence.metric for evidence in found(report, "straggler.rank").evidence}
    assert "straggler.kernel_excess_ns" not in metrics


def test_the_ceiling_is_that_of_the_prediction_beside_it(tmp_path):
    report = report_on(tmp_path, Job(slow={1: 6 * MS, 3: 6 * MS}))
    prediction = report.fleet.prediction
    assert report.verdict.speedup_ceiling == pytest.approx(prediction.replayed_ns / prediction.predicted_ns, rel=1e-3)


def test_a_cache_that_cannot_be_made_is_said_and_the_run_goes_on(tmp_path):
    folder = write(run(programs(Job(slow={1: 6 * MS}))), tmp_path / "job")
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(command, [str(folder), "--cache", str(tmp_path / "file" / "kept")], standalone_mode=False)
    assert done.return_value == 0
    assert "nothing is kept" in done.stderr
    assert "Not a directory" in done.stderr
    assert "STRAGGLER-BOUND" in done.stdout


def test_a_late_rank_behind_a_later_one_is_named_as_well(tmp_path):
    """Rank 3 is never last, for rank 1 is a millisecond later: mending rank 1 alone gives what that is in the mean."""
    report = report_on(tmp_path, Job(slow={1: 6 * MS, 3: 5 * MS}))
    assert late(report) == [1, 3]
    first, second = (finding for finding in report.findings if finding.id == "straggler.rank")
    assert "rank 1 alone would save 947 us" in said(first)
    assert second.recoverable_ns < 0.1 * MS


@pytest.mark.parametrize("n_steps", [1, 3, dear(5)])
def test_lateness_in_few_steps_is_said_with_less_confidence_and_why(tmp_path, n_steps):
    """Collectives of one step are one observation: whether the rank is late in the next is unknown."""
    few = report_on(tmp_path / "few", Job(n_ranks=8, n_steps=n_steps, n_buckets=24, slow={3: 40 * MS}, phase="device"))
    assert late(few) == [3]
    straggler = found(few, "straggler.rank")
    assert straggler.confidence == pytest.approx(0.9 * 0.8)
    assert few.verdict.confidence <= straggler.confidence
    step = "one step" if n_steps == 1 else f"{n_steps} steps"
    assert f"blocks), all in {step}: whether the rank is late in other steps is unknown" in said(straggler)


def test_from_six_steps_on_steps_are_the_witnesses(tmp_path):
    straggler = found(
        report_on(tmp_path, Job(n_ranks=8, n_steps=6, slow={3: 5 * MS}, phase="device")), "straggler.rank"
    )
    assert straggler.confidence == pytest.approx(0.9)
    assert "(permutation test, 6 blocks)" in said(straggler)


def test_one_rank_of_two_late_in_six_steps_is_not_called_turns(tmp_path):
    """Two ranks cannot show with six steps that it is no chance; that they take turns would be false all the same."""
    report = report_on(tmp_path, Job(n_ranks=2, n_steps=6, slow={1: 3 * MS}))
    assert late(report) == []
    skew = found(report, "comm.skew")
    assert skew.title == "ranks wait, mostly for rank 1, which is not a proven straggler"
    assert "of the delay; it is not proven to be late: rank 1 is latest in total, but that may be chance" in said(skew)
    assert "20 steps or more on every rank" in skew.next_tools[0].look_for
    assert skew.recoverable_ns == pytest.approx(0.5 * skew.most_recoverable_ns, rel=0.05), "half of its work goes over"


@pytest.mark.parametrize(("late_ns", "tested", "is_worth"), [(MS, 20, True), (MS, 6, False), (2 * MS, 6, True)])
def test_waits_save_what_ranks_win_that_come_together(tmp_path, monkeypatch, late_ns, tested, is_worth):
    """One of two waits for 7 or 10 % of the window, the other not. In steps enough, little in the mean is chance."""
    monkeypatch.setitem(SKEW.thresholds, "tested", Threshold(tested, "", ""))
    skew = found(report_on(tmp_path, Job(n_ranks=2, n_steps=6, slow={1: late_ns})), "comm.skew")
    assert (skew.recoverable_ns > 0) == is_worth


def test_one_rank_of_two_late_by_a_quarter_of_each_step_is_named_with_less_confidence(tmp_path):
    report = report_on(tmp_path, Job(n_ranks=2, n_steps=6, slow={1: 6 * MS}))
    assert late(report) == [1]
    straggler = found(report, "straggler.rank")
    assert straggler.confidence == pytest.approx(0.9 * 0.8)
    assert "too short for this test, but the delay is several times that of any other rank" in said(straggler)


@pytest.mark.parametrize("n_ranks", [2, 4])
@pytest.mark.parametrize("has_args", [True, False])
def test_lateness_that_rotates_names_nobody(tmp_path, n_ranks, has_args):
    report = report_on(tmp_path, Job(n_ranks=n_ranks, slow={0: 6 * MS}, rotates=True), Writing(has_args=has_args))
    assert late(report) == []
    assert found(report, "comm.skew").title == "ranks wait for each other; which rank is late changes"


@pytest.mark.parametrize(("name", "confidence"), [("save_checkpoint", 0.85), ("", 0.7)])
def test_rank_0_work_is_as_sure_as_what_the_trace_shows_of_it(tmp_path, name, confidence):
    """Without a range of its own the trace shows that rank 0 is late at barriers, not what it does."""
    report = report_on(tmp_path, Job(has_barrier=True, alone=(8 * MS, name)))
    known = "all ranks wait for work that only rank 0 does" if name else "all ranks wait for rank 0 at barriers"
    assert report.verdict.headline.startswith(known)
    assert found(report, "rank0.work").confidence == pytest.approx(confidence)
    assert report.verdict.confidence == pytest.approx(confidence)


@pytest.mark.parametrize("has_args", [True, False])
@pytest.mark.parametrize("n_ranks", [2, 4, dear(8)])
def test_healthy_ranks_on_clocks_apart_are_not_blamed(tmp_path, n_ranks, has_args):
    clocks = {rank: Clock(offset_ns=30 * MS * (rank % 2), drift=35e-6 * (1 - rank % 3)) for rank in range(n_ranks)}
    report = report_on(tmp_path, Job(n_ranks=n_ranks), Writing(has_args=has_args, clocks=clocks))
    assert late(report) == []
    assert report.fleet.refusals == ()
    assert max(row.residual_p95_ns for row in report.fleet.clocks) < 20_000


@pytest.mark.parametrize("has_args", [True, False])
def test_a_window_that_misses_one_collective_is_found_and_said(tmp_path, has_args):
    report = report_on(tmp_path, Job(), Writing(dropped={2: 1}, has_args=has_args))
    (group,) = report.fleet.groups
    assert group.n_instances == 47
    of = " of group 0" if has_args else ""
    said = f"1 of 48 collectives{of} is missing on some ranks (rank 2 starts 1 later)"
    assert said in report.verdict.caveats
    assert late(report) == []


def test_whole_windows_are_not_spoken_of(tmp_path):
    assert not any("on every rank" in line for line in report_on(tmp_path, Job()).verdict.caveats)


@pytest.mark.parametrize("has_args", [True, False])
def test_windows_apart_by_steps_are_judged_on_the_steps_they_share(tmp_path, has_args):
    """A rank whose window is over may be the last to come: what is left of such a collective is no transfer."""
    apart = Writing(has_args=has_args, windows={0: (0, 12), 1: (1, 13), 2: (0, 12), 3: (2, 14)})
    report = report_on(tmp_path, Job(n_steps=14, slow={3: 6 * MS}), apart)
    assert late(report) == [3]
    straggler = found(report, "straggler.rank")
    assert straggler.recoverable_ns == pytest.approx(6 * MS, rel=0.03)
    assert straggler.fraction == pytest.approx(6 / 20, rel=0.03)
    (group,) = report.fleet.groups
    assert group.n_instances == 40
    assert group.transfer_ns / group.n_instances == pytest.approx(0.4 * MS, rel=0.02)
    assert report.fleet.prediction is None
    assert "only 10 of 12 steps are in every rank's window" in report.fleet.prediction_note
    begins = "rank 1 starts 4 later; rank 3 starts 8 later"
    ends = "rank 0 ends 4 earlier; rank 1 starts 4 later; rank 2 ends 4 earlier; rank 3 starts 8 later"
    lacking = f"12 of 52 collectives of group 0 are missing on some ranks ({ends})"
    by_ends = f"8 of 48 collectives are missing on some ranks ({begins})"  # of those that rank 0 has
    assert (lacking if has_args else by_ends) in report.verdict.caveats


def test_too_few_shared_collectives_do_not_tell_waiting_from_transfer(tmp_path):
    """12 collectives are on all ranks; of the others the last rank may be one whose window is over."""
    apart = Writing(windows={0: (0, 14), 1: (0, 6), 2: (3, 14), 3: (0, 9)})
    report = report_on(tmp_path, Job(n_steps=14, slow={0: 6 * MS}, rotates=True), apart)
    assert not {"comm.skew", "comm.bandwidth"} & {finding.id for finding in report.findings}


def test_a_late_rank_comes_before_transfer_that_only_faster_links_would_take_away(tmp_path):
    """Mending rank 0 gives 2 ms for certain; of 3.2 ms of transfer it is not known what the links could do."""
    job = Job(has_barrier=True, alone=(2 * MS, "save_checkpoint"))
    report = triaged(run(programs(job), transfer_ns=round(1.6 * MS)), tmp_path)
    transfer, alone = found(report, "comm.bandwidth"), found(report, "rank0.work")
    assert transfer.fraction > alone.fraction > 0.05
    assert report.verdict.bottleneck is Bottleneck.STRAGGLER
    assert report.verdict.findings[0].id == "rank0.work"
    assert "comm.bandwidth" in {finding.id for finding in report.verdict.findings}


def test_transfer_that_takes_half_of_the_step_is_the_verdict_all_the_same(tmp_path):
    job = Job(has_barrier=True, alone=(3 * MS, "save_checkpoint"))
    report = triaged(run(programs(job), transfer_ns=9 * MS), tmp_path)
    assert found(report, "comm.bandwidth").fraction > 0.5
    assert found(report, "rank0.work").fraction > 0.05
    assert report.verdict.bottleneck is Bottleneck.COMM


def test_nccls_generic_kernel_is_matched_where_its_ends_agree(tmp_path):
    """Coalesced collectives run as one kernel whose name says nothing; without arguments only time tells."""
    generic = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"
    report = report_on(tmp_path, Job(slow={3: 6 * MS}), Writing(has_args=False, kernel=generic))
    assert [group.n_instances for group in report.fleet.groups] == [48]
    assert report.fleet.groups[0].bus_bytes_per_s is None
    assert late(report) == [3]


def test_two_jobs_of_one_size_at_one_time_are_not_mixed(tmp_path):
    """Rank 0 has more events in one of them and rank 1 in the other: chosen rank by rank, they would be no job."""
    healthy, slow = run(programs(Job())), run(programs(Job(slow={2: 6 * MS})))
    for rank in range(4):
        for step in range(40 if rank % 2 else 0):
            slow[rank].put("user_annotation", "note", 10 * MS + step, 10 * MS + step + 1)
        for step in range(20):
            healthy[rank].put("user_annotation", "note", 10 * MS + step, 10 * MS + step + 1)
    write(healthy, tmp_path / "healthy")
    write(slow, tmp_path / "slow")
    for name in ("healthy", "slow"):
        for path in (tmp_path / name).iterdir():
            path.rename(tmp_path / f"{name}_{path.name}")
        (tmp_path / name).rmdir()
    report = profkit.triage([str(tmp_path)])
    assert [Path(rank.source).name.partition("_")[0] for rank in report.ranks] in (["healthy"] * 4, ["slow"] * 4)
    assert {item.reason for item in report.fleet.left_out} in (
        {"its rank appears twice: healthy_rank0.json.gz and files named like it are used"},
        {"its rank appears twice: slow_rank0.json.gz and files named like it are used"},
    )


def test_transfer_that_may_be_waiting_for_a_missing_rank_is_not_called_transfer(tmp_path):
    folder = write(run(programs(Job(n_ranks=8, slow={5: 6 * MS}))), tmp_path)
    (folder / "rank5.json.gz").unlink()
    report = profkit.triage([str(folder)])
    assert late(report) == []
    assert not {"comm.skew", "comm.bandwidth"} & {finding.id for finding in report.findings}
    assert report.fleet.groups[0].bus_bytes_per_s is None
    assert table_title(report) == "7 of 8 ranks, ms per step; transfer includes waiting for missing ranks"
    assert any("transfer or waiting for missing ranks" in text for _, text in facts_of(report.fleet, is_full=True))


@pytest.mark.parametrize("chosen", [(2, 8), (0, 6)])
def test_only_the_steps_asked_for_are_judged(tmp_path, chosen):
    folder = write(run(programs(Job(slow={1: 6 * MS}))), tmp_path)
    report = profkit.triage([str(folder)], step_range=chosen)
    assert late(report) == [1]
    straggler = found(report, "straggler.rank")
    assert straggler.recoverable_ns == pytest.approx(6 * MS, rel=0.03)
    assert straggler.fraction == pytest.approx(6 / 20, rel=0.03)
    assert [group.n_instances for group in report.fleet.groups] == [24]
    assert report.fleet.prediction.predicted_ns == pytest.approx(14 * MS, rel=0.01)
    for row in report.fleet.rows:
        assert row.wait_ns == pytest.approx(0 if row.ranks == (1,) else 4.8 * MS, abs=0.1 * MS)


def test_groups_that_are_a_guess_cost_confidence(tmp_path):
    """Without names the collectives of two pairs are taken for those of four ranks; their ends do not agree."""
    pairs = Group(name="tp0", ranks=(0, 1)), Group(name="tp1", ranks=(2, 3))

    def program(rank: int):
        generator = np.random.default_rng(rank)
        for _ in range(12):
            yield Op(what="step")
            for _ in range(4):
                yield Op(what="compute", ns=round(MS * (1 + 0.02 * generator.standard_normal())))
                yield Op(what="collective", name="allreduce", group=pairs[rank // 2])
                yield Op(what="join")
            yield Op(what="sync")

    ranks = run({rank: program(rank) for rank in range(4)}, transfer_ns=MS)
    reports = {
        has_args: triaged(ranks, tmp_path / str(has_args), Writing(has_args=has_args)) for has_args in (True, False)
    }
    assert [group.method for group in reports[True].fleet.groups] == ["sequence number"] * 2
    assert [group.method for group in reports[False].fleet.groups] == ["order within steps"]
    sure, guessed = (found(reports[has_args], "comm.bandwidth").confidence for has_args in (True, False))
    assert guessed == pytest.approx(0.8 * sure)


def test_collectives_that_run_after_the_last_step_are_not_exposed_in_it(tmp_path):
    """Nothing waits for the device here: the host's steps are over when a tenth of their collectives have run."""
    report = report_on(tmp_path, Job(is_synced=False))
    low, high = report.ranks[0].window_ns
    (group,) = report.fleet.groups
    assert 0 < group.exposed_ns <= high - low
    assert all(finding.fraction < 0.2 for finding in report.findings if finding.id.startswith("comm."))


def _two_groups(rank: int, groups: tuple[Group, Group]) -> Iterator[Op]:
    """Steps whose all-reduces go over two groups of the same ranks; twice rank 2 is held up before the second's."""
    for step in range(12):
        yield Op(what="step")
        yield Op(what="data", ns=MS)
        for group, stream, compute_ns in ((groups[0], 20, 4 * MS), (groups[1], 24, MS)):
            if group is groups[1] and rank == 2 and step in (4, 9):
                yield Op(what="host", ns=80 * MS)
            for _ in range(2):
                yield Op(what="compute", ns=compute_ns)
                yield Op(what="collective", name="allreduce", group=group, stream=stream)
                yield Op(what="join")
                yield Op(what="sync")


def test_of_two_groups_with_the_same_ranks_each_has_a_reason_of_its_own(tmp_path):
    groups = tuple(Group(name=name, ranks=(0, 1, 2, 3)) for name in ("first", "second"))
    programs_by_rank = {rank: _two_groups(rank, groups) for rank in range(4)}
    report = triaged(run(programs_by_rank), tmp_path)
    skew = found(report, "comm.skew")
    assert "group second of 4 ranks" in said(skew)
    assert "is not proven to be late: rank 2 is latest in total, but that may be chance" in said(skew)


def _late_in_a_group_each(rank: int, groups: tuple[Group, Group, Group]) -> Iterator[Op]:
    """Rank 1 is late for all, rank 3 for its pair alone."""
    for _ in range(12):
        yield Op(what="step")
        yield Op(what="data", ns=MS + (6 * MS if rank == 1 else 0))
        for group, stream, compute_ns in ((groups[0], 20, 2 * MS), (groups[1 + rank // 2], 24, MS)):
            if stream == 24 and rank == 3:
                yield Op(what="host", ns=3 * MS)
            for _ in range(2):
                yield Op(what="compute", ns=compute_ns)
                yield Op(what="collective", name="allreduce", group=group, stream=stream)
                yield Op(what="join")
                yield Op(what="sync")


def test_waiting_is_explained_by_the_late_ranks_of_one_group_which_is_named(tmp_path):
    groups = tuple(Group(name=name, ranks=ranks) for name, ranks in (("w", (0, 1, 2, 3)), ("a", (0, 1)), ("b", (2, 3))))
    programs_by_rank = {rank: _late_in_a_group_each(rank, groups) for rank in range(4)}
    report = triaged(run(programs_by_rank), tmp_path)
    assert sorted(late(report)) == [1, 3]
    assert report.fleet.explained[0].endswith("; ranks 1, 3 cause 100.0 % of the delay in group w of 4 ranks")


def test_a_range_that_covers_little_of_rank_0s_lateness_is_not_said_to_cover_it(tmp_path):
    """Of 20 ms before each barrier 2 are a range of rank 0's own: what the others are is not known."""
    job = Job(has_barrier=True, alone=(2 * MS, "save_metrics"), nameless_ns=18 * MS)
    alone = found(report_on(tmp_path, job), "rank0.work")
    first = alone.evidence[0]
    assert re.fullmatch(r"the others wait for rank 0 at barriers: 99\.\d % of the delay arises there", first.statement)
    assert "save_metrics" not in first.statement
    assert alone.confidence == pytest.approx(0.7)


def test_a_range_that_covers_rank_0s_lateness_says_how_much_of_it(tmp_path):
    """Of 20 ms before each barrier 16 are a range of rank 0's own."""
    job = Job(has_barrier=True, alone=(16 * MS, "save_checkpoint"), nameless_ns=4 * MS)
    first = found(report_on(tmp_path, job), "rank0.work").evidence[0]
    assert first.statement.startswith("save_checkpoint runs on rank 0 only; this explains ")
    assert first.value == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(
    ("slow", "said_of_them"),
    [({3: 2 * MS}, "rank 3 is late as well"), ({3: 2 * MS, 5: 2 * MS}, "ranks 3, 5 are late as well")],
)
def test_ranks_that_show_once_another_is_mended_are_a_caveat(tmp_path, slow, said_of_them):
    report = report_on(tmp_path, Job(n_ranks=8, slow={1: 30 * MS, **slow}))
    assert late(report) == [1]
    (caveat,) = [note for note in report.verdict.caveats if "late as well" in note]
    assert caveat.startswith(f"{said_of_them}, but nearly always behind a later rank")
