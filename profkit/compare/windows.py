"""Do windows without steps hold the same work? Then their length may be judged; else it is shown and proves nothing.

A recording that is cut by the clock is as long as ever, however fast the job is. A fixed piece of work, recorded whole,
runs the same operations; compiled or fused it runs fewer of them, but as many products of matrices; and whatever runs
for it, it takes the same input.
"""

from __future__ import annotations

import msgspec

from profkit.compare.captures.pair import Pair, counts_moved, is_within
from profkit.findings.comparison import WORK_CHANGED
from profkit.units import format_bytes


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What the windows of both sides hold, per window."""

    operations: tuple[float, float]
    products: tuple[float, float]
    """Kernels or operators that multiply matrices: matmul, attention, convolution."""
    copied: tuple[float, float] = (0.0, 0.0)
    """Bytes copied to the device."""
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
    def is_same_input(self) -> bool:
        """Whether both copied as many bytes to the device, and more than a few scalars."""
        return min(self.copied) >= WORK_CHANGED.limit("input") and _is_same(self.copied)

    @property
    def is_equal(self) -> bool:
        """Whether both hold the same work, by one of these."""
        return self.is_same or self.is_fused or self.is_same_input

    @property
    def caveat(self) -> str:
        """What this does to the comparison, "" where no steps were found and the windows hold the same operations."""
        found = f"steps were found in {self.stepped} only" if self.stepped else "no steps were found"
        if self.is_same:
            return (
                f"{found}, so the recorded windows are compared; they hold as many operations" if self.stepped else ""
            )
        products = counts_moved(self.products, "products of matrices")
        held = f"they hold {counts_moved(self.operations, 'operations')}, {products}"
        so = "the same work in other kernels" if self.is_fused else "whether that is the same work is not recorded"
        if self.is_same_input and not self.is_fused:
            so = f"the same work in other kernels, since both copied {format_bytes(self.copied[1])} to the device"
        return f"{found}, so the recorded windows are compared: {held}: {so}"


def held(pair: Pair, *, stepped: str = "") -> Held:
    """What the windows hold; `stepped` is the side that alone has steps."""
    operations = pair.rates(lambda trace: trace.counts.operators)
    copied = pair.rates(lambda trace: trace.counts.copied_bytes)
    products = pair.rates(lambda trace: trace.compute.n_products)
    return Held(operations=operations, products=products, copied=copied, stepped=stepped)


def _is_same(counts: tuple[float, float]) -> bool:
    return is_within(WORK_CHANGED.limit("window"), counts)
