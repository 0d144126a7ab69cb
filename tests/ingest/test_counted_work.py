"""What a script told of its steps stands in its trace as counters."""

from __future__ import annotations

import json

import pytest

from profkit.ingest.kineto import read_trace
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
