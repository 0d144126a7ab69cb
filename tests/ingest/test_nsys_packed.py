"""Rows that wait packed come out as they went in, in fewer bytes; no trace of an export outlives its turn."""

import errno
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from profkit.ingest.nsys.rows import Packed, Process
from profkit.ingest.read import read_traces
from profkit.model.arrays import constant, is_constant
from tests.ingest.nsys_files import Export

Columns = dict[str, NDArray[Any]]
_FAR = 2**60


def same(before: Columns, after: Columns) -> None:
    assert before.keys() == after.keys()
    for name, column in before.items():
        assert after[name].dtype == column.dtype
        assert is_constant(after[name]) == is_constant(column)
        np.testing.assert_array_equal(after[name], column)


def columns(n: int, seed: int, reach: int) -> Columns:
    some = np.random.default_rng(seed)
    start = some.integers(-reach, reach, n, endpoint=True)
    return {
        "start_ns": start,
        "end_ns": np.where(some.random(n) < 0.1, -1, start + some.integers(0, reach, n, endpoint=True)),
        "name": some.integers(-(2**31), 2**31, n).astype(np.int32),
        "thread": some.integers(0, 3, n).astype(np.int32),
        "correlation": some.integers(-(2**63), 2**63 - 1, n),
        "stream": np.full(n, 7),
        "external_id": constant(-1, n),
        "grid": some.integers(0, reach % 2**31 + 1, (n, 3)).astype(np.int32),
        "is_copy": some.random(n) < 0.5,
    }


@pytest.mark.parametrize("reach", [0, 1, 255, 256, 2**16 - 1, 2**16, 2**32, _FAR])
@pytest.mark.parametrize("n", [1, 2, 500])
def test_no_digit_is_lost(n: int, reach: int) -> None:
    for seed in range(5):
        before = columns(n, seed, reach)
        packed = Packed.of(
            {name: column.copy() if not is_constant(column) else column for name, column in before.items()}
        )
        same(before, packed.columns())
        for name in before.keys() - {"start_ns", "end_ns"}:
            np.testing.assert_array_equal(packed.column(name), before[name])


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("width", [0, 1, 2**8 - 1, 2**8, 2**16 - 1, 2**16, 2**31, 2**32 - 1, 2**32, 2**63])
def test_the_ends_of_every_width_are_kept(width: int, kind: type[np.signedinteger[Any]]) -> None:
    ends = np.iinfo(kind)
    for low in (ends.min, -1, 0, ends.max - width):
        if ends.min <= low and low + width <= ends.max:
            values = np.array([low, low + width, low], kind)
            before = {"start_ns": np.arange(3), "id": values}
            same(before, Packed.of(before).columns())


def test_rows_that_were_put_aside_come_back(tmp_path: Path) -> None:
    process, before = Process(), [columns(n, n, 2**20) for n in (1, 300, 40)]
    for table, some in zip(("calls", "ranges", "kernels"), before, strict=True):
        process.add(table, some)
    constant_only = {"start_ns": np.array([5]), "device": np.array([3])}
    process.add("copies", constant_only)
    with (tmp_path / "rows").open("x+b", buffering=0) as file:
        process.put_aside(file)
        n_bytes = (tmp_path / "rows").stat().st_size
        assert n_bytes == process.n_bytes > 0
        after = process.take()
    for table, some in zip(("calls", "ranges", "kernels"), before, strict=True):
        same(some, after[table][0])
    same(constant_only, after["copies"][0])


def two_ranks(path: Path) -> Path:
    export = Export()
    for pid, device in ((11, 0), (12, 1)):
        for row in range(20):
            export.kernel(10_000 + 900 * row, 10_500 + 900 * row, f"kernel {row % 3} of {pid}", pid=pid, device=device)
    return export.write(path)


def told(path: Path) -> list[list[Any]]:
    return [
        [trace.meta.rank, trace.strings, *(column.tolist() for column in trace.gpu.columns().values())]
        for trace in read_traces(str(path))
    ]


@pytest.mark.parametrize("n_free", [0, 10**9])
def test_ranks_that_wait_in_a_file_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_free: int) -> None:
    export, aside = two_ranks(tmp_path / "x.sqlite"), tmp_path / "aside"
    before = told(export)
    aside.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(aside))
    monkeypatch.setattr("profkit.ingest.nsys.reader.ASIDE_FROM_BYTES", 0)
    monkeypatch.setattr("profkit.ingest.nsys.reader.most_spooled", lambda _: n_free)
    traces = read_traces(str(export))
    next(traces)
    (rows,) = aside.glob("*/rows")
    assert (rows.stat().st_size > 0) == (n_free > 0)
    assert len(list(traces)) == 1
    assert list(aside.iterdir()) == []
    assert told(export) == before


@pytest.mark.parametrize("place", ["missing", "full"])
def test_ranks_wait_in_memory_where_no_file_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    export = two_ranks(tmp_path / "x.sqlite")
    before = told(export)
    monkeypatch.setattr("profkit.ingest.nsys.reader.ASIDE_FROM_BYTES", 0)
    if place == "missing":
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    else:
        written: list[object] = []

        def fills_up(part: Packed, file: object) -> None:
            written.append(file)
            if len(written) > 1:
                raise OSError(errno.ENOSPC, "No space left on device")
            keep(part, file)  # type: ignore[arg-type]

        keep = Packed.put_aside
        monkeypatch.setattr(Packed, "put_aside", fills_up)
    assert told(export) == before


def test_what_is_unpacked_is_the_holders_to_change() -> None:
    before = columns(50, 0, 1000)
    packed = Packed.of(before)
    packed.columns()["start_ns"][:] = 0
    packed.columns()["correlation"][:] = 0
    same(before, packed.columns())


def test_usual_rows_take_a_third_of_the_room() -> None:
    some = np.random.default_rng(0)
    start = np.cumsum(some.integers(500, 20_000, 10_000))
    rows = {
        "start_ns": start,
        "end_ns": start + some.integers(500, 60_000, start.size),
        "name": some.integers(0, 300, start.size).astype(np.int32),
        "correlation": np.arange(start.size),
        "stream": np.full(start.size, 7),
    }
    packed = Packed.of(rows)
    assert packed.room.nbytes * 3 <= sum(column.nbytes for column in rows.values())


def test_a_process_gives_its_rows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profkit.ingest.nsys.rows.PART_ROWS", 100)
    process = Process()
    pieces = [columns(60, seed, 10_000) for seed in range(5)]
    for piece in pieces:
        process.add("calls", piece)
    names = np.concatenate([piece["name"] for piece in pieces])
    np.testing.assert_array_equal(np.concatenate(process.column("calls", "name")), names)
    assert process.column("waits", "name") == []
    parts = process.take()["calls"]
    assert [part["name"].size for part in parts] == [120, 120, 60]
    for name in pieces[0]:
        whole = np.concatenate([part[name] for part in parts])
        np.testing.assert_array_equal(whole, np.concatenate([piece[name] for piece in pieces]))
    assert process.take() == {}


def test_a_trace_is_gone_before_the_next_one_of_its_file_is_made(tmp_path: Path) -> None:
    export = Export()
    for pid, device in ((11, 0), (12, 1)):
        export.kernel(10_000, 20_000, pid=pid, device=device)
    traces = read_traces(str(export.write(tmp_path / "x.sqlite")), again=True)
    first = next(traces)
    held = weakref.ref(first.gpu.start_ns)
    assert held() is not None
    del first
    assert held() is None
    assert len(list(traces)) == 1
