"""A verdict's confidence as the share of such verdicts that are right, where the accuracy benchmark knows it.

The confidence of a finding is a rung of a ladder and only orders findings. That of a verdict is what a reader takes for
a chance: it goes through this curve last. The cap that the quality of the capture sets holds before and after. The
benchmark's programs run on CPUs: of a verdict on a GPU the curve knows nothing, and its confidence stays as made.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

Curve = tuple[tuple[float, float], ...]
"""Points (confidence as made, share right), both rising and 0-1; straight between them, level above the last one, and
below the first one in proportion: nobody has measured how often such verdicts are right."""

CURVE: Final[Curve] = (
    (0.480, 0.818),
    (0.703, 0.970),
)
"""142 verdicts of docs/accuracy.md, as `python -m analyses.accuracy.calibrate` prints them. Empty: as made."""
SOURCE: Final = "docs/accuracy.md"
"""Where the curve comes from, as `profkit explain` says it."""


def stated(confidence: float, cap: float, *, is_cpu: bool) -> float:
    """The confidence of a verdict as reports print it, at most the cap."""
    made = min(confidence, cap)
    return min(calibrated(made), cap) if is_cpu else made


def calibrated(confidence: float, curve: Curve = CURVE) -> float:
    """A confidence (0-1) by the curve; itself where there is none."""
    if not curve:
        return confidence
    if confidence <= curve[0][0]:
        return curve[0][1] * confidence / curve[0][0] if curve[0][0] else curve[0][1]
    for (low, at_low), (high, at_high) in pairwise(curve):
        if confidence <= high:
            return at_low + (confidence - low) / (high - low) * (at_high - at_low)
    return curve[-1][1]
