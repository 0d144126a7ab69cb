"""Do windows without steps hold the same work? Then their length may be judged; else it is shown and proves nothing.

A recording that is cut by the clock is as long as ever, however fast the job is. A fixed piece of work, recorded whole,
runs the same operations; compiled or fused it runs fewer of them, but as many products of matrices.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from profkit.compare.captures.measured import Measured
from profkit.compare.captures.pair import Pair, moved
from profkit.findings.comparison import WORK_CHANGED
from profkit.units import format_count

_PRODUCTS: Final = frozenset({"matmul", "attention", "convolution"})
"""Families that no compiler fuses away."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What the windows of both sides hold, per window."""

    operations: tuple[float, float]
    products: tuple[float, float]
    """Kernels or operators that multiply matrices: matmul, attention, convolution."""
    stepped: str = ""
    """The side that alone has steps, "" where none has."""

    @property
    def is_same(self) -> bool:
        """Whether both hold as many operations."""
        return _is_same(self.operations)

    @property
    def is_fused(self) -> bool:
        """Whether they hold other operations, but as many products."""
        return not self.is_same and min(self.products) >= 1 and _is_same(self.products)

    @property
    def caveat(self) -> str:
        """What this does to the comparison, "" where no steps were found and the windows hold the same operations."""
        found = f"steps were found in {self.stepped} only" if self.stepped else "no steps were found"
        if self.is_same:
            return (
                f"{found}, so the recorded windows are compared; they hold as many operations" if self.stepped else ""
            )
        held = f"they hold {_moved(self.operations, 'operations')}, {_moved(self.products, 'products of matrices')}"
        so = "the same work in other kernels" if self.is_fused else "whether that is the same work is not recorded"
        return f"{found}, so the recorded windows are compared: {held}: {so}"


def held(pair: Pair, *, stepped: str = "") -> Held:
    """What the windows hold; `stepped` is the side that alone has steps."""
    operations = pair.rates(lambda trace: trace.counts.operators)
    return Held(operations=operations, products=pair.rates(_n_products), stepped=stepped)


def _is_same(counts: tuple[float, float]) -> bool:
    return min(counts) >= (1 - WORK_CHANGED.limit("window")) * max(counts)


def _moved(counts: tuple[float, float], of: str) -> str:
    before, after = (format_count(round(count, 1)) for count in counts)
    return moved(before, after, of=of)


def _n_products(trace: Measured) -> int:
    codes = [code for code, work in enumerate(trace.compute.works) if work.family in _PRODUCTS]
    return int(np.isin(trace.compute.work, codes).sum())
