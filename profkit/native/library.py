"""The compiled library: where it lies, whether it was built from these sources, and a scanner for a batch at a time.

Imports nothing but the standard library: `profkit doctor` asks here from where neither numpy nor msgspec is loaded.
"""

from __future__ import annotations

import ctypes
import os
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
SOURCES: Final = (
    *("scan.c", "algebra.c"),
    *("memory.h", "text.h", "event.h", "rows.h", "result.h", "select.h"),
    *("search.h", "sets.h", "nesting.h", "order.h", "clocks.h"),
)
NAME: Final = "compiled.library"
"""No ending that Python would import."""
SWITCH: Final = "PROFKIT_NATIVE"
"""The environment variable that, set to 0, leaves everything to Python."""
_BUILD: Final = "make native, or pip install again where there is a C compiler"


class NotUsedError(Exception):
    """Why the library is not in use; `fix` is what would change it."""

    def __init__(self, message: str, fix: str = _BUILD) -> None:
        super().__init__(message)
        self.fix = fix


def checksum(folder: Path) -> int:
    """The CRC-32 of the sources in a folder: what a library tells that was built from them."""
    found = 0
    for name in SOURCES:
        found = zlib.crc32((folder / name).read_bytes(), found)
    return found


@cache
def library() -> ctypes.CDLL:
    """The loaded library; raises NotUsedError, with the reason."""
    if os.environ.get(SWITCH) == "0":
        raise NotUsedError(f"{SWITCH}=0 says so", f"unset {SWITCH}")
    if sys.byteorder != "little" or sys.maxsize < 2**63 - 1:
        raise NotUsedError("written for 64-bit machines that are little-endian", "")
    place = FOLDER / NAME
    if not place.is_file():
        raise NotUsedError("not compiled")
    try:
        found = ctypes.CDLL(str(place))
        built_from: int = _declared(found).profkit_source()
    except (OSError, AttributeError) as error:
        raise NotUsedError(f"cannot be loaded: {str(error)[:200]}") from None
    if built_from != checksum(FOLDER):
        raise NotUsedError("compiled from other sources")
    return found


def _declared(found: ctypes.CDLL) -> ctypes.CDLL:
    """Tell ctypes the functions of scan.c and algebra.c; raises AttributeError where one is missing."""
    handle, text, whole = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64
    of_two_sets = [*[handle, handle, whole] * 2, handle, handle]
    for name, result, arguments in (
        ("profkit_source", ctypes.c_uint32, []),
        ("profkit_argument_key", ctypes.c_char_p, [ctypes.c_int]),
        ("profkit_scanner", handle, [ctypes.c_uint64]),
        ("profkit_know", ctypes.c_int, [handle, ctypes.c_int, text, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_int]),
        ("profkit_scan", ctypes.c_int64, [handle, text, ctypes.c_int64, ctypes.c_int]),
        ("profkit_result", ctypes.c_void_p, [handle]),
        ("profkit_selection", handle, [handle, ctypes.c_uint64]),
        ("profkit_selection_free", None, [handle]),
        ("profkit_fetch", whole, [handle, handle, ctypes.c_int, ctypes.c_int, whole, handle, handle]),
        ("profkit_texts", whole, [handle]),
        ("profkit_text", handle, [handle, whole, handle]),
        ("profkit_union", whole, [handle, handle, whole, handle, handle]),
        ("profkit_either", whole, of_two_sets),
        ("profkit_both", whole, of_two_sets),
        ("profkit_without", whole, of_two_sets),
        ("profkit_clipped", whole, [handle, handle, whole, whole, whole, handle, handle]),
        ("profkit_places", None, [handle, whole, handle, whole, ctypes.c_int, handle]),
        ("profkit_ordered", whole, [handle, whole, handle]),
        ("profkit_next_equal", whole, [handle, whole, handle]),
        ("profkit_contained", None, [handle, handle, whole, handle, whole, handle]),
        ("profkit_covered", whole, [handle, handle, whole, handle, handle, whole, handle]),
        ("profkit_parent_rows", whole, [handle, handle, handle, whole, handle]),
        ("profkit_enclosing", whole, [handle, handle, handle, whole, handle, handle, whole, handle]),
        ("profkit_nested", whole, [handle, handle, handle, whole, handle, handle, handle]),
        ("profkit_outermost", whole, [handle, handle, handle, whole, handle]),
        ("profkit_clocks", ctypes.c_int, [whole, ctypes.c_int, *[handle] * 6]),
        ("profkit_seen", ctypes.c_int, [handle, whole, whole, handle]),
    ):
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


def state() -> tuple[bool, str, str]:
    """Whether the library is in use, what is to be said of it, and what would bring it into use."""
    try:
        library()
    except NotUsedError as reason:
        return False, str(reason), reason.fix
    return True, f"in use ({NAME})", ""


_FirstByte: Final = ctypes.c_char * 1
"""Where memory that can be written begins, for C."""


class Scanner:
    """One scanner of the library, with its memory: for one batch at a time."""

    def __init__(self) -> None:
        """Raises NotUsedError where there is no library, MemoryError without memory."""
        self._library = library()
        self._handle = self._library.profkit_scanner(int.from_bytes(os.urandom(8), "little"))
        if not self._handle:
            raise MemoryError

    def know(self, text: str, *, is_name: bool, flags: int = 0, table: int = -1) -> None:
        """Tell what a name or a category means (`rows.h` has the flags)."""
        written = text.encode()
        if not self._library.profkit_know(self._handle, is_name, written, len(written), flags, table):
            raise MemoryError

    def scan(self, array: bytes | memoryview, *, unique_keys: bool) -> tuple[memoryview, int]:
        """The block of a JSON array (`result.h` says what is in it), or nothing and the reason why Python has it.

        The block lies in the scanner's own memory, until it scans again. No other thread waits: Python's lock is free
        meanwhile. A memoryview must be of memory that can be written: only of such does ctypes give the place.
        """
        text = array if isinstance(array, bytes) else _FirstByte.from_buffer(array)
        n_bytes: int = self._library.profkit_scan(self._handle, text, len(array), unique_keys)
        if n_bytes < 0:
            return memoryview(b""), -n_bytes
        place: int = self._library.profkit_result(self._handle)
        return memoryview((ctypes.c_char * n_bytes).from_address(place)).cast("B"), 0
