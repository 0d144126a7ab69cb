"""SQLite files from strangers: opened read-only, plain tables read whole, nothing in the file is ever executed.

Views, triggers, virtual tables and generated columns are SQL that runs when it is read: none of them is touched. An
authorizer refuses every statement but a `SELECT` from a table, and bounds on the steps of the virtual machine and on
its time end the walk through a file whose pages point at each other, or whose rows all hold the same long text.
(https://www.sqlite.org/security.html)
"""

from __future__ import annotations

import math
import sqlite3
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit import files
from profkit.errors import TraceFormatError
from profkit.ingest.assemble.raw import Columns
from profkit.ingest.bytes.bytesource import Progress, path_size, unreadable
from profkit.ingest.nsys import fetch
from profkit.ingest.texts import LONGEST_TEXT
from profkit.model.arrays import I64

_LATEST_NS: Final = 2**60  # 36 years; a difference of two such times fits 64 bits
_INT32: Final = np.iinfo(np.int32)
CHUNK_ROWS: Final = 20_000
"""Rows fetched at a time: a hundred drown the cost of a call, a million would double the peak of memory."""
_LONGEST_VALUE: Final = 128 * 2**20  # nsys keeps what a job printed as one string
_STEPS_PER_BYTE: Final = 32  # a scan takes about 3 steps per stored value, and no value takes less than a byte
_STEPS_BETWEEN_LOOKS: Final = 1_000  # a hundred rows: each may hold a text of the greatest length
_FREE_S: Final = 5.0  # of this thread's own time, so that slow disks do not count
_BYTES_PER_S: Final = 2 * 2**20  # real exports are read ten times as fast
_LIMITS: Final = (
    (sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE),
    (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 2**20),
    (sqlite3.SQLITE_LIMIT_COLUMN, 2000),
    (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 20),
    (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 1),
    (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
    (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1),
)
_PRAGMAS: Final = ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON")
_FUNCTIONS: Final = frozenset({"ifnull", "substr", "max"})
_DAMAGE: Final = "copy the file again, or export it again: nsys export --type=sqlite --force-overwrite=true x.nsys-rep"

Text = bytes | int | float | None
"""A text cell as stored; anything but bytes and None is not text, and the caller's to refuse."""


class Chunk(dict[str, Any]):
    """Some rows of a table, by column; `place` is the file and the table."""

    def __init__(self, columns: Mapping[str, Any], place: str) -> None:
        super().__init__(columns)
        self.place = place

    def kept(self, rows: NDArray[np.bool_]) -> Chunk:
        """Some of the rows."""
        if rows.all():
            return self
        columns = {
            name: column[rows] if isinstance(column, np.ndarray) else tuple(np.array(column, object)[rows])
            for name, column in self.items()
        }
        return Chunk(columns, self.place)

    def ns(self, name: str = "start") -> I64:
        """A column of times; raises TraceFormatError for what is no time."""
        times: I64 = self[name]
        if times.size and (int(times.min()) < -_LATEST_NS or int(times.max()) > _LATEST_NS):
            raise TraceFormatError(f"{self.place}.{name} holds times that cannot be nanoseconds")
        return times

    def times(self) -> Columns:
        """The start and end of rows; raises TraceFormatError for what is no time."""
        return {"start_ns": self.ns("start"), "end_ns": self.ns("end")}

    def ids(self, name: str) -> NDArray[np.int32]:
        """A column of ids as int32; raises TraceFormatError for what is none."""
        values: I64 = self[name]
        if values.size and not (_INT32.min < int(values.min()) and int(values.max()) < _INT32.max - 2):
            raise TraceFormatError(f"{self.place}.{name} holds {int(np.abs(values).max())}, which is not an id")
        return values.astype(np.int32)


class _Codes(dict[Any, int]):
    """A text's place in a list, which grows in the order of first sight; -1 for NULL."""

    def __init__(self, texts: list[Text]) -> None:
        super().__init__(zip(texts, range(len(texts)), strict=True))
        self[None] = -1
        self._texts = texts

    def __missing__(self, text: Text) -> int:
        code = self[text] = len(self._texts)
        self._texts.append(text)
        return code


class Database:
    """An open file: its plain tables, their columns, and their rows in chunks."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        source: str,
        progress: Progress,
        allowance: _Allowance,
        second: fetch.Connection | None,
    ) -> None:
        self._connection = connection
        self._second = second
        self._allowance = allowance
        self.source = source
        self._progress = progress
        self._n_bytes = allowance.n_bytes
        self._n_rows_expected = self._n_rows_read = 0
        self._kinds: dict[str, str] = {}
        with allowance.counting():
            objects = connection.execute("SELECT type, name, rootpage FROM sqlite_master").fetchall()
        for kind, name, root in objects:
            what = kind.decode() if kind != b"table" or root else "virtual table"
            if what != "index":
                self._kinds[_shown(name)] = what
        connection.set_authorizer(self._authorize)
        if second is not None:
            second.authorize(self._authorize)

    def tables(self) -> list[str]:
        """The names of all tables."""
        return [name for name, kind in self._kinds.items() if kind == "table"]

    def has(self, table: str) -> bool:
        """Whether the file holds a table; raises TraceFormatError for something else of that name."""
        kind = self._kinds.get(table)
        if kind not in {None, "table"}:
            raise TraceFormatError(
                f"{self.source}: {table} is a {kind}, not a table", hint="profkit reads tables only; export it again"
            )
        return kind is not None

    def expect(self, tables: Iterable[str]) -> None:
        """Say which tables will be read, so that progress can be told as a share of the file."""
        self._n_rows_expected = sum(map(self.n_rows, tables))

    def columns(self, table: str) -> frozenset[str]:
        """The stored columns of a table; generated ones are left out by SQLite itself."""
        return frozenset(_shown(row[1]) for row in self._connection.execute(f'PRAGMA table_info("{table}")'))

    def n_rows(self, table: str) -> int:
        """About how many rows a table has, without reading it; 0 for none."""
        if not self.has(table):
            return 0
        try:
            (last,) = self._connection.execute(f'SELECT max(rowid) FROM "{table}"').fetchone()  # noqa: S608
        except sqlite3.OperationalError:  # a table WITHOUT ROWID
            return 0
        return last if isinstance(last, int) and last > 0 else 0

    def chunks(
        self,
        table: str,
        numbers: Mapping[str, int | None],
        texts: Sequence[str] = (),
        coded: tuple[str, list[Text]] | None = None,
    ) -> Iterator[Chunk]:
        """The rows of a table, unordered, as columns: int64 arrays for `numbers`, tuples of `Text` for `texts`.

        `coded` names one more column of text, with the list that its distinct values are added to as they come: it is
        an int64 array of places in that list, -1 for NULL.

        The value of a number is what stands for NULL and for a column that the table does not have; None where there
        must be one. No rows where there is no such table. Raises TraceFormatError for a missing column or a value of
        another type.
        """
        if not self.has(table):
            return
        there = self.columns(table)
        missing = [name for name, absent in numbers.items() if absent is None and name not in there]
        if missing:
            raise TraceFormatError(f"{self.source}: {table} has no column {missing[0]}", hint="not an nsys export?")
        read_numbers = [name for name in numbers if name in there]
        untold = coded[0] if coded is not None and coded[0] not in there else ""
        coded = None if untold else coded
        read_texts = [name for name in texts if name in there] + ([coded[0]] if coded is not None else [])
        selected = [_number(name, numbers[name]) for name in read_numbers]
        selected += [f'substr("{name}", 1, {LONGEST_TEXT})' for name in read_texts]
        if not selected:
            return
        statement = f'SELECT {", ".join(selected)} FROM "{table}"'  # noqa: S608 - our own names
        for columns in self._columns(statement, table, read_numbers, read_texts, coded):
            n_rows = len(columns[(*read_numbers, *read_texts)[0]])
            self._tell(n_rows)
            for name in numbers.keys() - there:
                columns[name] = np.full(n_rows, numbers[name], np.int64)
            for name in set(texts) - there:
                columns[name] = (None,) * n_rows
            if untold:
                columns[untold] = np.full(n_rows, -1, np.int64)
            yield Chunk(columns, f"{self.source}: {table}")

    def _tell(self, n_rows: int) -> None:
        """Tell how much was read, in bytes of the file, from numbers of rows."""
        self._n_rows_read += n_rows
        if self._n_rows_expected:
            n_read = min(self._n_rows_read, self._n_rows_expected)
            self._progress.tell(self._n_bytes * n_read // self._n_rows_expected, self._n_bytes)

    def _columns(
        self, statement: str, table: str, numbers: list[str], texts: list[str], coded: tuple[str, list[Text]] | None
    ) -> Iterator[dict[str, Any]]:
        """The columns of a SELECT: by the compiled library as far as it takes them, else from Python's tuples.

        They are the numbers, then the texts, the last of which may be `coded`; other texts the library does not take.
        """
        n_taken = 0
        values = coded[1] if coded is not None else None
        names = (*numbers, *texts)
        if self._second is not None and len(texts) == (coded is not None):
            try:
                for block in self._second.rows(statement, len(numbers), values, self._allowance.counting):
                    n_taken += block.shape[1]
                    yield dict(zip(names, block, strict=True))
            except fetch.NotTakenError:
                pass
            else:
                return
        cursor = self._connection.execute(statement)
        cursor.arraysize = CHUNK_ROWS
        while n_taken and (skipped := self._fetched(cursor, min(n_taken, CHUNK_ROWS))):
            n_taken -= len(skipped)
        codes = _Codes(values if values is not None else [])
        while rows := self._fetched(cursor, CHUNK_ROWS):
            columns: dict[str, Any] = dict(zip(names, zip(*rows, strict=True), strict=True))
            for name in numbers:
                columns[name] = self._whole_numbers(columns[name], table, name)
            if coded is not None:
                columns[coded[0]] = np.fromiter(map(codes.__getitem__, columns[coded[0]]), np.int64, len(rows))
            yield columns

    def _fetched(self, cursor: sqlite3.Cursor, n_rows: int) -> list[Any]:
        with self._allowance.counting():
            return cursor.fetchmany(n_rows)

    def _whole_numbers(self, values: tuple[Any, ...], table: str, name: str) -> I64:
        try:
            return np.frombuffer(array("q", values), np.int64)
        except TypeError:
            wrong = next(value for value in values if not isinstance(value, int))
            what = "nothing" if wrong is None else f"{_shown(wrong)[:40]!r}"
            raise TraceFormatError(
                f"{self.source}: {table}.{name} holds {what} where a whole number is expected", hint=_DAMAGE
            ) from None

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        is_allowed = (
            action == sqlite3.SQLITE_SELECT
            or (action == sqlite3.SQLITE_READ and self._kinds.get(first or "") == "table")
            or (action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS)
            or (action == sqlite3.SQLITE_PRAGMA and first == "table_info")
        )
        return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY


@contextmanager
def opened(path: Path, source: str, progress: Progress | None = None) -> Iterator[Database]:
    """An SQLite file, open until the context ends; raises TraceFormatError for what is none, or is damaged."""
    size = _size(path, source)
    _refuse_unfinished(path, source)
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection, ExitStack() as stack:
            connection.text_factory = bytes  # text that is not UTF-8 is the caller's to decode
            for limit, value in _LIMITS:
                connection.setlimit(limit, value)
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            allowance = _Allowance(size)
            connection.set_progress_handler(allowance, _STEPS_BETWEEN_LOOKS)
            second = None
            if fetch.available() is not None:
                second = fetch.Connection(uri, _LIMITS, _PRAGMAS, allowance, _STEPS_BETWEEN_LOOKS)
                stack.enter_context(second)
            yield Database(connection, source, progress or Progress(), allowance, second)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where an error would quote a damaged schema
        if "interrupted" in str(error):
            raise TraceFormatError(f"{source}: reading it does not end", hint=_DAMAGE) from None
        reason = error if isinstance(error, sqlite3.Error) else "malformed database schema"
        raise TraceFormatError(f"{source}: SQLite cannot read it ({reason})", hint=_DAMAGE) from None


def _size(path: Path, source: str) -> int:
    """The size of a file, before SQLite opens it: SQLite would wait for a pipe."""
    try:
        with files.open_file(path) as file:
            return path_size(file)
    except OSError as error:
        raise unreadable(source, error) from None


def _refuse_unfinished(path: Path, source: str) -> None:
    """Raise TraceFormatError where changes lie beside the file: opened as immutable, SQLite would pass them over."""
    for suffix in ("-wal", "-journal"):
        beside = path.with_name(path.name + suffix)
        try:
            has_changes = any(files.read_head(beside, 8))  # the head of a journal that is over is zeros
        except OSError:  # none there, or nothing that SQLite would write
            continue
        if has_changes:
            raise TraceFormatError(
                f"{source}: {beside.name} has changes that are not yet in the file",
                hint="close the program that has it open, or wait for the export to end; else export it again",
            )


class _Allowance:
    """Answers whether to stop: after more steps of the virtual machine, or time, than a file of that size needs."""

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        self._n_left = (10_000_000 + _STEPS_PER_BYTE * n_bytes) // _STEPS_BETWEEN_LOOKS
        self._left_s = _FREE_S + n_bytes / _BYTES_PER_S
        self._until_s = math.inf

    def __call__(self) -> bool:
        self._n_left -= 1
        return self._n_left < 0 or time.thread_time() > self._until_s

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the time of what SQLite does; what is done with its rows is not its fault."""
        begun_s = time.thread_time()
        self._until_s = begun_s + self._left_s
        try:
            yield
        finally:
            self._until_s = math.inf
            self._left_s -= time.thread_time() - begun_s


def _number(name: str, absent: int | None) -> str:
    return f'"{name}"' if absent is None else f'ifnull("{name}", {absent})'


def _shown(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
