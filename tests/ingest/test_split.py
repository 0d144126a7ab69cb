"""Any layout and any chunk size give the same trace; a cut file gives its whole events."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.errors import ProfkitError, TraceFormatError, TruncatedTraceError
from profkit.ingest.kineto.batch import decode_batch
from profkit.ingest.kineto.parallel_reader import Task
from profkit.ingest.kineto.reader import CHUNK_BYTES, _read, _read_exact, _read_quick, read_trace
from profkit.ingest.kineto.split import elements
from profkit.model.trace import Trace
from profkit.testing import Row, to_json
from tests.conftest import IN_FULL, examples

NAMES = ["mm", 'a"b', "back\\slash", "\\\\", "},{", "[{", '"}]', '\\"},{"', "é", "x" * 300]
ROWS = [
    Row(
        name=name,
        cat="cpu_op",
        start_ns=10**9 + 1000 * n,
        end_ns=10**9 + 1000 * n + 500 + n,
        args={"External id": n, "s": ["}", {"q": [1, {"r": "{"}]}]},
    )
    for n, name in enumerate(NAMES * 3)
]
LAYOUTS = ["kineto", "minified", "indented", "events_last", "list"]


def contents(trace: Trace) -> list[tuple[int, int, str, int]]:
    ops = trace.ops
    return [
        (int(start), int(end), trace.name(int(name)), int(external))
        for start, end, name, external in zip(ops.start_ns, ops.end_ns, ops.name, ops.external_id, strict=True)
    ]


EXPECTED = [(row.start_ns, row.end_ns, row.name, n) for n, row in enumerate(ROWS)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("chunk_bytes", [1, 7, 64, 333, 10**6])
def test_layout_and_chunk_size_do_not_matter(layout: str, chunk_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(to_json(ROWS, layout=layout, metadata={"m": {"traceEvents": [1, {"x": "]"}]}}))
    assert contents(read_trace(str(path), chunk_bytes=chunk_bytes)) == EXPECTED


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("chunk_bytes", [13, 400, 10**6])
def test_quick_and_exact_agree(layout: str, chunk_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(to_json(ROWS, layout=layout))
    task = Task(path, "t", decode_batch, chunk_bytes)
    exact = _read_exact(task, lenient=False, progress=None)
    assert exact.n_events == len(ROWS)
    try:
        quick = _read_quick(task, jobs=1, progress=None)
    except Exception:  # noqa: BLE001 - quick may give up on odd layouts; it may not give other events
        return
    assert quick.n_events == exact.n_events
    assert quick.metadata == exact.metadata


def test_metadata_on_both_sides_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    text = to_json(ROWS, metadata={"before": [{"a": 1}, {"b": 2}]}).decode().rstrip().removesuffix("}")
    path.write_text(f'{text}, "after": [{{"pg": 1}}, {{"pg": 2}}]}}')
    for chunk_bytes in (50, CHUNK_BYTES):
        task = Task(path, "t", decode_batch, chunk_bytes)
        metadata = _read(task, lenient=False, jobs=1, progress=None, meanwhile=None).metadata
        assert metadata["before"] == [{"a": 1}, {"b": 2}]
        assert metadata["after"] == [{"pg": 1}, {"pg": 2}]


def whole_events(data: bytes) -> int:
    """Count the whole events of a cut file with the standard library."""
    text = data.decode(errors="ignore")
    start = text.find('"traceEvents": [')
    if start < 0:
        return 0
    decoder, place, count = json.JSONDecoder(), start + len('"traceEvents": ['), 0
    while True:
        while place < len(text) and text[place] in ", \n":
            place += 1
        try:
            _, place = decoder.raw_decode(text, place)
        except json.JSONDecodeError:
            return count
        count += 1


@pytest.mark.sampled
def test_a_file_cut_anywhere_says_so_and_keeps_what_is_whole(tmp_path: Path) -> None:
    data = to_json(ROWS[:6])
    path = tmp_path / "cut.json"
    end = data.rindex(b"]")
    for length in range(1, end, 1 if IN_FULL else 3):
        path.write_bytes(data[:length])
        with pytest.raises(ProfkitError) as caught:
            read_trace(str(path))
        assert caught.value.exit_code == 3
        n_whole = whole_events(data[:length])
        if isinstance(caught.value, TruncatedTraceError) and b"traceEvents" in data[: length - 4]:
            assert caught.value.n_whole_events == n_whole
        if n_whole:
            trace = read_trace(str(path), lenient=True)
            assert len(trace.ops) == n_whole
            assert "trace.truncated" in {warning.id for warning in trace.warnings}


@pytest.mark.parametrize(
    "text",
    [
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1}, 5]}',
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1},]}',
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1} {"ph": "X"}]}',
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1}], "traceEvents": []}',
        '{"a": 1, "a": 2, "traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1}]}',
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1}]} trailing',
        '[{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1}] trailing',
    ],
)
@pytest.mark.parametrize("chunk_bytes", [9, 10**6])
def test_what_is_not_json_is_refused(text: str, chunk_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(TraceFormatError):
        read_trace(str(path), chunk_bytes=chunk_bytes)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text('{}[]",\\ab\n', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('{}[]",\\a', max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.dictionaries(st.text('{}[]"\\a', max_size=4), json_values, max_size=3), max_size=6),
    st.sampled_from([None, 1]),
)
def test_elements_are_found_by_brackets(objects: list[dict[str, Any]], indent: int | None) -> None:
    text = json.dumps(objects, indent=indent).encode()
    assert [json.loads(element) for element in elements(text)] == objects


@settings(max_examples=examples(40), deadline=None)
@given(st.permutations(ROWS[:12]), st.integers(1, 500))
def test_order_and_chunks_do_not_matter(rows: list[Row], chunk_bytes: int) -> None:
    text = to_json(rows)
    batches = [decode_batch(b"[" + b",".join(elements(b"[" + json_array(text) + b"]")) + b"]")]
    assert sum(batch.n_events for batch in batches) == 12
    assert np.sort(batches[0].tables["ops"]["start_ns"]).tolist() == sorted(row.start_ns for row in rows)


def json_array(text: bytes) -> bytes:
    start = text.index(b'"traceEvents": [') + len(b'"traceEvents": [')
    return text[start : text.rindex(b"]")]
