"""From a folder of ranks to one answer: who is late, who is missing, what takes no part."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import jsonschema
import pytest

import profkit
from profkit.errors import ProfkitError
from profkit.model.documents.fleet import LeftOut
from profkit.model.documents.report import Bottleneck, Report
from profkit.render import renderer_for
from profkit.render.schema import schema
from profkit.render.terminal import triage as terminal
from profkit.render.words.fleet import left_out_lines
from profkit.testing import kernel, span, to_json
from tests.ranks.jobs import edited, job_of, rank_file

LATE_NS = 6_000_000
LATE = {2: 6_000}


@pytest.fixture(scope="module")
def late_job(tmp_path_factory) -> Path:
    return job_of(tmp_path_factory.mktemp("late"), late_us=LATE)


@pytest.fixture
def folder(late_job: Path, tmp_path: Path) -> Path:
    """Give a copy of the job with a late rank, to be spoilt."""
    return Path(shutil.copytree(late_job, tmp_path / "job"))


def triaged(folder: Path) -> Report:
    return profkit.triage([str(folder)])


def ids(report: Report) -> list[str]:
    return [finding.id for finding in report.findings]


def test_a_late_rank_is_the_verdict(late_job):
    report = triaged(late_job)
    verdict = report.verdict
    assert verdict.bottleneck is Bottleneck.STRAGGLER
    assert verdict.rank == 2
    assert verdict.headline.startswith("3 ranks wait for rank 2, which waits for its DataLoader")
    assert verdict.recoverable_ns == pytest.approx(LATE_NS, abs=40_000)
    assert verdict.next_tool.name == "py-spy"
    (finding,) = [item for item in report.findings if item.id == "straggler.rank"]
    phase = next(item for item in finding.evidence if item.metric == "straggler.phase_excess_ns.data")
    assert phase.value == pytest.approx(12 * LATE_NS, rel=0.01)
    (chance,) = [item for item in finding.evidence if item.metric == "straggler.p_value"]
    assert "step" not in chance.statement  # that there are too few is said of fewer than six


def test_the_step_without_the_lateness_is_predicted(late_job):
    prediction = triaged(late_job).fleet.prediction
    assert prediction.ranks == (2,)
    assert prediction.observed_ns - prediction.predicted_ns == pytest.approx(LATE_NS, abs=40_000)
    assert prediction.error_fraction < 0.01


def test_the_parts_of_each_rank_sum_to_its_step(late_job):
    report = triaged(late_job)
    for row, rank in zip(report.fleet.rows, report.ranks, strict=True):
        parts = (row.data_ns, row.compute_ns, row.host_ns, row.copy_ns, row.device_ns, row.wait_ns, row.transfer_ns)
        low, high = rank.window_ns
        assert sum(parts) == row.step_ns == (high - low) // rank.steps.n
    by_rank = {row.ranks[0]: row for row in report.fleet.rows}
    assert by_rank[2].data_ns - by_rank[0].data_ns == pytest.approx(LATE_NS, rel=0.01)
    assert by_rank[0].wait_ns == pytest.approx(LATE_NS, rel=0.05)
    assert by_rank[2].wait_ns < 50_000


def test_victims_are_not_counted_again(late_job):
    report = triaged(late_job)
    assert {item.rank for item in report.findings if item.id == "comm.exposed"} == {2}  # its own transfer
    assert "comm.skew" not in ids(report)
    said = " ".join(report.fleet.explained)
    assert "exposed communication of ranks 0-1, 3" in said
    assert "waiting for rank 2" in said
    assert "data" not in " ".join(report.verdict.ruled_out)


def test_what_is_left_of_a_victims_communication_is_less_its_waiting(tmp_path):
    report = triaged(job_of(tmp_path, late_us={2: 2_000}))
    victim = next(row for row in report.fleet.rows if row.ranks == (0,))
    share = victim.wait_ns / (victim.wait_ns + victim.transfer_ns)
    left = next(item for item in report.findings if item.id == "comm.exposed" and item.rank == 0)
    assert 0.5 < share < 0.8
    assert left.fraction == pytest.approx(victim.transfer_ns / victim.step_ns, rel=0.01)
    assert report.verdict.rank == 2


def test_a_healthy_job_blames_nobody(tmp_path):
    report = triaged(job_of(tmp_path))
    assert not {"straggler.rank", "rank0.work", "comm.skew", "collective.extra", "token.skew"} & set(ids(report))
    assert report.verdict.bottleneck is not Bottleneck.STRAGGLER
    assert report.fleet.prediction is None


@pytest.mark.parametrize("offset_ns", [-5_000_000_000, 5_000_000])
def test_a_clock_that_is_off_moves_no_blame(folder, offset_ns):
    """A peer's straggler analysis moves from the late rank to another when one clock is 5 ms ahead."""
    edited(
        rank_file(folder, 0),
        lambda document: document.update(baseTimeNanoseconds=document["baseTimeNanoseconds"] + offset_ns),
    )
    before, after = triaged(rank_file(folder, 0).parent), triaged(folder)
    assert after.verdict.rank == before.verdict.rank == 2
    clocks = {row.rank: row.offset_ns for row in after.fleet.clocks}
    assert clocks[0] == 0
    assert abs(clocks[1] + offset_ns) <= 2 * 5_000_000
    assert all(row.is_fitted for row in after.fleet.clocks)


