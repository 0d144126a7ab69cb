"""What one operator with one set of shapes took, and what its roof leaves."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from profkit.model.arrays import I64
from profkit.model.kernel_names import Precision
from profkit.roof.formulas.alignment import Misfit
from profkit.roof.formulas.work import Work
from profkit.roof.roofline import Limit, Roof


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one operator with the same shapes, in one number format, over the window."""

    operator: str
    shapes: str
    """Of its first tensors."""
    work: Work
    """Of one call."""
    precision: Precision
    """In which it is multiplied: tf32 where the kernels' names say so."""
    n_calls: int
    time_ns: int
    """Of the device's kernels, each counted by itself; on a CPU of the operators."""
    is_recomputed: bool
    kernel: str
    """The kernel with most of this time; "" on a CPU."""
    roof: Roof | None
    misfits: tuple[Misfit, ...] = ()
    """Of a product in a format of the matrix units: the sides that leave rows in memory unaligned."""
    rows: I64 | None = None
    """The operators, rows of `Trace.ops`, shape (n_calls,); None where that is not known."""
    row_ns: I64 | None = None
    """The time of each."""

    @property
    def flops(self) -> int | None:
        """Of all calls, with what a causal mask hides: those that MFU counts."""
        return None if self.work.flops is None else self.work.flops * self.n_calls

    @property
    def least_flops(self) -> int | None:
        """The same without what a mask hides: those of achieved rates, which the roof allows."""
        return None if self.work.least_flops is None else self.work.least_flops * self.n_calls

    @property
    def n_bytes(self) -> int | None:
        """Of all calls."""
        return None if self.work.n_bytes is None else self.work.n_bytes * self.n_calls

    @property
    def roof_ns(self) -> float | None:
        """The least time of all calls; None where no roof is known.

        What is faster than memory allows because its data was in the cache is at its roof; what is faster than it can
        be (`is_above`) is not made slower.
        """
        if self.roof is None:
            return None
        return max(self.roof.sure_ns * self.n_calls, min(self.roof.least_ns * self.n_calls, float(self.time_ns)))

    def is_above(self, share: float) -> bool:
        """Whether it takes less than is possible, by more than this share: a formula or a peak is wrong."""
        return self.roof is not None and self.roof.sure_ns * self.n_calls > (1 + share) * self.time_ns


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """The operators of one family. Times are ns; a rate is of the operators that have one only."""

    name: str
    n_calls: int
    time_ns: int
    judged_ns: int
    """The time of those with a roof."""
    roof_ns: float
    """Their least time."""
    flop_per_s: float | None
    bytes_per_s: float | None
    kernel: str
    """The kernel that has most of the time above the roof."""
    limit: Limit | None
    """What sets most of the least time."""
    precision: Precision
    """The number format with most of the time."""

    @property
    def share(self) -> float | None:
        """Of the roof's speed, 0-1: least time over time; None without any roof."""
        return self.roof_ns / self.judged_ns if self.judged_ns else None

    @property
    def left_ns(self) -> float:
        """What the roof leaves."""
        return max(self.judged_ns - self.roof_ns, 0.0)


def families(uses: Iterable[Use]) -> tuple[Family, ...]:
    """The families of these uses, the longest first."""
    by_name: dict[str, list[Use]] = {}
    for use in uses:
        by_name.setdefault(use.work.family, []).append(use)
    made = (_family(name, mine) for name, mine in by_name.items())
    return tuple(sorted(made, key=lambda family: -family.time_ns))


def formats(uses: Iterable[Use]) -> tuple[Precision, ...]:
    """The number formats of uses, the one with most time first."""
    time: dict[Precision, int] = {}
    for use in uses:
        time[use.precision] = time.get(use.precision, 0) + use.time_ns
    return tuple(sorted(time, key=lambda precision: -time[precision]))


def _family(name: str, uses: list[Use]) -> Family:
    judged = [use for use in uses if use.roof_ns is not None]
    left: dict[str, float] = {}
    limits: dict[Limit, float] = {}
    for use in judged:
        left[use.kernel] = left.get(use.kernel, 0.0) + use.time_ns - (use.roof_ns or 0)
        if use.roof is not None:
            limits[use.roof.limit] = limits.get(use.roof.limit, 0.0) + (use.roof_ns or 0)
    return Family(
        name=name,
        n_calls=sum(use.n_calls for use in uses),
        time_ns=sum(use.time_ns for use in uses),
        judged_ns=sum(use.time_ns for use in judged),
        roof_ns=sum(use.roof_ns or 0.0 for use in judged),
        flop_per_s=_rate([(use.least_flops, use.time_ns) for use in uses]),
        bytes_per_s=_rate([(use.n_bytes, use.time_ns) for use in uses]),
        kernel=max(left, key=lambda kernel: left[kernel], default=""),
        limit=max(limits, key=lambda limit: limits[limit], default=None),
        precision=formats(uses)[0],
    )


def _rate(amounts: list[tuple[int | None, int]]) -> float | None:
    """Per second, of those whose amount is known."""
    known = [(amount, time) for amount, time in amounts if amount is not None]
    time_ns = sum(time for _, time in known)
    return sum(amount for amount, _ in known) * 1e9 / time_ns if time_ns else None
