"""What a page or another viewer draws of one rank: rows of intervals, curves, and which intervals prove what.

All times are ns since `Tracks.origin_unix_ns`, as in the trace. Nothing here is judged; nothing is aggregated but where
`Track.is_reduced` says so.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64
from profkit.model.budget import PARTS

U8 = NDArray[np.uint8]
I32 = NDArray[np.int32]

CATEGORIES: Final = (*PARTS, "comm_hidden", "copy_hidden", "host", "step", "module", "wait")
"""What an interval is, and so its colour: first the parts of the budget by their names in the contract."""


class Role(StrEnum):
    """What a row shows; rows of a page stand in this order."""

    STEPS = "steps"
    BUDGET = "budget"
    """Each nanosecond of the window once, by its part of the budget."""
    HOST = "host"
    """What the host was doing: waiting for data, blocked, dispatching."""
    STREAM = "stream"
    THREAD = "thread"
    """Operators and ranges of a host thread at one depth."""
    COLLECTIVES = "collectives"
    """Of many ranks: each collective, the wait for the last rank apart from the transfer."""


class Track(msgspec.Struct, frozen=True, kw_only=True):
    """One row: disjoint intervals sorted by start; columns of shape (n,)."""

    key: str
    """Unique in its rank: "budget", "stream:0:7", "thread:0:2"."""
    label: str
    group: str
    """What the rows around it share: "GPU 0", "host"; "" for none."""
    role: Role
    start_ns: I64
    end_ns: I64
    name: I32
    """Indices into `Tracks.names`."""
    category: U8
    """Indices into `CATEGORIES`."""
    is_reduced: bool = False
    """Whether short intervals of one category were joined with the gaps between them, for want of room."""

    def __len__(self) -> int:
        return int(self.start_ns.size)


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """A value over time: it holds from its moment to the next; columns of shape (n,)."""

    key: str
    label: str
    unit: str
    """"bytes" or "count"."""
    at_ns: I64
    value: I64


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """The intervals on which a sentence or number stands.

    Given as intervals, the longest `MOST_SPANS` of `n`; or, where `category` is not "", as all intervals of that
    category in the rows `tracks`.
    """

    key: str
    """"finding:sync.blocking", "part:idle_data", "step:3"."""
    label: str
    tracks: tuple[str, ...]
    """Keys of the rows to look at, the first one first."""
    start_ns: I64
    end_ns: I64
    n: int
    total_ns: int
    category: str = ""


MOST_SPANS: Final = 500
"""Chosen: more than anybody steps through."""


class WorkRow(msgspec.Struct, frozen=True, kw_only=True):
    """All launches of one kernel (or runs of one operator) with the same shapes, from the same place."""

    kind: str
    """"kernel", "operator", "copy" or "comm"."""
    name: int
    """Indices into `Tracks.names` from here to `line`; -1 where it is not known."""
    op: int
    shape: int
    module: int
    line: int
    n: int
    total_ns: int
    self_ns: int
    max_ns: int
    flops: float | None = None
    """Of all of them together; None where not known, and `n_bytes` likewise."""
    n_bytes: float | None = None


class Tracks(msgspec.Struct, frozen=True, kw_only=True):
    """One rank, drawn."""

    source: str
    rank: int | None
    origin_unix_ns: int
    window_ns: tuple[int, int]
    names: tuple[str, ...]
    tracks: tuple[Track, ...]
    curves: tuple[Curve, ...] = ()
    proofs: tuple[Proof, ...] = ()
    work: tuple[WorkRow, ...] = ()
    """The most time-consuming first."""
    n_work: int = 0
    """How many such rows there are; `work` holds the first."""
    shift_ns: int = 0
    """What to add to its times to have them on the clock of the job's other ranks."""
    peak_flops: float | None = None
    """The device's peak for the usual type of its matrix products, per second; None where not known."""
    peak_bytes: float | None = None
