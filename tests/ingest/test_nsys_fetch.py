"""Rows of SQLite by the compiled library and from Python's tuples: the same columns, the same errors."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.errors import ProfkitError, TraceFormatError
from profkit.ingest.nsys import fetch
from profkit.ingest.nsys.sqlite import opened
from profkit.ingest.read import read_traces
from profkit.native import library
from tests.conftest import ROOT, examples
from tests.ingest.both_ways import exact
from tests.ingest.nsys_files import training

needs_fetch = pytest.mark.skipif(fetch.available() is None, reason="no compiled library, or no SQLite beside it")
pytestmark = needs_fetch

SHARED = sorted((ROOT.parent / "shared" / "data" / "nsys").glob("*.sqlite.gz"))


def by_python() -> Any:
    """As where nothing was compiled."""
    return mock.patch.object(fetch, "available", return_value=None)


def table(path: Path, rows: Sequence[tuple[Any, ...]]) -> Path:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (a, b, c)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return path


def read(path: Path) -> Any:
    """Columns and texts of the table, or the error with what was read before it."""
    texts: list[Any] = []
    parts: list[dict[str, Any]] = []
    try:
        with opened(path, "x") as database:
            parts.extend(database.chunks("t", {"a": None, "b": -7, "z": 3}, coded=("c", texts)))
    except TraceFormatError as error:
        return error.message, error.hint, texts
    names = {name for part in parts for name in part}
    return {name: exact(np.concatenate([part[name] for part in parts])) for name in sorted(names)}, texts


def both(path: Path) -> tuple[Any, Any]:
    with by_python():
        plain = read(path)
    return read(path), plain


NUMBERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.one_of(st.none(), st.text(max_size=9), st.binary(max_size=9), st.sampled_from(["a", "node 17", "é", "a\0b"]))


@settings(max_examples=examples(200), deadline=None)
@given(rows=st.lists(st.tuples(NUMBERS, st.one_of(st.none(), NUMBERS), TEXTS), max_size=40))
def test_any_rows_are_the_same(rows: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("t") / "t.sqlite"
    compiled, plain = both(table(path, rows))
    assert compiled == plain


@pytest.mark.parametrize(
    "wrong", [(1.5, 1, "x"), ("1", 1, "x"), (None, 1, "x"), (b"", 1, "x"), (1, "n", "x"), (1, 1.0, "x")]
)
@pytest.mark.parametrize("place", [0, 3, 30_001])
def test_a_number_of_another_kind_is_named_as_python_names_it(
    wrong: tuple[Any, ...], place: int, tmp_path: Path
) -> None:
    rows = [(n, n, f"text {n % 50}") for n in range(place)]
    compiled, plain = both(table(tmp_path / "t.sqlite", [*rows, wrong, *rows[:5]]))
    assert compiled[:2] == plain[:2]
    assert "where a whole number is expected" in plain[0]


@pytest.mark.parametrize("wrong", [5, 2.5])
def test_a_number_where_text_should_be_is_its_digits(wrong: object, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(fetch, "N_ROWS", 8)
    rows: list[tuple[Any, ...]] = [(n, n, f"text {n % 5}") for n in range(30)]
    rows[21] = (21, 21, wrong)
    compiled, plain = both(table(tmp_path / "t.sqlite", rows))
    assert compiled == plain
    assert str(wrong).encode() in plain[1]


def test_many_texts_that_differ_in_their_last_bytes(tmp_path: Path) -> None:
    compiled, plain = both(table(tmp_path / "t.sqlite", [(n, n, f"name {n}") for n in range(5000)]))
    assert compiled == plain
    assert len(plain[1]) == 5000


def test_it_is_asked_before_each_statement(tmp_path: Path) -> None:
    path = table(tmp_path / "t.sqlite", [(1, 2, "x")])
    with opened(path, "x") as database:
        second = database._second
        assert second is not None
        for sql in ("SELECT randomblob(9)", "ATTACH 'y' AS other", "DELETE FROM t", "CREATE TABLE u (a)"):
            with pytest.raises(sqlite3.DatabaseError):
                list(second.rows(sql, 1, None, database._allowance.counting))
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.sqlite"]


def test_what_does_not_end_is_stopped(tmp_path: Path) -> None:
    path = table(tmp_path / "t.sqlite", [(n, n, "x") for n in range(20_000)])

    def endless() -> None:
        with opened(path, "x") as database:
            database._allowance._n_left = 5
            list(database.chunks("t", {"a": None}))

    with pytest.raises(TraceFormatError, match="reading it does not end"):
        endless()


def test_without_sqlite_s_functions_python_fetches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise library.NotUsedError("not here")

    fetch.available.cache_clear()
    monkeypatch.setattr(fetch, "library", refuse)
    try:
        assert fetch.available() is None
        assert read(table(tmp_path / "t.sqlite", [(1, 2, "x")]))[1] == [b"x"]
    finally:
        fetch.available.cache_clear()


@pytest.mark.parametrize("path", SHARED[::4], ids=lambda path: path.name)
def test_real_exports_are_read_to_the_same_bits(path: Path) -> None:
    def traces() -> Any:
        try:
            return [exact(trace) for trace in read_traces(str(path))]
        except ProfkitError as error:
            return type(error).__name__, error.message, error.hint

    compiled = traces()
    with by_python():
        assert traces() == compiled


def test_our_export_is_read_to_the_same_bits(tmp_path: Path) -> None:
    path = training(n_steps=300).write(tmp_path / "x.sqlite")
    (compiled,) = read_traces(str(path))
    with by_python():
        (plain,) = read_traces(str(path))
    assert exact(compiled) == exact(plain)
