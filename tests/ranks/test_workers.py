"""Jobs through executors: bounded, whoever ends first; a worker that dies costs a retry, one source at most."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from profkit.api import triage_ranks
from profkit.errors import TraceError
from profkit.ranks.run.jobs import Keeping, done
from profkit.ranks.run.workers import Here
from tests.conftest import ROOT
from tests.ranks.jobs import job_of, rank_file

N_RANKS = 6


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> list[str]:
    folder = job_of(tmp_path_factory.mktemp("job"), n_ranks=N_RANKS, late_us={1: 6_000})
    return [str(rank_file(folder, rank)) for rank in range(N_RANKS)]


class Counting(Executor):
    """Does nothing before the last moment, and knows how many wait at most."""

    def __init__(self) -> None:
        self.most = 0
        self.waiting: list[tuple[Future, tuple]] = []
        self.is_shut_down = False

    def submit(self, fn, /, *args, **kwargs):
        future: Future = Future()
        self.waiting.append((future, (fn, args)))
        self.most = max(self.most, len(self.waiting))
        if len(self.waiting) == 4:
            self.run_last()
        return future

    def run_last(self) -> None:
        future, (fn, args) = self.waiting.pop()
        future.set_result(fn(*args))

    def shutdown(self, *args, **kwargs):
        self.is_shut_down = True


def test_no_more_jobs_wait_than_workers_need(sources):
    executor = Counting()
    told = []

    def tell(finished) -> None:
        told.append(finished.source)
        if executor.waiting and N_RANKS - len(told) <= 4:
            executor.run_last()

    report = triage_ranks(sources, executor=executor, n_workers=2, tell=tell)
    assert executor.most == 4
    assert not executor.is_shut_down
    assert told != sources
    assert [rank.source for rank in report.ranks] == sources
    assert report == triage_ranks(sources, executor=Here())


def test_threads_are_an_executor_too(sources):
    with ThreadPoolExecutor(2) as executor:
        report = triage_ranks(sources, executor=executor, n_workers=2)
        assert executor.submit(int, "7").result() == 7
    assert report.verdict.rank == 1


def test_a_worker_killed_in_the_middle_costs_nothing_but_time(sources):
    killed = []

    def tell(finished) -> None:
        if not killed:
            child = multiprocessing.active_children()[0]
            os.kill(child.pid, signal.SIGKILL)
            killed.append(child.pid)

    report = triage_ranks(sources, n_workers=1, tell=tell)
    assert killed
    assert report.failures == ()
    assert [rank.rank for rank in report.ranks] == list(range(N_RANKS))
    assert multiprocessing.active_children() == []


class Deadly(Here):
    """An executor whose worker dies of one source, every time; of all that are under way once."""

    def __init__(self, guilty: str) -> None:
        self.guilty = guilty
        self.submitted: list[str] = []

    def submit(self, fn, /, *args, **kwargs):
        source = args[0].source
        self.submitted.append(source)
        is_beside = self.submitted.count(self.guilty) == 1 and self.submitted.count(source) == 1
        if source != self.guilty and not is_beside:
            return super().submit(fn, *args, **kwargs)
        future: Future = Future()
        future.set_exception(KilledWorker("worker"))
        return future


class KilledWorker(Exception):  # noqa: N818 - the name that distributed gives it
    pass


def test_a_source_that_kills_its_worker_twice_is_named_and_the_rest_is_read(sources):
    executor = Deadly(sources[2])
    report = triage_ranks(sources, executor=executor, n_workers=1)
    (failure,) = report.failures
    assert (failure.source, failure.error) == (sources[2], "WorkerDiedError")
    assert failure.message.endswith("died twice")
    assert executor.submitted.count(sources[2]) == 2
    assert report.fleet.missing == (2,)
    assert report.verdict.rank == 1


class Broken(Executor):
    def submit(self, fn, /, *args, **kwargs):
        raise BrokenExecutor("gone")


def test_an_executor_that_is_broken_ends_the_run(sources):
    with pytest.raises(TraceError, match="the given executor is broken"):
        triage_ranks(sources, executor=Broken(), n_workers=2)


def test_a_bug_in_one_rank_is_that_ranks_failure(sources, tmp_path):
    folder = tmp_path / "a_folder.json"
    folder.mkdir()
    report = triage_ranks([*sources, str(folder)], executor=Here())
    (failure,) = report.failures
    assert "is a folder" in failure.message


def test_a_job_raises_nothing(tmp_path):
    from profkit.ranks.reduce.options import Options
    from profkit.ranks.run.jobs import Job

    finished = done(Job(source=str(tmp_path / "nothing"), options=Options()))
    assert finished.outcomes == ()
    assert finished.failure.error == "TraceNotFoundError"


def test_a_killed_run_is_resumed_and_its_workers_end_with_it(sources, tmp_path):
    script = (
        "import os, signal, sys\n"
        "from profkit.api import triage_ranks\n"
        "from profkit.ranks.run.jobs import Keeping\n"
        "import multiprocessing\n"
        "def tell(finished):\n"
        "    print(*[child.pid for child in multiprocessing.active_children()], flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "if __name__ == '__main__':\n"
        f"    triage_ranks({sources!r}, n_workers=1, keeping=Keeping(folder={str(tmp_path)!r}), tell=tell)\n"
    )
    path = tmp_path / "run.py"
    path.write_text(script)
    killed = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    workers = [int(pid) for pid in killed.stdout.split()]
    assert workers
    assert gone_within(workers, seconds=20)
    n_finished = len(list(tmp_path.glob("*.rank")))
    assert 1 <= n_finished < N_RANKS
    kept = []
    report = triage_ranks(
        sources, executor=Here(), keeping=Keeping(folder=str(tmp_path)), tell=lambda it: kept.append(it.is_kept)
    )
    assert sum(kept) == n_finished
    assert report == triage_ranks(sources, executor=Here())


def gone_within(pids: list[int], *, seconds: float) -> bool:
    """Tell whether all processes have ended, looking again until they have."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
    return False
