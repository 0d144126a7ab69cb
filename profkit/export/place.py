"""Where one rank stands in a file of several: the numbers of its processes and arrows, its clock and its window."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

OWN_CATEGORY: Final = "profkit_track"
"""The category of the events that profkit adds; every reader of profkit's passes over them."""
MOST_RANKS: Final = 64
"""Ranks in one file. Chosen: as many as a report has tables of, and more than a viewer shows."""
PER_RANK: Final = 10_000_000
"""Numbers of processes that a rank has for itself: more than Linux gives, and 64 times it fits 32 bits."""
UNNUMBERED: Final = 5_000_000
"""Above this, within a rank's numbers: processes that the trace names by text. Linux ends at 2^22."""
OWN_PID: Final = 9_999_999
"""Profkit's own process, within a rank's numbers."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A rank in a file. One that is alone (`n` 1) keeps its own numbers and times."""

    number: int = 0
    n: int = 1
    rank: int | None = None
    """What its events say of their rank, by which `profkit` tells the ranks of such a file apart again."""
    label: str = ""
    shift_ns: int = 0
    """What is added to its times."""

    @property
    def own_pid(self) -> int:
        """The number of profkit's own process beside this rank's."""
        return (self.number + 1) * PER_RANK + OWN_PID if self.n > 1 else OWN_PID

    @property
    def prefix(self) -> str:
        """What stands before the names of its processes."""
        return f"{self.label}: " if self.n > 1 and self.label else ""

    @property
    def told(self) -> dict[str, int]:
        """What its processes say of their rank, beside others."""
        return {} if self.rank is None or self.n == 1 else {"rank": self.rank}

    def process(self, pid: int, name: str, index: int) -> list[bytes]:
        """The events that name one of its processes and say where it stands, as `order` has it."""
        return [
            described(pid, "process_name", {"name": f"{self.prefix}{name}", **self.told}),
            described(pid, "process_sort_index", {"sort_index": self.order(index), **self.told}),
        ]

    def order(self, index: int) -> int:
        """The place of one of its processes among all: rank by rank, profkit's own (-1) first, then the trace's."""
        if self.n == 1:
            return -1 if index < 0 else index
        return self.number * 1000 + (0 if index < 0 else 1 + min(index >> 22, 900))

    def renumbered(self, number: int) -> int:
        """The number of an arrow, or of what links a launch to its kernel, that no other rank has."""
        return number * self.n + self.number


def described(pid: int, name: str, args: Mapping[str, Any], *, tid: int = 0, category: str = "__metadata") -> bytes:
    """A metadata event: the name or the order of a process or a thread."""
    event = {"ph": "M", "name": name, "cat": category, "pid": pid, "tid": tid, "args": args}
    return json.dumps(event).encode()


def touching(start_ns: NDArray[Any], end_ns: NDArray[Any], window_ns: tuple[int, int] | None) -> NDArray[np.intp]:
    """The rows that touch a window `[low, high)`, ns; all without one."""
    if window_ns is None:
        return np.arange(start_ns.size)
    low, high = window_ns
    return np.flatnonzero((start_ns < high) & ((end_ns > low) | (start_ns >= low)))


def us_text(time_ns: int) -> str:
    """A time as Kineto writes it: microseconds with three decimals, never through a float."""
    whole, rest = divmod(abs(time_ns), 1000)
    return f"{'-' if time_ns < 0 else ''}{whole}.{rest:03d}"
