"""What `profkit compare` says of two sides of Nsight Compute's profiles: the same kernels, before and after."""

from __future__ import annotations

import math
from enum import StrEnum

import msgspec

from profkit.model.kernel import KernelClass

Size = tuple[int, int, int]


class KernelAnswer(StrEnum):
    """Whether a kernel takes less time after the change."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNCLEAR = "unclear"
    """Its launches disagree."""
    NOT_COMPARABLE = "not-comparable"


class MatchedBy(StrEnum):
    """What two launches have in common that are taken for the same kernel."""

    NAME = "name"
    """Name, grid and block."""
    FUNCTION = "function"
    """Function, grid and block; template arguments differ, or the tool shortened the name."""
    FUNCTION_ALONE = "function-alone"
    """Function; grid or block differs."""
    ALONE = "alone"
    """Nothing, but each side holds one kernel only."""


class MetricChange(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of both sides, the median over launches, in base units; percent stays percent (0-100)."""

    metric: str
    label: str
    unit: str
    before: float
    after: float
    has_moved: bool

    @property
    def change(self) -> float | None:
        """The relative change; None from zero, and from so little that there is none."""
        change = self.after / self.before - 1 if self.before else math.inf
        return change if math.isfinite(change) else None


class KernelSide(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel on one side: times are the median, the least and the longest of its launches, ns."""

    name: str
    grid: Size | None
    block: Size | None
    n_launches: int
    kernel_class: KernelClass
    duration_ns: float | None
    least_ns: float | None
    longest_ns: float | None


class KernelChange(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel on both sides; `change` is of `measure` (`duration` or `cycles`), minus is less."""

    function: str
    matched_by: MatchedBy
    before: KernelSide
    after: KernelSide
    answer: KernelAnswer
    measure: str
    change: float | None
    metrics: tuple[MetricChange, ...]
    caveats: tuple[str, ...]

    @property
    def saved_ns(self) -> float:
        """How much less time one launch takes; 0 where that is not known."""
        if self.before.duration_ns is None or self.after.duration_ns is None:
            return 0.0
        return self.before.duration_ns - self.after.duration_ns


class KernelComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides; kernels by how much their time changed, those on one side only beside them."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    kernels: tuple[KernelChange, ...]
    only_before: tuple[KernelSide, ...]
    only_after: tuple[KernelSide, ...]
    warnings: tuple[str, ...]
