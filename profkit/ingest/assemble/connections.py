"""What a capture read of a process's connections, checked: a file can say anything."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from profkit.ingest.numbers import LONGEST_PLAUSIBLE_NS, MOST_BYTES, whole
from profkit.model.trace import Connection

_ID: Final = re.compile(r"[0-9a-f]{12}")
_MOST: Final = 64
"""What a capture keeps at most."""
_TIMES: Final = ("busy_ns", "peer_limited_ns", "buffer_limited_ns")


def connections_of(told: object) -> tuple[Connection, ...]:
    """The connections that metadata lists. Left out are those that cannot be, and those of a process with itself."""
    rows = told[:_MOST] if isinstance(told, list) else []
    found = [one for one in map(_connection, rows) if one is not None]
    ends = Counter(one.id for one in found)
    return tuple(one for one in found if ends[one.id] == 1)


def _connection(row: object) -> Connection | None:
    if not isinstance(row, Mapping):
        return None
    name, end = row.get("id"), whole(row.get("end"), 0, 1)
    known = _numbers(row)
    if not isinstance(name, str) or not _ID.fullmatch(name) or end is None or known is None:
        return None
    return Connection(
        id=name,
        end=end,
        acked_bytes=known["acked_bytes"],
        busy_ns=max(known["busy_ns"] - known["peer_limited_ns"] - known["buffer_limited_ns"], 0),
        resent_bytes=known["resent_bytes"],
    )


def _numbers(row: Mapping[str, Any]) -> dict[str, int] | None:
    """The numbers of a connection; None where one is missing or cannot be."""
    known = {name: whole(row.get(name), 0, LONGEST_PLAUSIBLE_NS) for name in _TIMES}
    known |= {name: whole(row.get(name), 0, MOST_BYTES) for name in ("acked_bytes", "resent_bytes")}
    sure = {name: number for name, number in known.items() if number is not None}
    return sure if len(sure) == len(known) else None
