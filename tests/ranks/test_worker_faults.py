"""Many ranks where a disk is slow, a worker dies between merges, or the workers are on other hosts."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest
from msgspec.structs import replace

from bench.ranks import _over_hosts
from profkit import api
from profkit.api import triage_ranks
from profkit.ranks.run import workers
from profkit.ranks.run.workers import Here
from tests.ranks.jobs import job_of, rank_file
from workloads import netlab

N_RANKS = 12
LATE = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return job_of(tmp_path_factory.mktemp("job"), n_ranks=N_RANKS, late_us={LATE: 6_000})


@pytest.fixture
def sources(folder: Path) -> list[str]:
    return [str(rank_file(folder, rank)) for rank in range(N_RANKS)]


@pytest.fixture
def _as_of_thousands(monkeypatch) -> None:
    """Let a parent of twelve ranks do what one of thousands does."""
    monkeypatch.setattr(api, "MAX_FULL", 2)
    monkeypatch.setattr(workers, "FAN_IN", 2)


@contextmanager
def held_back(folder: Path, until: Event) -> Iterator[str]:
    """Give the address of a folder whose files come when the event is set."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            until.wait(60)
            super().do_GET()

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            until.set()
            server.shutdown()
            thread.join()


@pytest.mark.usefixtures("_as_of_thousands")
def test_ranks_on_other_disks_do_not_wait_for_a_slow_one(folder, sources):
    pytest.importorskip("aiohttp")
    whole = triage_ranks(sources, executor=Here())
    others_are_done, told = Event(), []

    def tell(finished) -> None:
        told.append(finished.source)
        if len(told) == N_RANKS - 1:
            others_are_done.set()

    with held_back(folder, others_are_done) as address:
        slow = f"{address}/{rank_file(folder, 1).name}"
        report = triage_ranks([slow if source == sources[1] else source for source in sources], n_workers=2, tell=tell)
    assert told[-1] == slow
    assert report.failures == ()
    assert [replace(rank, source="") for rank in report.ranks] == [replace(rank, source="") for rank in whole.ranks]
    assert report.verdict.headline == whole.verdict.headline


@pytest.mark.usefixtures("_as_of_thousands")
def test_workers_killed_between_merges_lose_no_rank(sources):
    whole = triage_ranks(sources, executor=Here())
    told, killed = [], []

    def tell(finished) -> None:
        told.append(finished.source)
        if len(told) in (1, 7):
            child = multiprocessing.active_children()[0]
            os.kill(child.pid, signal.SIGKILL)
            killed.append(child.pid)

    assert triage_ranks(sources, n_workers=1, tell=tell) == whole
    assert len(set(killed)) == 2


@pytest.mark.long(8)
@pytest.mark.skipif(bool(netlab.why_not()), reason=f"no lab here: {netlab.why_not()}")
def test_workers_on_other_hosts_read_the_ranks(folder):
    run = _over_hosts(sorted(folder.iterdir()))
    assert (run.verdict, run.n_failed) == (f"straggler-bound rank {LATE}", 0)
