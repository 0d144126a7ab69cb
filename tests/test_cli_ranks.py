"""`profkit triage` on many ranks, as a process: what is kept, what stops it, where it runs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.calling import profkit
from tests.conftest import ROOT
from tests.ranks.jobs import job_of, rank_file


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return profkit("triage", *arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return job_of(tmp_path / "job", late_us={1: 6_000})


def verdict_of(done: subprocess.CompletedProcess[str]) -> tuple[str, int]:
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    return document["verdict"]["bottleneck"], document["verdict"]["rank"]


def kept(folder: Path) -> int:
    return len(list(folder.rglob("*.rank")))


@pytest.fixture(autouse=True)
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder of this user's caches, an empty one for each test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return tmp_path / "caches" / "profkit"


def test_little_to_read_is_read_here_and_nothing_is_written(folder, users):
    done = run(folder, "-f", "json")
    assert verdict_of(done) == ("straggler-bound", 1)
    assert done.stderr == ""
    assert kept(folder) == 0
    assert not users.exists()


def test_workers_keep_finished_ranks_for_the_user(folder, users):
    first, second = run(folder, "-j", "2", "-f", "json"), run(folder, "-j", "2", "-f", "json")
    assert verdict_of(first) == ("straggler-bound", 1)
    assert first.stderr == ""
    assert (kept(users / "ranks"), kept(folder)) == (4, 0)
    assert second.stdout == first.stdout == run(folder, "-f", "json").stdout


def test_ranks_are_kept_where_one_says_or_nowhere(folder, tmp_path, users):
    assert verdict_of(run(folder, "--cache", tmp_path / "cache", "-f", "json"))[1] == 1
    assert kept(tmp_path / "cache") == 4
    assert verdict_of(run(folder, "-j", "1", "--no-cache", "-f", "json"))[1] == 1
    assert kept(folder) == kept(users) == 0


def test_a_quoted_pattern_is_expanded(folder):
    assert verdict_of(run(f"{folder}/rank*.json.gz", "-f", "json")) == ("straggler-bound", 1)


def test_pipes_are_read_once_by_the_one_process_that_has_them(folder, tmp_path):
    pipes = " ".join(f"<(zcat {rank_file(folder, rank)})" for rank in range(4))
    line = f"{sys.executable} -m profkit triage {pipes} -j 2 --cache {tmp_path / 'cache'} -f json"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, cwd=ROOT)
    assert verdict_of(done) == ("straggler-bound", 1)
    assert kept(tmp_path / "cache") == 0


def test_a_verdict_on_all_ranks_names_none(tmp_path):
    first = run(job_of(tmp_path)).stdout.splitlines()[1]
    assert "confidence" in first
    assert "rank" not in first


def test_a_broken_rank_is_named_and_strict_stops_at_it(folder):
    rank_file(folder, 0).write_bytes(b"\x1f\x8bnothing")
    done = run(folder)
    assert done.returncode == 0
    assert "not read" in done.stdout
    assert "rank00000.json.gz" in done.stdout
    assert "1 of 4 ranks are missing (0)" in " ".join(done.stdout.split())
    for options in ((), ("-j", "2")):
        strict = run(folder, "--strict", *options)
        assert strict.returncode == 3
        assert strict.stdout == ""
        assert "rank00000.json.gz" in strict.stderr.splitlines()[0]


@pytest.mark.long(5)
def test_no_cluster_is_a_line(folder):
    done = run(folder, "--dask", "tcp://127.0.0.1:9")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0].startswith("profkit: no cluster answers at tcp://127.0.0.1:9")


CLUSTER = """
import os, sys
from distributed import LocalCluster
from profkit.cli import main

if __name__ == "__main__":
    here = os.getcwd()
    os.chdir("/")  # where the workers stay
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        os.chdir(here)
        main(["triage", sys.argv[1], "--dask", cluster.scheduler_address, "-f", "json"])
"""


def test_ranks_are_read_by_a_cluster(folder, tmp_path, users):
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), os.path.relpath(folder, ROOT)],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=60, env=with_root(),
    )  # fmt: skip
    assert verdict_of(done) == ("straggler-bound", 1)
    assert kept(users / "ranks") == 4


@pytest.mark.long(5)
def test_a_clusters_worker_that_is_killed_in_the_middle_loses_no_rank(tmp_path):
    folder = job_of(tmp_path / "job", n_ranks=12, late_us={3: 6_000})
    done = subprocess.run(
        [sys.executable, "-m", "bench.ranks_child", "--workers", "2", "--cluster", str(folder), "12"],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["n_failed"] == 0
    assert told["verdict"] == "straggler-bound rank 3"


def with_root() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_findings_across_ranks_are_explained():
    done = profkit("explain", "straggler.rank")
    assert done.stdout.startswith("straggler.rank: all ranks wait for one late rank")
    assert "experiment that proves it" in done.stdout


def test_a_forged_cache_beside_the_traces_changes_nothing(folder, tmp_path, users):
    honest = run(folder, "-j", "1", "-f", "json")
    (folder / ".profkit").mkdir()
    for path in users.rglob("*.rank"):
        for name in (path.name, f"{path.stem}-x.rank"):
            (folder / ".profkit" / name).write_bytes(path.read_bytes().replace(b"straggler", b"healthily"))
    shutil.rmtree(users)
    again = run(folder, "-j", "1", "-f", "json")
    assert again.stdout == honest.stdout
    assert kept(users / "ranks") == 4


def test_where_nothing_can_be_kept_it_is_said(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    for options in ((), ("--cache", tmp_path / "cache")):
        done = run(folder, "-j", "1", *options, "-f", "json")
        assert verdict_of(done) == ("straggler-bound", 1)
        (line,) = done.stderr.splitlines()
        assert line.startswith("profkit: nothing is kept: ")
