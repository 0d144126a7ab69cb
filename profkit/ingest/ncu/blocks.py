"""Whether an `.ncu-rep` is whole, by the sizes of its blocks: NVIDIA's reader takes a file cut short for an empty one.

As in the folder FileFormat of an Nsight Compute installation: a magic number, the size of the file's header (uint32)
and the header, then blocks: the size of a header (uint32), the header (a protobuf), the payload, whose size it states.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Final

from profkit import files
from profkit.ingest.ncu.sniff import MAGIC

_SIZE: Final = 4
_PAYLOAD_SIZE: Final = 5  # the field of a block's header
_MOST_HEADER_BYTES: Final = 2**26  # chosen: it holds tables of names; the largest at hand has 66 KB
_MOST_BLOCKS: Final = 10**6  # chosen: a launch has one or two
_MOST_FIELDS: Final = 64  # chosen: a header has nine
_VARIES, _LONG, _COUNTED, _SHORT = 0, 1, 2, 5  # how protobuf writes a field
_MOST_DIGITS: Final = 10  # of 7 bits


def is_cut_short(path: Path) -> bool:
    """Whether a report does not end where its last block does; False for a compressed one, which says it itself."""
    n_bytes = path.stat().st_size
    with files.open_file(path) as file:
        if file.read(len(MAGIC)) != MAGIC:
            return False
        place = len(MAGIC)
        for _ in range(_MOST_BLOCKS):
            header = _header(file, place)
            if not header:
                return True
            place += _SIZE + len(header) + (_payload_bytes(header) if place > len(MAGIC) else 0)
            if place >= n_bytes:
                break
    return place != n_bytes


def _header(file: BinaryIO, place: int) -> bytes:
    """The header whose size stands at this place; b"" where it is cut short or larger than any."""
    file.seek(place)
    size = int.from_bytes(file.read(_SIZE), "little")
    header = file.read(size) if size <= _MOST_HEADER_BYTES else b""
    return header if len(header) == size else b""


def _payload_bytes(header: bytes) -> int:
    """What a block's header says of its payload; 0 where it says nothing."""
    place = 0
    for _ in range(_MOST_FIELDS):
        if place >= len(header):
            break
        key, place = _number(header, place)
        field, kind = key >> 3, key & 7
        value, place = _number(header, place) if kind in {_VARIES, _COUNTED} else (0, place)
        if field == _PAYLOAD_SIZE and kind == _VARIES:
            return value
        place += {_COUNTED: value, _LONG: 8, _SHORT: 4}.get(kind, 0)
    return 0


def _number(header: bytes, place: int) -> tuple[int, int]:
    """A number in digits of 7 bits, the lowest first, and the place behind it; the last digit has its top bit clear."""
    value = 0
    for shift, byte in enumerate(header[place : place + _MOST_DIGITS]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, place + shift + 1
    return value, len(header)
