"""The allocator's events, device by device: how long each allocation lives, so what is held at any moment."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, distinct, distinct_codes, next_equal
from profkit.model.trace import I32, Trace

HOST: Final = 0
"""`MemoryEvents.device_type` of the host's memory."""
_MOST: Final = 64
"""Pools that are looked at. Chosen: a process has 16 devices at most, a damaged file may name any number."""


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """The allocator's events of one device in order of time, shape (n,) each; a position is an index into them."""

    is_host: bool
    device: int
    """The device's number; of no meaning for the host."""
    start_ns: I64
    thread: I32
    n_bytes: I64
    """Negative for a free."""
    allocated_bytes: I64
    """In all, after the event."""
    reserved_bytes: I64 | None
    """The same of what the allocator has from the driver; None where it has a meaning on no device of this kind."""
    ended: I64 | None
    """Per allocation the position of the event that ends it, n for none; 0 for a free. None where no addresses are."""

    def held(self, position: int) -> NDArray[np.intp]:
        """The positions of the allocations of the recording that live right after the event at `position`."""
        if self.ended is None:
            return np.empty(0, np.intp)
        live = (self.n_bytes[: position + 1] > 0) & (self.ended[: position + 1] > position)
        return np.flatnonzero(live)


def pools(trace: Trace) -> tuple[Pool, ...]:
    """The devices of which every event says the total: accelerators by number, then the host."""
    memory = trace.memory
    if len(memory) == 0:
        return ()
    kinds = [
        (kind, device)
        for kind in distinct(memory.device_type).tolist()
        for device in distinct(memory.device[memory.device_type == kind])[:_MOST].tolist()
    ]
    found = []
    for kind, device in sorted(kinds, key=lambda pair: (pair[0] == HOST, pair))[:_MOST]:
        rows = np.flatnonzero((memory.device_type == kind) & (memory.device == device))
        if kind < HOST or bool((memory.allocated_bytes[rows] < 0).any()):
            continue  # torch before 1.10 writes no totals
        if len({trace.threads[code].pid for code in distinct_codes(memory.thread[rows]).tolist()}) > 1:
            continue  # a file of several processes: each has totals of its own
        reserved = memory.reserved_bytes[rows]
        has_reserved = kind != HOST and bool((reserved >= memory.allocated_bytes[rows]).all())
        found.append(
            Pool(
                is_host=kind == HOST,
                device=device,
                start_ns=memory.start_ns[rows],
                thread=memory.thread[rows],
                n_bytes=memory.n_bytes[rows],
                allocated_bytes=memory.allocated_bytes[rows],
                reserved_bytes=reserved if has_reserved else None,
                ended=_ended(memory.address[rows], memory.n_bytes[rows]),
            )
        )
    return tuple(found)


def _ended(address: I64, n_bytes: I64) -> I64 | None:
    """Per allocation the position of the next event at its address (a free, if none is lost), n for none."""
    if bool((address < 0).any()):
        return None
    following = next_equal(address)
    following[n_bytes <= 0] = 0
    return following
