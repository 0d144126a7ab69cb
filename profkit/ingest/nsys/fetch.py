"""Rows of an SQLite table as columns of int64, by the compiled library: no object of Python for each value.

It calls the functions of the SQLite that Python's own module is linked with, on a connection of its own, under the same
limits, pragmas, authorizer and allowance (`sqlite.opened` passes them). Where the library or those functions are not to
be had, `available` says so, and `sqlite.Database` fetches tuples.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from profkit.native.library import NotUsedError, library

N_ROWS: Final = 2**17
"""Rows fetched at a time: columns of a megabyte."""
_OPEN: Final = 0x1 | 0x40  # SQLITE_OPEN_READONLY, SQLITE_OPEN_URI
_ROW, _DONE, _INTERRUPT, _DENY, _WRONG_KIND, _WITHOUT_MEMORY = 100, 101, 9, 1, -1, -2
_CALLED: Final = ("step", "column_type", "column_int64", "column_blob", "column_bytes")
"""As `select.h` orders them."""
_AUTHORIZER: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, *[ctypes.c_char_p] * 4)
_PROGRESS: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)

Authorize = Callable[..., int]
"""Action and up to four names to SQLITE_OK or SQLITE_DENY."""


class NotTakenError(Exception):
    """A value of another type than its column should have: the rows from there on are for Python, which says which."""


@cache
def available() -> tuple[ctypes.CDLL, ctypes.CDLL] | None:
    """SQLite's functions and the compiled library; None where one of them is not to be had."""
    try:
        ours = library()
        place: str = import_module("_sqlite3").__file__ or ""
        found = ctypes.CDLL(place)  # its symbols, and those of what it is linked with
        handle, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
        for name, result, arguments in (
            ("libversion", text, []),
            ("open_v2", number, [text, handle, number, text]),
            ("close_v2", number, [handle]),
            ("limit", number, [handle, number, number]),
            ("exec", number, [handle, text, handle, handle, handle]),
            ("set_authorizer", number, [handle, _AUTHORIZER, handle]),
            ("progress_handler", None, [handle, number, _PROGRESS, handle]),
            ("prepare_v2", number, [handle, text, number, handle, handle]),
            ("finalize", number, [handle]),
            ("errmsg", text, [handle]),
        ):
            function = getattr(found, f"sqlite3_{name}")
            function.restype, function.argtypes = result, arguments
        for name in _CALLED:
            getattr(found, f"sqlite3_{name}")
        is_same: bool = found.sqlite3_libversion().decode() == sqlite3.sqlite_version
    except (NotUsedError, ImportError, AttributeError, OSError):
        return None
    return (found, ours) if is_same else None


class Connection:
    """A second connection to a file, open until the context ends."""

    def __init__(
        self,
        uri: str,
        limits: Sequence[tuple[int, int]],
        pragmas: Sequence[str],
        is_over: Callable[[], bool],
        n_steps: int,
    ) -> None:
        """Raises sqlite3.Error; `is_over` is asked after each `n_steps` steps of the virtual machine."""
        known = available()
        assert known is not None  # noqa: S101 - the caller has asked
        self._sqlite, self._library = known
        self._handle = ctypes.c_void_p()
        try:
            self._check(self._sqlite.sqlite3_open_v2(uri.encode(), ctypes.byref(self._handle), _OPEN, None))
            for limit, value in limits:
                self._sqlite.sqlite3_limit(self._handle, limit, value)
            for pragma in pragmas:
                self._check(self._sqlite.sqlite3_exec(self._handle, f"PRAGMA {pragma}".encode(), None, None, None))
        except BaseException:
            self._sqlite.sqlite3_close_v2(self._handle)
            raise
        self._is_over = _PROGRESS(lambda _: _answered(is_over))  # kept: SQLite holds no reference
        self._sqlite.sqlite3_progress_handler(self._handle, n_steps, self._is_over, None)
        self._authorizer: Any = None

    def authorize(self, asked: Authorize) -> None:
        """Have every statement from now on asked for, as `sqlite3.Connection.set_authorizer` does."""
        self._authorizer = _AUTHORIZER(lambda _, action, *texts: _permitted(asked, action, texts))
        self._sqlite.sqlite3_set_authorizer(self._handle, self._authorizer, None)

    def rows(
        self,
        statement: str,
        n_numbers: int,
        texts: list[Any] | None,
        counting: Callable[[], AbstractContextManager[None]],
    ) -> Iterator[NDArray[np.int64]]:
        """The columns of a SELECT, shape (columns, rows), some rows at a time; the last one is of text if `texts`.

        A text is its place in `texts`, which grows, -1 for NULL. Raises NotTakenError and sqlite3.Error.
        """
        n_columns = n_numbers + (texts is not None)
        prepared = ctypes.c_void_p()
        selection = self._selection()
        try:
            text = statement.encode()
            with counting():
                self._check(
                    self._sqlite.sqlite3_prepare_v2(self._handle, text, len(text), ctypes.byref(prepared), None)
                )
            told = ctypes.c_int(_ROW)
            while told.value == _ROW:
                values = np.empty((n_columns, N_ROWS), np.int64)
                with counting():
                    n_rows: int = self._library.profkit_fetch(
                        *(selection, prepared, n_columns, texts is not None),
                        *(N_ROWS, values.ctypes.data, ctypes.byref(told)),
                    )
                if told.value == _WRONG_KIND:
                    raise NotTakenError
                if told.value not in {_ROW, _DONE}:
                    self._check(told.value)
                if texts is not None:
                    self._add_texts(selection, texts)
                if n_rows:
                    yield values[:, :n_rows]
        finally:
            self._sqlite.sqlite3_finalize(prepared)
            self._library.profkit_selection_free(selection)

    def _selection(self) -> int:
        functions = [ctypes.cast(getattr(self._sqlite, f"sqlite3_{name}"), ctypes.c_void_p) for name in _CALLED]
        made: int | None = self._library.profkit_selection(
            (ctypes.c_void_p * len(functions))(*functions), int.from_bytes(os.urandom(8), "little")
        )
        if not made:
            raise MemoryError
        return made

    def _add_texts(self, selection: int, texts: list[Any]) -> None:
        n_bytes = ctypes.c_int64()
        for code in range(len(texts), self._library.profkit_texts(selection)):
            place = self._library.profkit_text(selection, code, ctypes.byref(n_bytes))
            texts.append(ctypes.string_at(place, n_bytes.value))

    def _check(self, code: int) -> None:
        if code == _WITHOUT_MEMORY:
            raise MemoryError
        if code & 0xFF == _INTERRUPT:
            raise sqlite3.OperationalError("interrupted")
        if code:
            raise sqlite3.DatabaseError(self._sqlite.sqlite3_errmsg(self._handle).decode(errors="replace"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sqlite.sqlite3_close_v2(self._handle)


def _answered(is_over: Callable[[], bool]) -> int:
    try:
        return int(is_over())
    except BaseException:  # noqa: BLE001 - SQLite cannot pass it on; to stop is the safe answer
        return 1


def _permitted(asked: Authorize, action: int, texts: Sequence[bytes | None]) -> int:
    try:
        return asked(action, *(text.decode() if text is not None else None for text in texts))
    except BaseException:  # noqa: BLE001 - as above
        return _DENY
