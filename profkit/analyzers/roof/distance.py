"""The work of a window: what one operator with one set of shapes took, and how far all is from what the device can do."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final

import msgspec

from profkit.analyzers.base import Scope
from profkit.findings.roof import ABOVE_ROOF
from profkit.model.arrays import I64
from profkit.model.kernel_names import Precision
from profkit.roof.counted import Counted
from profkit.roof.formulas.alignment import Misfit
from profkit.roof.formulas.work import Work
from profkit.roof.roofline import Limit, Peak, Roof
from profkit.timeline.launch_order import Typical

_WORTH: Final = 0.05
"""Share of the model's FLOPs from which on a number format without a peak leaves MFU unknown. Chosen: what runs less is
a few layers kept in another format."""
_HALF: Final = 0.5
"""Share of the time of matrix kernels that must be known for a lower bound of MFU to say anything. Chosen."""


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


class Distance(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The work of a window, and how far it is from what the device can do."""

    scope: Scope
    device: str
    """Its name in the trace; "" where that is not known."""
    peak: Peak | None
    uses: tuple[Use, ...]
    """The longest first."""
    work_ns: int
    """Of all kernels that compute, each by itself; on a CPU the window's compute."""
    operators: Counted
    """The operators that count, and the work of each."""
    known_ns: int
    """Of those whose operator has a formula."""
    busy_ns: int
    """The window's time in which any of them runs."""
    matrix_ns: int
    """Of all kernels that multiply matrices, by their names; on a CPU 0, but where some products have no shapes."""
    matrix_known_ns: int
    step_ns: int | None
    """The mean step, without the profiler where the capture timed that."""
    recorded_step_ns: int | None
    n_later_steps: int = 0
    """How many later steps the shapes are from; 0 where they were recorded with the operators."""
    shapes_carried: float = 1.0
    """Of the operators that take arguments, the share with known shapes where these are from later steps."""
    told: dict[str, int]
    """Tokens and samples of the window's steps, as the script said."""
    launches: dict[str, Typical] = {}
    """The typical launch of each family's kernel."""

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """The families, the longest first."""
        return families(self.uses)

    @cached_property
    def above(self) -> tuple[Use, ...]:
        """Uses faster than their roof, where they have enough time to move a sum: there a formula or a peak is wrong."""
        found = tuple(use for use in self.uses if use.is_above(ABOVE_ROOF.limit("above")))
        is_enough = sum(use.time_ns for use in found) >= ABOVE_ROOF.limit("time") * self.work_ns
        return found if is_enough else ()

    @property
    def above_ns(self) -> int:
        """Their time."""
        return sum(use.time_ns for use in self.above)

    @cached_property
    def judged_share(self) -> float:
        """Share of compute time whose operators have a roof, 0-1."""
        judged = sum(use.time_ns for use in self.uses if use.roof is not None)
        return min(judged / self.work_ns, 1.0) if self.work_ns else 0.0

    @property
    def known_share(self) -> float:
        """Share of compute time whose FLOPs and bytes are known, 0-1."""
        return min(self.known_ns / self.work_ns, 1.0) if self.work_ns else 0.0

    @property
    def matrix_known_share(self) -> float | None:
        """The same of kernels that multiply matrices; None without any, and on a CPU."""
        return self.matrix_known_ns / self.matrix_ns if self.matrix_ns else None

    def flops(self, *, is_recomputed: bool = False) -> int:
        """FLOPs of products of matrices: those of the model, or those that were run again."""
        return self._flops[is_recomputed]

    @cached_property
    def _flops(self) -> tuple[int, int]:
        """The model's, and those run again."""
        both = [0, 0]
        for use in self.uses:
            if use.work.is_matrix:
                both[use.is_recomputed] += use.flops or 0
        return both[0], both[1]

    @cached_property
    def masked_flops(self) -> int:
        """What a causal mask hides of the model's FLOPs."""
        model = (use for use in self.uses if use.work.is_matrix and not use.is_recomputed)
        return sum(((use.work.flops or 0) - (use.work.least_flops or 0)) * use.n_calls for use in model)

    @cached_property
    def precision(self) -> Precision | None:
        """The number format of most of the model's FLOPs; None where one with a share worth naming has no peak."""
        by_format: dict[Precision, int] = {}
        for use in self.uses:
            if use.work.is_matrix and not use.is_recomputed:
                by_format[use.precision] = by_format.get(use.precision, 0) + (use.flops or 0)
        total = sum(by_format.values())
        used = [precision for precision, flops in by_format.items() if flops and flops >= _WORTH * total]
        if self.peak is None or not used or not all(precision in self.peak.flop_per_s for precision in used):
            return None
        return max(used, key=lambda precision: by_format[precision])

    @property
    def peak_flop_per_s(self) -> float | None:
        """What MFU is of."""
        return None if self.peak is None or self.precision is None else self.peak.flop_per_s[self.precision]

    def utilization(self, flops: int) -> float | None:
        """FLOPs of the window over what the device could do in its steps; None where that is not known, or is wrong.

        A step that takes less without the profiler is that much faster.
        """
        peak, known = self.peak_flop_per_s, self.matrix_known_share
        if self.above or peak is None or not self.scope.window_ns or not flops or (known is not None and known < _HALF):
            return None
        slower = self.recorded_step_ns / self.step_ns if self.recorded_step_ns and self.step_ns else 1.0
        return flops / (self.scope.window_ns * 1e-9 * peak) * slower

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilization: of the products of matrices, without those run again."""
        return self.utilization(self.flops())

    @property
    def hfu(self) -> float | None:
        """Hardware FLOPs utilization: with those run again; None where nothing was."""
        again = self.flops(is_recomputed=True)
        return self.utilization(self.flops() + again) if again else None

    @cached_property
    def left_ns(self) -> int:
        """What the roof leaves of the window at most; kernels that share time share it. 0 for work above its roof."""
        left = sum(max(use.time_ns - use.roof_ns, 0.0) for use in self.uses if use.roof_ns is not None)
        return min(round(left * self.overlap), self.busy_ns)

    @property
    def overlap(self) -> float:
        """Time in which kernels run over the sum of their times: 1 where they run one after another."""
        return min(self.busy_ns / self.work_ns, 1.0) if self.work_ns else 1.0
