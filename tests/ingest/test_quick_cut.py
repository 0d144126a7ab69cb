"""Pieces of the usual layout: every event in one of them, whatever the chunks, and room that is used again."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.ingest.kineto.parallel_reader import PART_BYTES, NotAsUsualError, Rooms, quick_pieces
from profkit.ingest.kineto.split import MAX_ELEMENT_BYTES, Document
from tests.conftest import examples

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
