"""What the kernel counts of this process's connections while steps are recorded: how long each had data under way.

It only asks about descriptors that are open: no socket is made, copied or changed, and no address is kept.
Runs in the traced process: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

_DESCRIPTORS: Final = "/proc/self/fd"
_NETWORK: Final = Path("/proc/self/ns/net")
_MOST_DESCRIPTORS: Final = 16_384
"""Looked at, one call of a microsecond each. Chosen."""
_MOST_KEPT: Final = 64
"""Connections in the trace, those that carried most bytes. Chosen: rings and trees have a few for each rank."""
_TCP_INFO: Final = 11
_ESTABLISHED: Final = 1
_INFO_BYTES: Final = 512
_ROUND_TRIP: Final = struct.Struct("=I")
_ROUND_TRIP_AT: Final = 68
_ACKED: Final = struct.Struct("=QQ")
_ACKED_AT: Final = 120
_TIMES: Final = struct.Struct("=QQQ")
_TIMES_AT: Final = 168
_SENT: Final = struct.Struct("=QQ")
_SENT_AT: Final = 200
_ID_BYTES: Final = 6
"""Of an id: enough for the ends of thousands of ranks, and so few that many addresses could have given each."""

_Pair = tuple[bytes, bytes]
"""The two ends of a connection, as address and port, this process's first."""


class _Counters(NamedTuple):
    """Running totals of one connection, times in ns, as linux/tcp.h has them; the round trip is the latest."""

    acked_bytes: int
    received_bytes: int
    busy_ns: int
    """How long sent data was under way: not all of it acknowledged, or more of it to send."""
    peer_limited_ns: int
    """How long of that the other end had no room for more."""
    buffer_limited_ns: int
    """How long of that this end's send buffer was too small."""
    resent_bytes: int
    round_trip_ns: int


class Connections:
    """The connections of one rank among several from `begin` to `end`."""

    def __init__(self) -> None:
        self._before: dict[_Pair, _Counters] | None = None

    def begin(self) -> None:
        """From now on what is counted is of the recorded steps."""
        with suppress(Exception):  # a kernel, a sandbox or a libc may be of any kind
            self._before = established() if _is_one_of_several() else None

    def end(self) -> list[dict[str, Any]]:
        """What each connection carried since `begin`, most bytes first; () where nothing is known."""
        found: list[dict[str, Any]] = []
        with suppress(Exception):
            if self._before is not None:
                found = [_row(pair, self._before.get(pair), now) for pair, now in established().items()]
        found.sort(key=lambda row: row["acked_bytes"] + row["received_bytes"], reverse=True)
        return found[:_MOST_KEPT]


def established() -> dict[_Pair, _Counters]:
    """What the kernel counts of each established TCP connection of this process; {} where it does not tell."""
    if not sys.platform.startswith("linux"):
        return {}
    libc = ctypes.CDLL(None, use_errno=True)
    found = {}
    with os.scandir(_DESCRIPTORS) as entries:
        numbers = [int(entry.name) for entry in islice(entries, _MOST_DESCRIPTORS)]
    for number in numbers:
        counters = _counters(libc, number)
        if counters is not None:
            ends = _end(libc.getsockname, number), _end(libc.getpeername, number)
            if ends[0] and ends[1]:
                found[ends] = counters
    return found


def _counters(libc: Any, number: int) -> _Counters | None:
    """What is counted of a descriptor; None where it is no connection, or the kernel is too old to count it."""
    told, size = ctypes.create_string_buffer(_INFO_BYTES), ctypes.c_uint32(_INFO_BYTES)
    if libc.getsockopt(number, socket.IPPROTO_TCP, _TCP_INFO, told, ctypes.byref(size)):
        return None
    if size.value < _TIMES_AT + _TIMES.size or told.raw[0] != _ESTABLISHED:
        return None
    acked, received = _ACKED.unpack_from(told.raw, _ACKED_AT)
    busy_us, peer_us, buffer_us = _TIMES.unpack_from(told.raw, _TIMES_AT)
    has_sent = size.value >= _SENT_AT + _SENT.size
    return _Counters(
        acked_bytes=acked,
        received_bytes=received,
        busy_ns=1000 * busy_us,
        peer_limited_ns=1000 * peer_us,
        buffer_limited_ns=1000 * buffer_us,
        resent_bytes=_SENT.unpack_from(told.raw, _SENT_AT)[1] if has_sent else 0,
        round_trip_ns=1000 * _ROUND_TRIP.unpack_from(told.raw, _ROUND_TRIP_AT)[0],
    )


def _end(ask: Any, number: int) -> bytes:
    """One end of a connection as address and port, the same for IPv4 in IPv6; b"" where it is neither."""
    told, size = ctypes.create_string_buffer(128), ctypes.c_uint32(128)
    if ask(number, told, ctypes.byref(size)):
        return b""
    family = int.from_bytes(told.raw[:2], sys.byteorder)
    if family == socket.AF_INET:
        return bytes(10) + b"\xff\xff" + told.raw[4:8] + told.raw[2:4]
    return told.raw[8:24] + told.raw[2:4] if family == socket.AF_INET6 else b""


def _row(pair: _Pair, before: _Counters | None, now: _Counters) -> dict[str, Any]:
    """One connection as the trace has it: `id` is the same at both ends, which `end` (0 or 1) tells apart."""
    spent = {name: now[place] - (before[place] if before else 0) for place, name in enumerate(now._fields)}
    spent["round_trip_ns"] = now.round_trip_ns
    return {"id": _id(pair), "end": int(pair[0] > pair[1]), **spent}


def _id(pair: _Pair) -> str:
    """What both ends of a connection call it. Ends on one host's loopback are told from those on another's."""
    where = _host() if any(_is_loopback(end) for end in pair) else b""
    return blake2b(b"".join(sorted(pair)) + where, digest_size=_ID_BYTES, person=b"profkit.link").hexdigest()


def _is_loopback(end: bytes) -> bool:
    return end[10:13] == b"\xff\xff\x7f" or end[:16] == bytes(15) + b"\x01"


def _host() -> bytes:
    """What tells this network from those of other hosts and containers."""
    return f"{os.uname().nodename} {_NETWORK.stat().st_ino}".encode()


def _is_one_of_several() -> bool:
    import torch

    distributed = torch.distributed
    is_up = distributed.is_available() and distributed.is_initialized()
    return bool(is_up and distributed.get_world_size() > 1)