def test_a_missing_rank_is_a_caveat_and_lowers_confidence(folder):
    whole = triaged(folder)
    rank_file(folder, 1).unlink()
    report = triaged(folder)
    assert report.fleet.missing == (1,)
    assert report.verdict.rank == 2
    assert report.verdict.confidence < whole.verdict.confidence
    assert report.verdict.caveats[0].startswith("1 of 4 ranks are missing (1)")
    assert report.fleet.prediction is None
    assert "1 ranks are missing" in report.fleet.prediction_note


def test_a_broken_file_is_named_and_the_rest_is_analysed(folder):
    rank_file(folder, 0).write_bytes(rank_file(folder, 0).read_bytes()[:3000])
    report = triaged(folder)
    (failure,) = report.failures
    assert failure.source.endswith("rank00000.json.gz")
    assert report.verdict.rank == 2
    assert report.fleet.missing == (0,)


def test_nothing_that_can_be_read_raises_what_was_wrong(tmp_path):
    for name in ("rank0.json", "rank1.json"):
        (tmp_path / name).write_text("nothing")
    with pytest.raises(ProfkitError, match="rank1"):
        triaged(tmp_path)


def reasons(report: Report) -> list[tuple[str, str]]:
    return [(Path(item.source).name, item.reason) for item in report.fleet.left_out]


def test_a_file_of_another_job_is_left_out(folder, tmp_path):
    other = rank_file(job_of(tmp_path / "other", n_ranks=9), 8)
    shutil.copy(other, folder / "stranger.json.gz")
    report = triaged(folder)
    assert reasons(report) == [("stranger.json.gz", "from another job: its world has 9 ranks, the others' world has 4")]
    assert report.fleet.ranks == (0, 1, 2, 3)
    assert report.verdict.rank == 2


def test_a_file_whose_groups_nobody_knows_is_left_out(folder):
    def foreign(document: dict) -> None:
        for event in document["traceEvents"]:
            if "Process Group Ranks" in event["args"]:
                event["args"]["Process Group Name"] = "91"

    edited(rank_file(folder, 3), foreign)
    report = triaged(folder)
    assert reasons(report) == [("rank00003.json.gz", "from another job: no other rank has its process groups")]
    assert report.verdict.rank == 2


def later(folder: Path, ranks: Iterable[int], shift_ns: int) -> None:
    """Add traces of the same ranks from another time."""
    for rank in ranks:
        copy = folder / f"again_rank{rank}.json.gz"
        shutil.copy(rank_file(folder, rank), copy)
        edited(copy, lambda document: document.update(baseTimeNanoseconds=document["baseTimeNanoseconds"] + shift_ns))


def test_another_recording_in_the_same_folder_is_left_out(folder):
    later(folder, (0, 1), 60 * 10**9)
    report = triaged(folder)
    why = "from another recording, later than the one analysed here"
    assert reasons(report) == [("again_rank0.json.gz", why), ("again_rank1.json.gz", why)]
    assert report.fleet.ranks == (0, 1, 2, 3)
    assert report.verdict.rank == 2


def test_of_two_traces_of_a_rank_the_fuller_takes_part(folder):
    def cut(document: dict) -> None:
        del document["traceEvents"][5]

    shutil.copy(rank_file(folder, 1), folder / "again_rank1.json.gz")
    edited(folder / "again_rank1.json.gz", cut)
    report = triaged(folder)
    reason = "a second trace of rank 1, with fewer events than rank00001.json.gz"
    assert reasons(report) == [("again_rank1.json.gz", reason)]


def without_rank(document: dict) -> None:
    del document["distributedInfo"]


def test_the_name_tells_a_rank_that_the_trace_does_not(folder):
    for rank in range(4):
        edited(rank_file(folder, rank), without_rank)
    report = triaged(folder)
    assert [rank.rank for rank in report.ranks] == [0, 1, 2, 3]
    assert report.verdict.rank == 2


