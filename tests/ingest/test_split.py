"""Any layout and any chunk size give the same trace; a cut file gives its whole events."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.errors import TraceFormatError
from profkit.ingest.assemble.build import build_trace
from profkit.ingest.kineto.batch import decode_batch
from profkit.ingest.kineto.parallel_reader import PART_BYTES, NotAsUsualError, Rooms, Task, quick_pieces
from profkit.ingest.kineto.reader import CHUNK_BYTES, _read, _read_exact, read_trace
from profkit.ingest.kineto.split import MAX_ELEMENT_BYTES, Document, elements
from profkit.model.trace import Trace
from profkit.testing import Row, to_json
from tests.conftest import examples

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
    exactly = _read_exact(Task(path, "t", decode_batch, chunk_bytes), lenient=False, progress=None)
    assert contents(build_trace(exactly)) == EXPECTED


def test_metadata_on_both_sides_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    text = to_json(ROWS, metadata={"before": [{"a": 1}, {"b": 2}]}).decode().rstrip().removesuffix("}")
    path.write_text(f'{text}, "after": [{{"pg": 1}}, {{"pg": 2}}]}}')
    for chunk_bytes in (50, CHUNK_BYTES):
        task = Task(path, "t", decode_batch, chunk_bytes)
        metadata = _read(task, lenient=False, jobs=1, progress=None, meanwhile=None).metadata
        assert metadata["before"] == [{"a": 1}, {"b": 2}]
        assert metadata["after"] == [{"pg": 1}, {"pg": 2}]


@pytest.mark.parametrize(
    "text",
    [
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1}], "traceEvents": []}',
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


# ----------------------------------------------------------------------------- pieces of the usual layout, in few rooms

EVENTS = [{"n": n, "args": {"x": "y" * (n % 7)}} for n in range(60)]


def chunked(text: bytes, size: int) -> Iterator[bytes]:
    return (text[at : at + size] for at in range(0, len(text), size))


def numbers(text: bytes, *, chunk_bytes: int, piece_bytes: int, gives_back: bool) -> tuple[list[int], set[int]]:
    """The events of all pieces and of the tail, and the rooms that were used."""
    document, rooms, found, used = Document(), Rooms(piece_bytes), [], set()
    for piece in quick_pieces(chunked(text, chunk_bytes), document, source="t", rooms=rooms):
        found += [event["n"] for event in json.loads(bytes(piece))]
        used.add(id(piece.obj))
        if gives_back:
            rooms.give_back(piece)
    assert document.n_bytes == len(text)
    found += [event["n"] for event in json.loads(b'{"e": [' + document.tail)["e"]]
    return found, used


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 900), st.integers(1, 900), st.sampled_from([None, 1]), st.booleans())
def test_pieces_hold_every_event_once(chunk_bytes: int, piece_bytes: int, indent: int | None, gives_back: bool) -> None:
    text = json.dumps({"a": 1, "traceEvents": EVENTS, "b": 2}, indent=indent).encode()
    found, _ = numbers(text, chunk_bytes=chunk_bytes, piece_bytes=piece_bytes, gives_back=gives_back)
    assert found == list(range(len(EVENTS)))


def test_room_that_is_given_back_is_used_again() -> None:
    text = json.dumps({"traceEvents": EVENTS}).encode()
    assert len(numbers(text, chunk_bytes=100, piece_bytes=300, gives_back=True)[1]) <= 2


def test_an_event_larger_than_a_piece_is_one_piece_and_not_all_room() -> None:
    events = [{"n": 0}, {"n": 1, "x": "y" * (4 * PART_BYTES)}, *({"n": n} for n in range(2, 9))]
    text = json.dumps({"traceEvents": events}).encode()
    found, _ = numbers(text, chunk_bytes=PART_BYTES, piece_bytes=PART_BYTES, gives_back=True)
    assert found == list(range(9))


def test_an_element_that_never_ends_is_not_as_usual() -> None:
    text = b'{"traceEvents": [{"x": "' + b"y" * (MAX_ELEMENT_BYTES + 3 * PART_BYTES)
    pieces = quick_pieces(chunked(text, PART_BYTES), Document(), source="t", rooms=Rooms(PART_BYTES))
    with pytest.raises(NotAsUsualError):
        list(pieces)


@pytest.mark.parametrize("piece_bytes", [1, 1000, PART_BYTES, 3 * 2**17, 2**21])
def test_parts_are_even_and_small(piece_bytes: int) -> None:
    rooms = Rooms(piece_bytes)
    assert 0 < rooms.part_bytes <= PART_BYTES
    assert -(-piece_bytes // rooms.part_bytes) == -(-piece_bytes // PART_BYTES)
