"""`Intervals`: a set of times, with the algebra of sets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model import arrays
from profkit.model.arrays import I64

if TYPE_CHECKING:
    from profkit.model.trace import CpuOps, GpuWork, Spans


class Intervals(msgspec.Struct, frozen=True):
    """Times as sorted, disjoint, non-touching, half-open intervals `[start_ns, end_ns)`; int64, read-only.

    Build with `Intervals.of` (any intervals) or the operators; the constructor trusts its arguments.
    """

    start_ns: I64
    end_ns: I64

    def __post_init__(self) -> None:
        self.start_ns.flags.writeable = False
        self.end_ns.flags.writeable = False

    @classmethod
    def of(cls, start_ns: I64, end_ns: I64) -> Intervals:
        """The union of any intervals, in any order."""
        return cls(*arrays.union(np.asarray(start_ns, np.int64), np.asarray(end_ns, np.int64)))

    @classmethod
    def of_rows(cls, table: GpuWork | CpuOps | Spans, rows: NDArray[Any]) -> Intervals:
        """The union of some rows (positions or a mask) of a table."""
        return cls.of(table.start_ns[rows], table.end_ns[rows])

    @classmethod
    def pairs(cls, pairs: Iterable[tuple[int, int]]) -> Intervals:
        """The union of `(start_ns, end_ns)` pairs."""
        table = np.array(list(pairs), np.int64).reshape(-1, 2)
        return cls.of(table[:, 0].copy(), table[:, 1].copy())

    @classmethod
    def empty(cls) -> Intervals:
        """The empty set."""
        return cls(*arrays.empty())

    @property
    def sets(self) -> tuple[I64, I64]:
        """The pair of arrays that `model.arrays` works on."""
        return self.start_ns, self.end_ns

    @property
    def total_ns(self) -> int:
        """The measure of the set, in ns."""
        return arrays.measure(self.start_ns, self.end_ns)

    @property
    def lengths_ns(self) -> I64:
        """The length of each interval, in ns."""
        return self.end_ns - self.start_ns

    def clip(self, low_ns: int, high_ns: int) -> Intervals:
        """The part inside `[low_ns, high_ns)`."""
        return Intervals(*arrays.clip(self.start_ns, self.end_ns, low_ns, high_ns))

    def gaps(self, low_ns: int, high_ns: int) -> Intervals:
        """The part of `[low_ns, high_ns)` outside the set."""
        return Intervals(*arrays.complement(self.sets, low_ns, high_ns))

    def covered_ns(self, start_ns: I64, end_ns: I64) -> I64:
        """For each interval given: how many ns of it the set covers."""
        return arrays.covered_ns(self.sets, start_ns, end_ns)

    def contains(self, at_ns: I64) -> arrays.Bool:
        """Tell, for each time, whether the set holds it."""
        return arrays.contains(self.sets, at_ns)

    def __and__(self, other: Intervals) -> Intervals:
        return Intervals(*arrays.intersect(self.sets, other.sets))

    def __or__(self, other: Intervals) -> Intervals:
        if not self or not other:
            return self or other
        return Intervals(*arrays.either(self.sets, other.sets))

    def __sub__(self, other: Intervals) -> Intervals:
        return Intervals(*arrays.subtract(self.sets, other.sets))

    def __len__(self) -> int:
        return int(self.start_ns.size)

    def __bool__(self) -> bool:
        return self.start_ns.size > 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Intervals):
            return NotImplemented
        return np.array_equal(self.start_ns, other.start_ns) and np.array_equal(self.end_ns, other.end_ns)

    def __hash__(self) -> int:
        return hash((self.start_ns.tobytes(), self.end_ns.tobytes()))


def from_where_alone(start_ns: I64, end_ns: I64) -> I64:
    """From where on each interval is in none that began before it; its end where there is no such place.

    What is left of them is disjoint and has the union's length, each part with the one that has it first.
    """
    order = np.lexsort((end_ns, start_ns))
    reach = np.maximum.accumulate(end_ns[order])
    out = start_ns.copy()
    out[order[1:]] = np.maximum(start_ns[order[1:]], reach[:-1])
    return np.minimum(out, end_ns)
