"""One trace, however it is written and read: chunks, layouts, processes, the order of events, the clock's zero."""

import gzip
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from profkit.errors import ProfkitError
from profkit.ingest.assemble.build import build_trace
from profkit.ingest.assemble.raw import RawTrace
from profkit.ingest.kineto.batch import decode_batch
from profkit.ingest.kineto.parallel_reader import Task
from profkit.ingest.kineto.reader import _read_exact, read_trace
from profkit.ingest.kineto.source import traits
from profkit.model.trace import Trace
from profkit.testing import Row, row_lists, to_json, trace_of
from tests.conftest import examples
from tests.ingest.both_ways import by_python_alone, needs_library
from tests.ingest.canonical import canonical

LAYOUTS = ["kineto", "minified", "indented", "events_last", "list"]
FILES = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def x(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": 9, "ts": ts, "dur": dur, "args": args}


def other(ph: str, cat: str, name: str, ts: float, **rest: Any) -> dict[str, Any]:
    return {"ph": ph, "cat": cat, "name": name, "pid": 9, "tid": 9, "ts": ts, **rest}


ID = "External id"
COLLECTIVE = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 6, "Group size": 2}
ALLOCATED = {"Bytes": 512, "Total Allocated": 512, "Total Reserved": 1024, "Device Type": 1, "Device Id": 0}
SHAPE = {"grid": [1, 2, 3], "block": [4, 5, 6]}
EVENTS: list[dict[str, Any]] = [
    x("user_annotation", "ProfilerStep#4", 1000.5, 900),
    x("cpu_op", 'aten::"mm"', 1001, 5, **{ID: 3}),
    x("cpu_op", "record_param_comms", 1300, 5, **{ID: 4}, **COLLECTIVE),
    x("cuda_runtime", "cudaLaunchKernel", 1002.25, 1.5, correlation=1, **{ID: 3}),
    x("cuda_driver", "cuLaunchKernelEx", 1302, 1.5, correlation=2, **{ID: 4}),
    x("kernel", 'void gemm<{"}],[{\\">', 1010.125, 50.001, device=0, stream=7, correlation=1, **{ID: 3}, **SHAPE),
    x("kernel", "ncclDevKernel_AllReduce", 1320, 30, device=1, stream=20, correlation=2, **{ID: 4}),
    x("kernel", "node", 1400, 30, device=1, stream=20, correlation=2, **{"graph node id": 7}),
    x("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1500, 2, device=0, stream=7, correlation=3, bytes=4096),
    x("cuda_sync", "Stream Sync", 1600, 9, device=0, stream=7),
    x("python_function", "train.py(3): step", 1000.5, 800),
    other("i", "cpu_instant_event", "[memory]", 1001.125, args=ALLOCATED),
    other("s", "fwdbwd", "fwdbwd", 1001, id=5),
    other("f", "fwdbwd", "fwdbwd", 1400, id=5, bp="e"),
    other("s", "ac2g", "ac2g", 1002.25, id=1),
    {"ph": "M", "name": "thread_name", "pid": 9, "tid": 9, "ts": 0, "args": {"name": "thread 9 (python)"}},
]
METADATA = {"schemaVersion": 1, "baseTimeNanoseconds": 5, "nested": {"traceEvents": [1, {"x": '"}]'}], "s": "],}{["}}


def read_bytes(data: bytes, folder: Path, **options: Any) -> Trace:
    path = folder / "t.json"
    path.write_bytes(data)
    return read_trace(str(path), **options)


def document(events: list[dict[str, Any]], *, indent: int | None = None) -> bytes:
    return json.dumps({**METADATA, "traceEvents": events, "traceName": "t"}, indent=indent).encode()


def everything() -> dict[str, Any]:
    array = json.dumps(EVENTS).encode()
    return canonical(
        build_trace(RawTrace("t", traits(), batches=[decode_batch(array)], metadata={**METADATA, "traceName": "t"}))
    )


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("chunk_bytes", [*range(1, 12), 61, 64, 65, 500, 10**6])
def test_any_chunk_size(chunk_bytes: int, indent: int | None, tmp_path: Path) -> None:
    assert canonical(read_bytes(document(EVENTS, indent=indent), tmp_path, chunk_bytes=chunk_bytes)) == everything()


@pytest.mark.parametrize("chunk_bytes", [1, 50, 10**6])
def test_exactly_as_quickly(chunk_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(document(EVENTS))
    raw = _read_exact(Task(path, "t", partial(decode_batch), chunk_bytes), lenient=False, progress=None)
    assert canonical(build_trace(raw)) == everything()


@FILES
@given(order=st.permutations(EVENTS), chunk_bytes=st.integers(1, 4000))
def test_any_order_of_events(order: list[dict[str, Any]], chunk_bytes: int, tmp_path: Path) -> None:
    assert canonical(read_bytes(document(order), tmp_path, chunk_bytes=chunk_bytes)) == everything()


@FILES
@given(rows=row_lists(), layout=st.sampled_from(LAYOUTS), chunk_bytes=st.integers(1, 3000), is_zipped=st.booleans())
def test_any_layout(rows: list[Row], layout: str, chunk_bytes: int, *, is_zipped: bool, tmp_path: Path) -> None:
    expected = canonical(trace_of(rows))
    data = to_json(rows, layout=layout)
    found = canonical(read_bytes(gzip.compress(data) if is_zipped else data, tmp_path, chunk_bytes=chunk_bytes))
    assert {**found, "metadata": {}} == expected


@FILES
@given(rows=row_lists(), shift_ns=st.integers(0, 2**60))
def test_any_zero_of_the_clock(rows: list[Row], shift_ns: int) -> None:
    moved = [replace(row, start_ns=row.start_ns + shift_ns, end_ns=row.end_ns + shift_ns) for row in rows]
    assert canonical(trace_of(moved), shift_ns=shift_ns) == canonical(trace_of(rows))


@FILES
@given(rows=row_lists(), data=st.data())
def test_any_order_of_rows(rows: list[Row], data: st.DataObject) -> None:
    assert canonical(trace_of(data.draw(st.permutations(rows)))) == canonical(trace_of(rows))


@pytest.mark.parametrize("jobs", [2, 3])
@pytest.mark.parametrize("way", [nullcontext, by_python_alone], ids=["threads", "processes"])
def test_any_number_of_threads_or_processes(
    jobs: int, way: Callable[[], AbstractContextManager[None]], tmp_path: Path
) -> None:
    one = read_bytes(document(EVENTS * 30), tmp_path)
    with way():
        many = read_bytes(document(EVENTS * 30), tmp_path, jobs=jobs, chunk_bytes=700)
    assert canonical(many) == canonical(one)
    assert many.strings == one.strings  # codes too, so that ties are broken alike
    assert many.threads == one.threads


@needs_library
def test_a_piece_that_no_thread_can_read_is_named_as_by_one(tmp_path: Path) -> None:
    text = document([*EVENTS * 30, x("cpu_op", "late", 2000, -5), *EVENTS * 30])
    for jobs in (1, 2):
        with pytest.raises(ProfkitError, match="negative dur -5 in event 'late'"):
            read_bytes(text, tmp_path, jobs=jobs, chunk_bytes=700)


def test_something_else_is_done_while_others_decode(tmp_path: Path) -> None:
    done: list[str] = []
    for jobs in (1, 2):
        read_bytes(document(EVENTS), tmp_path, jobs=jobs, meanwhile=partial(done.append, f"with {jobs}"))
    assert done == ["with 2"]


def test_threads_have_the_same_codes_whatever_the_pieces(tmp_path: Path) -> None:
    rows = [x("cpu_op", "a", 1000 + n, 1) | {"tid": tid} for n, tid in enumerate((9, 2, 30, 2, 9, 1))]
    rows += [x("cuda_runtime", "b", 2000 + n, 1) | {"tid": tid} for n, tid in enumerate((30, 1, 7))]
    found = [read_bytes(document(rows[::-1] * 9), tmp_path, chunk_bytes=size).threads for size in (120, 700, 10**6)]
    assert found[0] == found[1] == found[2]


def test_arrows_of_one_time_have_the_same_order_whatever_the_pieces(tmp_path: Path) -> None:
    rows = [x("cpu_op", "a", 1000, 5)]
    rows += [other(ph, "fwdbwd", "fwdbwd", 1001, id=n) for n in range(12) for ph in ("f", "s")]
    traces = [read_bytes(document(rows), tmp_path, chunk_bytes=size).flows for size in (150, 400, 10**6)]
    told = [(flows.flow_id.tolist(), flows.is_start.tolist()) for flows in traces]
    assert told[0] == told[1] == told[2]


def test_codes_are_in_order_of_text(tmp_path: Path) -> None:
    trace = read_bytes(document(EVENTS), tmp_path)
    assert list(trace.strings) == sorted(trace.strings)
    assert {'aten::"mm"', "allreduce", "Float", "cudaLaunchKernel"} <= set(trace.strings)


def test_integers_and_decimals_and_exponents_are_the_same_time(tmp_path: Path) -> None:
    forms = ["1700000000000001", "1700000000000001.0", "1700000000000001.000", "1.700000000000001e15"]
    events = [f'{{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":{form},"dur":2.5}}' for form in forms]
    trace = read_bytes(f"[{','.join(events)}]".encode(), tmp_path)
    assert set(trace.ops.start_ns.tolist()) == {1_700_000_000_000_001_000}
    assert set((trace.ops.end_ns - trace.ops.start_ns).tolist()) == {2500}


@pytest.mark.shared
def test_real_traces_exactly_as_quickly(shared_traces: Path) -> None:
    """One of every kind of writer: torch 1.8 to 2.13, ROCm, MTIA, bare lists, re-indented, minified."""
    small = sorted(path for path in shared_traces.rglob("*.json.gz") if path.stat().st_size < 30_000)
    n_read = 0
    for path in small:
        try:
            quick = read_trace(str(path))
        except ProfkitError:
            continue
        raw = _read_exact(Task(path, "t", partial(decode_batch), 50_000), lenient=False, progress=None)
        assert canonical(build_trace(raw)) == canonical(quick), path
        n_read += 1
    assert n_read > 20
