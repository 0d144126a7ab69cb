"""`kernel.unaligned`: products of matrices whose rows are no multiples of what matrix units load."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from profkit.analyzers.base import Vendor
from profkit.analyzers.roof.distance import Distance
from profkit.analyzers.roof.uses import Use
from profkit.findings.roof import BELOW_ROOF, UNALIGNED
from profkit.model.finding import Evidence, Finding
from profkit.units import format_fraction, format_ns

_WIDE: Final = re.compile(r"align(?:8|16)(?!\d)")
"""What kernels are called that load whole rows of 16 bytes; of tf32 it is `align4`, which narrow loads of bf16 are as well."""
_MOST: Final = 3


def unaligned(result: Distance) -> Iterator[Finding]:
    """The finding where aligned sizes could save enough."""
    if result.scope.vendor is not Vendor.NVIDIA or result.peak is None:
        return
    reference = _reference(result)
    gains = spared(result)
    saved = min(round(sum(ns for _, ns in gains) * result.overlap), result.busy_ns)
    fraction = result.scope.fraction(saved)
    if fraction < UNALIGNED.limit("window"):
        return
    worst = [use for use, ns in sorted(gains, key=lambda gain: -gain[1]) if ns > 0]
    time_ns = sum(use.time_ns for use in worst)
    roof_ns = sum(use.roof_ns or 0.0 for use in worst)
    share = min(time_ns / result.work_ns, 1.0) if result.work_ns else 0.0
    scope = result.scope
    yield UNALIGNED.found(
        confidence=0.5,
        recoverable_ns=scope.per_step(saved),
        fraction=fraction,
        evidence=(
            Evidence.share(
                "roof.unaligned_share",
                share,
                f"products with rows that are no multiple of 16 bytes take {format_ns(scope.per_step(time_ns))}"
                f" {scope.each} ({format_fraction(share)} of compute time): {_sizes(worst)}",
                expected="0 %",
            ),
            Evidence.share(
                "roof.unaligned_roof_share",
                min(roof_ns / time_ns, 1.0),
                f"they reach {format_fraction(roof_ns / time_ns)} of their roof; at {format_fraction(reference)} they"
                f" would take {format_ns(scope.per_step(saved))} {scope.each} less",
                expected=f"> {format_fraction(reference)}",
            ),
        ),
        fix=_fix(worst),
    )


def spared(result: Distance) -> tuple[tuple[Use, float], ...]:
    """Such products, with what each would take less at the share of its roof that aligned ones reach, in ns."""
    found = [use for use in result.uses if is_unaligned(use)]
    reference = _reference(result) if found else 1.0
    return tuple((use, _gain_ns(use, reference)) for use in found)


def is_unaligned(use: Use) -> bool:
    """Whether a product has such rows, and no kernel that does without."""
    return bool(use.misfits) and use.roof is not None and _WIDE.search(use.kernel) is None


def _reference(result: Distance) -> float:
    """The share of their roof (0-1) that the aligned products of the trace reach; where that is less, what good kernels do."""
    aligned = [
        use for use in result.uses if use.work.family == "matmul" and use.roof_ns is not None and not use.misfits
    ]
    time_ns = sum(use.time_ns for use in aligned)
    reached = sum(use.roof_ns or 0.0 for use in aligned) / time_ns if time_ns else 0.0
    return min(max(reached, BELOW_ROOF.limit("share")), 1.0)


def _gain_ns(use: Use, reference: float) -> float:
    return max(use.time_ns - (use.roof_ns or 0.0) / reference, 0.0)


def _sizes(uses: Sequence[Use]) -> str:
    """The first products with their sizes."""
    shown = [f"{use.operator} of {use.shapes}" for use in uses]
    first = list(dict.fromkeys(shown))
    return "; ".join(first[:_MOST]) + (f"; and {len(first) - _MOST} more" if len(first) > _MOST else "")


def _fix(uses: Sequence[Use]) -> str:
    pads = dict.fromkeys((misfit.size, misfit.fits) for use in uses for misfit in use.misfits)
    named = ", ".join(f"{size:,} to {fits:,} or {-(-size // 64) * 64:,}" for size, fits in list(pads)[:_MOST])
    return f"pad these sizes in the model: {named} (the second is the next multiple of 64)"
