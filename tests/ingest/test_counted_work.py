"""What a script told of its steps stands in its trace as counters."""

import json

import pytest

from profkit.ingest.kineto.reader import read_trace
from profkit.testing import span, to_json


def counter(name, ts, value):
    return {"ph": "C", "cat": "profkit", "name": f"profkit.{name}", "pid": 7, "tid": 0, "ts": ts, "args": {name: value}}


def read(tmp_path, counters, **options):
    document = json.loads(to_json([span("ProfilerStep#3", 0, 100_000), span("forward", 10_000, 20_000)]))
    document["traceEvents"] = counters + document["traceEvents"]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document))
    return read_trace(str(path), **options)


@pytest.mark.parametrize("chunk_bytes", [None, 64])
def test_counters_become_rows(tmp_path, chunk_bytes):
    told = [counter("tokens", 99.125, 1024), counter("padded_tokens", 99.125, 1536.0), counter("samples", 99.125, 8)]
    trace = read(tmp_path, told, chunk_bytes=chunk_bytes)
    assert [trace.name(code) for code in trace.work.name] == ["tokens", "padded_tokens", "samples"]
    assert trace.work.value.tolist() == [1024.0, 1536.0, 8.0]
    assert trace.work.start_ns.tolist() == [99_125] * 3


@pytest.mark.parametrize("value", [None, "many", [3], {}])
def test_what_is_no_number_is_no_count(tmp_path, value):
    assert len(read(tmp_path, [counter("tokens", 99, value)]).work) == 0


def test_other_counters_are_left_alone(tmp_path):
    other = [
        counter("queue", 5, 3),
        {**counter("tokens", 5, 3), "cat": "other"},
        {**counter("tokens", 5, 3), "name": 5},
    ]
    assert len(read(tmp_path, other).work) == 0


def embedding(ts, dims):
    args = {"External id": 3, "Input Dims": dims}
    return {"ph": "X", "cat": "cpu_op", "name": "aten::embedding", "pid": 7, "tid": 7, "ts": ts, "dur": 1, "args": args}


@pytest.mark.parametrize("told", [[], [counter("tokens", 99.5, 400)]])
def test_shapes_of_embeddings_become_rows(tmp_path, told):
    calls = [embedding(10, [[8192, 48], [8, 128], [], [], []]), embedding(20, [[512, 48], [128], [], [], []])]
    trace = read(tmp_path, [*told, *calls, embedding(30, []), embedding(31, [[], [4]])])
    rows = {trace.name(code): value for code, value in zip(trace.work.name, trace.work.value, strict=True)}
    assert {name: value for name, value in rows.items() if name != "tokens"} == {
        "embedding 8192, 48": 1024.0,
        "embedding 512, 48": 128.0,
    }
    assert trace.work.start_ns[:2].tolist() == [10_000, 20_000]
    assert len(trace.ops) == 4
