"""What a collective is, by its name; how much it moves, and how bus bandwidth counts that."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64
from profkit.timeline import collectives


class CollectiveKind(IntEnum):
    """What it does; `SEND_RECV`: NCCL's kernel for all-to-all, point to point or several at once, arguments unknown."""

    OTHER = 0
    ALL_REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    ALL_TO_ALL = 4
    BARRIER = 5
    BROADCAST = 6
    REDUCE = 7
    GATHER = 8
    SCATTER = 9
    SEND_RECV = 10
    SEND = 11
    RECV = 12


SYNCHRONISING: Final = frozenset(
    {
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.ALL_GATHER,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.ALL_TO_ALL,
        CollectiveKind.BARRIER,
    }
)
"""Kinds no rank can leave before every rank has come: their ends tell clocks, their starts waiting
(docs/sources.md, rules 16 and 17)."""

POINT_TO_POINT: Final = frozenset({CollectiveKind.SEND, CollectiveKind.RECV})

# In this order, on names in lower case without underscores: "reducescatter" and "allreduce" both hold "reduce".
_KINDS: Final = (
    ("reducescatter", CollectiveKind.REDUCE_SCATTER),
    ("allgather", CollectiveKind.ALL_GATHER),
    ("allreduce", CollectiveKind.ALL_REDUCE),
    ("crossdevicereduce", CollectiveKind.ALL_REDUCE),
    ("alltoall", CollectiveKind.ALL_TO_ALL),
    ("barrier", CollectiveKind.BARRIER),
    ("broadcast", CollectiveKind.BROADCAST),
    ("sendrecv", CollectiveKind.SEND_RECV),
    ("send", CollectiveKind.SEND),
    ("recv", CollectiveKind.RECV),
    ("scatter", CollectiveKind.SCATTER),
    ("gather", CollectiveKind.GATHER),
    ("reduce", CollectiveKind.REDUCE),
    # Several in one kernel, or one that has no kernel of its own: what it is only its ends tell.
    ("nccldevkernelgeneric", CollectiveKind.SEND_RECV),
    ("coalesced", CollectiveKind.SEND_RECV),
)

UNKNOWN: Final = collectives.UNKNOWN
"""Elements or bytes the trace does not tell."""


def collective_kind_of(name: str) -> CollectiveKind:
    """What a collective is, from c10d's name, NCCL's kernel or gloo's range."""
    plain = name.lower().replace("_", "")
    return next((kind for word, kind in _KINDS if word in plain), CollectiveKind.OTHER)


def is_synchronising(kind: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Tell, for each kind, whether no rank leaves before all have come."""
    return np.isin(kind, tuple(SYNCHRONISING))


def message_bytes(*, kind: NDArray[np.integer], in_elements: I64, out_elements: I64, element_bytes: I64) -> I64:
    """The size S that nccl-tests counts: what comes out of an all-gather, what goes into anything else; bytes.

    `UNKNOWN` where elements or type are. Source: nccl-tests, doc/PERFORMANCE.md.
    """
    elements = np.where(kind == CollectiveKind.ALL_GATHER, out_elements, in_elements)
    known = (elements >= 0) & (element_bytes > 0)
    return np.where(known, elements * element_bytes, UNKNOWN)


def bus_factor(kind: NDArray[np.integer], group_size: int) -> NDArray[np.float64]:
    """For each kind: what turns S/t into bus bandwidth in a group of this many ranks; NaN where undefined.

    All-reduce 2(n-1)/n; all-gather, reduce-scatter and all-to-all (n-1)/n; broadcast, reduce and point to point 1.
    Source: nccl-tests, doc/PERFORMANCE.md.
    """
    factors = np.full(max(CollectiveKind) + 1, np.nan)
    if group_size > 1:
        share = (group_size - 1) / group_size
        factors[CollectiveKind.ALL_REDUCE] = 2 * share
        factors[[CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL]] = share
        factors[[CollectiveKind.BROADCAST, CollectiveKind.REDUCE, CollectiveKind.SEND, CollectiveKind.RECV]] = 1.0
    out: NDArray[np.float64] = factors[kind]
    return out
