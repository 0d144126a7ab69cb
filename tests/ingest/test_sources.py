"""Paths, folders, patterns and URLs to sources."""

import sys
from importlib.util import find_spec
from pathlib import Path

import fsspec
import pytest

import profkit
from profkit.errors import MissingCapabilityError, TraceNotFoundError, UnsupportedTraceError
from profkit.ingest.discover import find_sources
from profkit.ingest.numbers import rank_in_name
from profkit.ingest.read import read_traces
from tests.ranks.jobs import job_of, rank_file

NAMES = ("b/rank10.json.gz", "b/rank2.json.gz", "b/capture.json", "b/notes.txt", "a/rank3.json", "b/.profkit/x.rank")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in NAMES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    return tmp_path


@pytest.fixture
def bucket(tree: Path):
    """Give the URL of an object store that holds the same names."""
    store = fsspec.filesystem("memory")
    for name in NAMES:
        store.pipe(f"/bucket/{name}", b"{}")
    yield "memory://bucket"
    store.rm("/bucket", recursive=True)


def below(sources: list[str], root: str) -> list[str]:
    return [source.replace("memory:///", "memory://").removeprefix(root).lstrip("/") for source in sources]


EXPECTED = {
    "": ["b/rank2.json.gz", "a/rank3.json", "b/rank10.json.gz"],
    "/b": ["b/rank2.json.gz", "b/rank10.json.gz"],
    "/*": ["b/rank2.json.gz", "a/rank3.json", "b/rank10.json.gz"],
    "/b/*rank*.json.gz": ["b/rank2.json.gz", "b/rank10.json.gz"],
    "/**/rank[0-9].json*": ["b/rank2.json.gz", "a/rank3.json"],
}


@pytest.mark.parametrize("tail", EXPECTED)
def test_folders_and_patterns_give_traces_in_the_order_of_ranks(tree, tail):
    assert below(find_sources([f"{tree}{tail}"]), str(tree)) == EXPECTED[tail]


@pytest.mark.parametrize("tail", ["", "/b", "/b/*rank*.json.gz", "/**/rank[0-9].json*"])
def test_urls_give_the_same(bucket, tail):
    assert below(find_sources([f"{bucket}{tail}"]), bucket) == EXPECTED[tail]


def test_several_paths_keep_their_order_and_each_file_is_there_once(tree):
    one = str(tree / "b" / "rank10.json.gz")
    assert find_sources([one, str(tree / "b")]) == [one, str(tree / "b" / "rank2.json.gz")]


def test_a_name_with_brackets_is_a_name_where_it_exists(tmp_path):
    path = tmp_path / "run[1].json"
    path.write_text("{}")
    assert find_sources([str(path)]) == [str(path)]


@pytest.mark.parametrize("what", ["nothing*", "empty", "memory://nowhere/*.json"])
def test_nothing_found_is_said(tmp_path, what):
    (tmp_path / "empty").mkdir()
    text = what if "://" in what else str(tmp_path / what)
    with pytest.raises(TraceNotFoundError, match="holds no traces"):
        find_sources([text])


def test_ranks_at_a_url_are_read_as_those_on_disk(tmp_path):
    folder = job_of(tmp_path, late_us={1: 6_000})
    store = fsspec.filesystem("memory")
    for rank in range(4):
        store.pipe(f"/job/rank{rank}.json.gz", rank_file(folder, rank).read_bytes())
    try:
        report = profkit.triage(["memory://job"])
    finally:
        store.rm("/job", recursive=True)
    here = profkit.triage([str(folder)])
    assert report.verdict.headline == here.verdict.headline
    assert report.verdict.source.endswith("job/rank1.json.gz")
    assert report.verdict.source.startswith("memory://")
    assert report.fleet.rows == here.fleet.rows


def test_what_is_wrong_at_a_url_is_one_line(tmp_path):
    with pytest.raises(TraceNotFoundError, match=r"memory://no/where\.json: no such object"):
        next(iter(read_traces("memory://no/where.json")))
    with pytest.raises(TraceNotFoundError, match="nonsense"):
        find_sources(["nonsense://x"])


@pytest.mark.skipif(find_spec("s3fs") is not None, reason="s3fs is installed")
def test_the_package_of_a_protocol_is_named():
    with pytest.raises(MissingCapabilityError, match="s3fs"):
        find_sources(["s3://bucket/run"])


def test_a_broken_file_at_a_url_is_named_by_its_url():
    store = fsspec.filesystem("memory")
    store.pipe("/broken/x.json", b"PK\x03\x04")
    try:
        with pytest.raises(profkit.ProfkitError) as caught:
            list(read_traces("memory://broken/x.json"))
    finally:
        store.rm("/broken", recursive=True)
    assert caught.value.message.startswith("memory://broken/x.json is not a trace")


def test_without_fsspec_the_way_to_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingCapabilityError) as caught:
        find_sources(["memory://x"])
    assert caught.value.hint == "pip install 'profkit[remote]'"


@pytest.mark.parametrize(
    ("name", "rank"), [("rank3_trace.json", 3), ("x.rank-12.json.gz", 12), ("Rank_0.json", 0), ("trace3.json", -1)]
)
def test_names_tell_ranks(name, rank):
    assert rank_in_name(name) == rank


# What jax.profiler writes: no categories, processes named for devices.
OF_JAX = """{"displayTimeUnit": "ns", "metadata": {"highres-ticks": true}, "traceEvents": [
{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
{"ph": "M", "pid": 701, "name": "process_name", "args": {"name": "/host:CPU"}},
{"ph": "X", "pid": 1, "tid": 14, "ts": 1000.0, "dur": 400.0, "name": "fusion.12", "args": {"hlo_op": "fusion.12"}},
{"ph": "X", "pid": 701, "tid": 9, "ts": 900.0, "dur": 1200.0, "name": "PjitFunction(train_step)"}]}"""
OF_AUTOGRAD = """[{"ph": "X", "pid": "CPU functions", "tid": 1, "ts": 1, "dur": 9, "name": "aten::mm", "args": {}}]"""


def test_a_trace_of_another_framework_is_refused(tmp_path):
    path = tmp_path / "jax.json"
    path.write_text(OF_JAX)
    with pytest.raises(UnsupportedTraceError, match="neither host nor device ranges") as told:
        list(read_traces(str(path)))
    assert "other frameworks" in told.value.hint


def test_the_autograd_profilers_own_export_has_no_categories(tmp_path):
    path = tmp_path / "autograd.json"
    path.write_text(OF_AUTOGRAD)
    (trace,) = read_traces(str(path))
    assert [trace.name(int(code)) for code in trace.ops.name] == ["aten::mm"]
