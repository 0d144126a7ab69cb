"""What counts as a run: recordings do; ranks, windows and steps never."""

import gzip
from pathlib import Path

import pytest

from profkit.api import triage
from profkit.compare.captures.sides import Side, read_side
from profkit.compare.comparison import compare
from profkit.testing import HOST_PID, Row, to_json
from tests.ranks.jobs import job_of

MS = 1_000_000


def recording(
    folder: Path,
    name: str,
    ranks: int,
    *,
    at_ms: int = 0,
    step_ms: int = 10,
    n_steps: int = 4,
    pid: int | None = None,
    first_step: int = 0,
) -> list[Path]:
    """A file for each rank of one recording, `at_ms` after the first; every process id is the same without `pid`."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for rank in range(ranks):
        mine = HOST_PID if pid is None else pid + rank
        rows = []
        for number in range(n_steps):
            begin = (at_ms + number * step_ms) * MS + 10**9
            step = f"ProfilerStep#{first_step + number}"
            rows += [
                Row(name=step, cat="user_annotation", start_ns=begin, end_ns=begin + step_ms * MS, pid=mine, tid=mine),
                Row(
                    name="aten::mm", cat="cpu_op", start_ns=begin, end_ns=begin + step_ms * MS // 2, pid=mine, tid=mine
                ),
            ]
        files.append(folder / f"{name}_rank{rank}.json.gz")
        files[-1].write_bytes(gzip.compress(to_json(rows, rank=rank)))
    return files


def n_traces(side: Side) -> list[int]:
    return [len(run.traces) for run in side.runs]


def test_two_recordings_of_four_ranks_in_a_folder_are_two_runs(tmp_path):
    for side, step_ms in (("a", 10), ("b", 12)):
        for number in range(2):
            recording(tmp_path / side, f"take{number}", 4, at_ms=1000 * number, step_ms=step_ms + number)
    sides = [read_side(name, [str(tmp_path / name)]) for name in ("a", "b")]
    assert [n_traces(side) for side in sides] == [[4, 4], [4, 4]]
    judged = compare(*sides).judgement
    assert judged.n == (2, 2)
    assert judged.answer == "inconclusive"  # a pilot: eight ranks a side would have been an answer


def test_recordings_are_split_by_their_times_whatever_their_names(tmp_path):
    recording(tmp_path, "x", 4)
    recording(tmp_path, "y", 3, at_ms=1000)
    assert n_traces(read_side("a", [str(tmp_path)])) == [4, 3]


def test_ranks_named_one_by_one_are_one_run(tmp_path):
    """As a shell expands `--baseline before/rank*.json.gz`."""
    files = recording(tmp_path / "a", "take", 4)
    assert n_traces(read_side("a", [*map(str, files)])) == [4]
    again = recording(tmp_path / "b", "take", 4)
    assert n_traces(read_side("a", [*map(str, files), *map(str, again)])) == [4, 4]


def test_a_rank_that_only_the_name_of_its_file_tells_is_a_rank(tmp_path):
    files = recording(tmp_path, "take", 4)
    for file in files:
        text = gzip.decompress(file.read_bytes()).replace(b'"distributedInfo"', b'"other"')
        file.write_bytes(gzip.compress(text))
    assert n_traces(read_side("a", [str(tmp_path)])) == [4]


def test_a_folder_for_each_rank_is_one_run(tmp_path):
    for file in recording(tmp_path, "take", 4):
        folder = tmp_path / file.name.partition(".")[0]
        folder.mkdir()
        file.rename(folder / "trace.json.gz")
    assert n_traces(read_side("a", [str(tmp_path)])) == [4]


def test_repeated_runs_of_one_rank_stay_runs(tmp_path):
    files = [recording(tmp_path, f"take{number}", 1, at_ms=1000 * number)[0] for number in range(3)]
    assert n_traces(read_side("a", [*map(str, files)])) == [1, 1, 1]


def without_rank(files: list[Path]) -> None:
    """The same files, of which neither content nor name tells the rank."""
    for number, file in enumerate(files):
        text = gzip.decompress(file.read_bytes()).replace(b'"distributedInfo"', b'"other"')
        file.unlink()
        (file.parent / f"{file.name.partition('_')[0]}_{'abcd'[number]}.json.gz").write_bytes(gzip.compress(text))


def test_processes_of_unknown_rank_that_were_recorded_at_one_time_are_one_run(tmp_path):
    """Old traces do not tell their rank: four processes at once are ranks of a job, or share a machine."""
    for number in range(2):
        without_rank(recording(tmp_path, f"take{number}", 4, at_ms=1000 * number, pid=500 + 10 * number))
    assert n_traces(read_side("a", [str(tmp_path)])) == [4, 4]


def test_windows_of_one_process_are_one_run_beside_other_processes(tmp_path):
    for number, pid in enumerate((500, 500, 600)):
        without_rank(recording(tmp_path, f"take{number}", 1, at_ms=1000 * number, pid=pid))
    assert n_traces(read_side("a", [str(tmp_path)])) == [2, 1]


def test_two_jobs_at_one_time_are_two_runs_by_their_names(tmp_path):
    recording(tmp_path, "one", 4)
    recording(tmp_path, "two", 4)
    assert n_traces(read_side("a", [str(tmp_path)])) == [4, 4]


def test_ranks_that_nothing_tells_apart_are_one_run(tmp_path):
    """Too few runs give no answer, too many a wrong one."""
    recording(tmp_path, "one", 4)
    recording(tmp_path, "two", 3)
    assert n_traces(read_side("a", [str(tmp_path)])) == [7]


@pytest.mark.parametrize(("first_step", "runs"), [(10, [8]), (0, [4, 4])])
def test_windows_of_the_same_processes_are_one_run(tmp_path, first_step, runs):
    """A schedule that repeats goes on counting steps; a job that starts again begins anew."""
    recording(tmp_path, "take0", 4, pid=500)
    recording(tmp_path, "take1", 4, pid=500, at_ms=1000, first_step=first_step)
    assert n_traces(read_side("a", [str(tmp_path)])) == runs


def test_a_late_rank_is_named_and_its_peers_wait(tmp_path):
    """Each rank alone reads comm-bound; all together, rank 2 is late on one side and nobody on the other."""
    folders = job_of(tmp_path / "a", late_us={2: 8000}), job_of(tmp_path / "b")
    verdicts = [triage([str(folder)]).verdict for folder in folders]
    before, after = (
        read_side(name, [str(folder)]) for name, folder in zip(("baseline", "candidate"), folders, strict=True)
    )
    assert [side.runs[0].bottleneck for side in (before, after)] == [verdict.bottleneck for verdict in verdicts]
    assert [side.runs[0].late_rank for side in (before, after)] == [2, None]
    assert verdicts[0].bottleneck == "straggler-bound"
    comparison = compare(before, after)
    assert comparison.baseline.late_rank == 2
    found = {item.id: item for item in comparison.readings}
    assert found["compare.comm"].title == "ranks wait less for each other"
    assert (
        found["compare.comm"].seen("compare.baseline_late_rank").statement
        == "baseline: rank 2 is late (straggler-bound)"
    )
    assert {item.id: item.presence for item in comparison.findings}["straggler.rank"] == "vanished"
