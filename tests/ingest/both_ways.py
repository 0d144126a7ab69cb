"""One input read by the compiled scanner and by Python alone: the whole of what comes out, to the last bit."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pytest

from profkit.errors import ProfkitError
from profkit.ingest.kineto import scanner
from profkit.ingest.kineto.batch import decode_batch
from profkit.ingest.kineto.events import BadEventError
from profkit.ingest.kineto.reader import read_trace
from profkit.native import library

IS_NATIVE, _SAID, _ = library.state()
needs_library = pytest.mark.skipif(not IS_NATIVE, reason=f"the scanner: {_SAID}")


@contextmanager
def by_python_alone() -> Iterator[None]:
    """As where nothing was compiled."""
    none = scanner._Scanners()
    none.has_none = True
    with mock.patch.object(scanner, "_IDLE", none):
        yield


def exact(value: Any) -> Any:
    """A value as what can be compared: arrays by type, shape and bytes, dictionaries with their order."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, np.ascontiguousarray(value).tobytes())
    if isinstance(value, msgspec.Struct):
        return {name: exact(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return [(key, exact(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [exact(item) for item in value]
    return (type(value).__name__, repr(value))


def read(path: Path, **options: Any) -> Any:
    """The trace of a file, or the error with all its words."""
    try:
        return exact(read_trace(str(path), **options))
    except ProfkitError as error:
        return (type(error).__name__, error.message, error.hint)


def read_both_ways(path: Path, **options: Any) -> tuple[Any, Any]:
    """What the scanner's way and Python's make of a file."""
    with by_python_alone():
        plain = read(path, **options)
    return read(path, **options), plain


def unlike(path: Path, **options: Any) -> str:
    """How both begin where the two ways make something else of a file, "" where they do not."""
    by_scanner, plain = read_both_ways(path, **options)
    return "" if by_scanner == plain else f"{str(by_scanner)[:900]} against {str(plain)[:900]}"


def decoded(array: bytes, *, unique_keys: bool) -> Any:
    """The batch of an array, its tables without their order, or the error."""
    try:
        batch = decode_batch(array, unique_keys=unique_keys)
    except BadEventError as error:
        return str(error)
    batch.tables = {table: dict(sorted(columns.items())) for table, columns in sorted(batch.tables.items())}
    batch.categories = dict(sorted(batch.categories.items()))
    return exact(batch)


def decoded_both_ways(array: bytes, *, unique_keys: bool = False) -> tuple[Any, Any]:
    """What the scanner's way and Python's make of an array of events."""
    with by_python_alone():
        plain = decoded(array, unique_keys=unique_keys)
    return decoded(array, unique_keys=unique_keys), plain


def reason(array: bytes, *, unique_keys: bool = False) -> str:
    """Why the scanner leaves an array to Python, "taken" where it does not."""
    return scanner.REASONS[scanner.scanned(array, unique_keys=unique_keys)[1]]