def test_a_trace_without_any_rank_is_left_out(folder):
    path = rank_file(folder, 1).rename(folder / "someone.json.gz")
    edited(path, without_rank)
    report = triaged(folder)
    assert reasons(report) == [
        ("someone.json.gz", "neither the trace nor its file name (as in rank3) says which rank it is")
    ]
    assert report.fleet.missing == (1,)


def test_traces_that_are_no_ranks_of_one_job_are_judged_alone(folder):
    for rank in range(4):
        edited(rank_file(folder, rank), without_rank)
        rank_file(folder, rank).rename(folder / f"run_{'abcd'[rank]}.json.gz")
    report = triaged(folder)
    assert report.fleet.rows == ()
    assert len(report.fleet.left_out) == 4
    assert report.verdict.caveats[0].startswith("4 traces, each judged alone")
    assert report.verdict.caveats[0].endswith("this report shows the one with the longest step")


def test_of_traces_without_steps_the_longest_window_is_shown(tmp_path):
    for number, n_kernels in enumerate((30, 60, 40)):
        rows = [kernel("gemm", at * 1_000_000, at * 1_000_000 + 900_000, correlation=at + 1) for at in range(n_kernels)]
        (tmp_path / f"{'abc'[number]}.json").write_bytes(to_json(rows))
    report = triaged(tmp_path)
    assert report.verdict.caveats[0].endswith("this report shows the one with the longest window")
    assert report.verdict.source.endswith("b.json")


@pytest.mark.parametrize(("n_ranks", "n_rows"), [(8, 8), (12, 2)])
def test_many_healthy_ranks_share_a_row(tmp_path, n_ranks, n_rows):
    report = triaged(job_of(tmp_path, n_ranks=n_ranks, late_us={5: 6_000}))
    assert len(report.fleet.rows) == n_ranks
    assert len(report.fleet.shown) == n_rows
    assert report.fleet.shown[0].ranks == (5,)


def test_hundred_ranks_fit_a_screen(tmp_path):
    report = triaged(job_of(tmp_path, n_ranks=100, late_us={40: 6_000}, n_steps=10, n_kernels=8))
    text = terminal.render(report, width=80, color=False)
    lines = text.splitlines()
    commands = [line for line in lines if line.startswith("    ") and "--" in line]
    assert len(lines) < 80
    assert all(len(line) <= 80 for line in lines if line not in commands)
    assert "99 ranks wait for rank 40" in text
    assert "99 others" in text
    assert all(rank.sections == () for rank in report.ranks)


@pytest.mark.parametrize("fmt", ["terminal", "markdown", "json"])
def test_every_format_tells_who_is_late(late_job, fmt):
    text = renderer_for("triage", fmt)(triaged(late_job))
    assert "3 ranks wait for rank 2" in text
    if fmt == "json":
        document = json.loads(text)
        jsonschema.validate(document, schema("triage"))
        assert [row["rank"] for row in document["fleet"]["rows"]] == [0, 1, 2, 3]
        assert document["verdict"]["bottleneck"] == "straggler-bound"


def test_the_order_of_files_changes_nothing(late_job):
    files = sorted(str(path) for path in late_job.iterdir())
    assert profkit.triage(files[::-1]) == profkit.triage(files)


@pytest.mark.parametrize("longer", [1, 4, 40])
def test_a_rank_without_steps_adds_no_more_than_a_step_to_what_can_be_saved(longer: int, tmp_path: Path):
    """Its own gain is of its whole window; half of both was more than the other rank's step."""
    ms = 1_000_000
    for rank, (step_ns, has_steps) in enumerate([(10 * ms, True), (10 * ms * longer, False)]):
        steps = [span(f"ProfilerStep#{n}", n * step_ns, (n + 1) * step_ns) for n in range(5)] if has_steps else []
        ops = [span("aten::add", at, at + 20_000, cat="cpu_op") for at in range(0, 5 * step_ns, step_ns // 5)]
        head = {"distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 2}}
        (tmp_path / f"rank{rank}.json").write_bytes(to_json([*steps, *ops], metadata=head))
    verdict = triaged(tmp_path).verdict
    assert verdict.findings[0].id == "host.launch_bound"
    assert 0.9 * verdict.step_ns < verdict.recoverable_ns <= verdict.step_ns


def test_left_out_files_of_one_name_are_told_apart_by_their_folders():
    left = [LeftOut(source=f"/runs/{name}/rank0.json", reason="from another recording") for name in "ab"]
    assert left_out_lines(left) == ["a/rank0.json: from another recording", "b/rank0.json: from another recording"]
    assert left_out_lines(left[:1]) == ["rank0.json: from another recording"]
