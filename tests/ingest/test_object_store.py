"""Traces in an S3 bucket, of a real server on this machine (moto): what is asked of it, and what its faults cost.

`make s3` runs these, in an environment of its own: botocore wants an older dateutil than pandas.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

s3fs = pytest.importorskip("s3fs", reason="make s3 has it")
pytest.importorskip("moto.server", reason="make s3 has it")

from moto.backends import get_backend  # noqa: E402
from moto.core import DEFAULT_ACCOUNT_ID  # noqa: E402
from moto.server import DomainDispatcherApplication, create_backend_app  # noqa: E402
from werkzeug.serving import make_server  # noqa: E402

from profkit import api  # noqa: E402
from profkit.errors import TraceNotFoundError  # noqa: E402
from profkit.ingest.bytes import remote  # noqa: E402
from profkit.ingest.bytes.remote import fetched  # noqa: E402
from profkit.ingest.discover import find_sources  # noqa: E402
from profkit.ranks.run.jobs import Keeping  # noqa: E402
from profkit.ranks.run.workers import Here  # noqa: E402
from tests.ranks.jobs import job_of  # noqa: E402

N_RANKS = 4
BUCKET = "runs"
CUT = 1
"""What a fault gives for an answer that breaks off in its middle; else it gives a status."""
Asked = dict[str, str]


class Store:
    """The server's application with a note of what was asked, and faults before it answers."""

    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self.asked: list[Asked] = []
        self.fault: Callable[[Asked], int] = lambda _: 0

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        told = {"method": environ["REQUEST_METHOD"], "path": environ["PATH_INFO"], "query": environ["QUERY_STRING"]}
        told["range"] = environ.get("HTTP_RANGE", "")
        self.asked.append(told)
        status = self.fault(told)
        if status > CUT:
            start(f"{status} Fault", [("Content-Length", "0")])
            return []
        answer = self._app(environ, start)
        return self._cut(answer) if status == CUT else answer

    @staticmethod
    def _cut(answer: Any) -> Iterator[bytes]:
        whole = b"".join(answer)
        yield whole[: len(whole) // 2]
        raise ConnectionAbortedError("the wire is cut")

    def n_of(self, method: str, part: str = "") -> int:
        """How many requests of a method had this in their path."""
        return sum(told["method"] == method and part in told["path"] for told in self.asked)

    @property
    def objects(self) -> Any:
        """The server's own memory, for what would take thousands of requests."""
        return get_backend("s3")[DEFAULT_ACCOUNT_ID]["aws"]


@pytest.fixture(scope="module")
def _served() -> Iterator[tuple[Store, int]]:
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    store = Store()
    server = make_server("127.0.0.1", 0, store, threaded=True)
    server.log = lambda *_: None
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield store, server.server_port
    server.shutdown()
    thread.join()


@pytest.fixture
def store(_served, monkeypatch) -> Iterator[Store]:
    """Give a server with an empty bucket, which is where s3:// leads to."""
    found, port = _served
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    found.objects.reset()
    found.objects.create_bucket(BUCKET, "us-east-1")
    found.asked.clear()
    found.fault = lambda _: 0
    yield found
    found.fault = lambda _: 0
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> Path:
    return job_of(tmp_path_factory.mktemp("job"), n_ranks=N_RANKS, late_us={2: 6_000})


@pytest.fixture
def folder(store: Store, job: Path) -> str:
    """Give the URL of the job in the bucket."""
    for path in job.iterdir():
        store.objects.put_object(BUCKET, f"run7/traces/{path.name}", path.read_bytes())
    return f"s3://{BUCKET}/run7/"


def test_a_job_in_a_bucket_is_judged_as_one_on_disk(store, folder, job, tmp_path):
    sources = find_sources([folder])
    assert sources == [f"s3://{BUCKET}/run7/traces/rank{rank:05d}.json.gz" for rank in range(N_RANKS)]
    keeping = Keeping(folder=str(tmp_path / "kept"))
    there = api.triage_ranks(sources, executor=Here(), keeping=keeping)
    here = api.triage_ranks(sorted(map(str, job.iterdir())), executor=Here())
    assert there.verdict.headline == here.verdict.headline
    assert there.fleet.rows == here.fleet.rows
    assert [store.n_of("GET", f"rank{rank:05d}") for rank in range(N_RANKS)] == [1] * N_RANKS
    store.asked.clear()
    s3fs.S3FileSystem.clear_instance_cache()  # as another process
    assert api.triage_ranks(sources, executor=Here(), keeping=keeping) == there
    assert store.n_of("GET", "rank") == 0


def test_an_object_that_was_written_again_is_read_again(store, folder, job, tmp_path):
    sources, keeping = find_sources([folder]), Keeping(folder=str(tmp_path / "kept"))
    api.triage_ranks(sources, executor=Here(), keeping=keeping)
    store.objects.put_object(BUCKET, "run7/traces/rank00001.json.gz", (job / "rank00002.json.gz").read_bytes())
    store.asked.clear()
    s3fs.S3FileSystem.clear_instance_cache()
    api.triage_ranks(sources, executor=Here(), keeping=keeping)
    assert [store.n_of("GET", f"rank{rank:05d}") for rank in range(N_RANKS)] == [0, 1, 0, 0]


@pytest.mark.parametrize("status", [500, 503])
def test_a_store_that_is_busy_is_asked_again(store, folder, status, monkeypatch):
    def twice(told: Asked) -> int:
        return status if sum(one["path"] == told["path"] for one in store.asked) <= 2 else 0

    store.fault = twice
    monkeypatch.setattr(remote, "_WAITS_S", (0.0, 0.0))
    report = api.triage_ranks(find_sources([folder]), executor=Here())
    assert report.failures == ()
    assert report.verdict.rank == 2
    assert [store.n_of("GET", f"rank{rank:05d}") for rank in range(N_RANKS)] == [3] * N_RANKS


def test_an_answer_that_breaks_off_goes_on_where_it_stopped(store, folder, job):
    def first(told: Asked) -> int:
        return CUT if told["method"] == "GET" and "rank00002" in told["path"] and not told["range"] else 0

    store.fault = first
    with fetched(f"{folder}traces/rank00002.json.gz", (".json.gz",)) as path:
        assert path.read_bytes() == (job / "rank00002.json.gz").read_bytes()
    ranges = [told["range"] for told in store.asked if told["method"] == "GET" and "rank00002" in told["path"]]
    assert ranges[0] == ""
    assert all(asked.startswith("bytes=") and asked != "bytes=0-" for asked in ranges[1:])
    assert len(ranges) > 1


def test_a_rank_that_does_not_come_is_named_and_the_rest_is_judged(store, folder, monkeypatch):
    monkeypatch.setattr(remote, "_WAITS_S", (0.0, 0.0))
    store.fault = lambda told: 503 if "rank00001" in told["path"] else 0
    report = api.triage_ranks(find_sources([folder]), executor=Here())
    (failure,) = report.failures
    assert failure.source.endswith("rank00001.json.gz")
    assert "\n" not in failure.message
    assert report.fleet.missing == (1,)
    assert report.verdict.rank == 2


def test_ten_thousand_objects_are_listed_a_thousand_at_a_time(store):
    for rank in range(10_000):
        store.objects.put_object(BUCKET, f"run8/rank{rank}.json.gz", b"")
    sources = find_sources([f"s3://{BUCKET}/run8"])
    assert sources[:2] + sources[-1:] == [f"s3://{BUCKET}/run8/rank{rank}.json.gz" for rank in (0, 1, 9_999)]
    assert len(sources) == 10_000
    assert len(store.asked) == 10
    assert len(find_sources([f"s3://{BUCKET}/run8/rank12*.gz"])) == 111
    assert len(store.asked) == 10  # known from the listing


def test_a_pattern_an_object_and_none(store, folder):
    (one,) = find_sources([f"{folder}**/*3.json.gz"])
    assert one.endswith("rank00003.json.gz")
    assert find_sources([one]) == [one]
    with pytest.raises(TraceNotFoundError, match=r"s3://runs/run7/none\.json: no such object"):
        api.triage_ranks([f"{folder}none.json"], executor=Here())
