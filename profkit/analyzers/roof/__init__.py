"""How far is the work from what its device can do? FLOPs, bytes, MFU, and the time at the roof (docs/roof.md)."""

from profkit.analyzers.roof.distance import Distance
from profkit.analyzers.roof.judged import ANALYZER, judge
from profkit.analyzers.roof.measured import measure
from profkit.analyzers.roof.shown import at_roof, roof_summary

__all__ = ["ANALYZER", "Distance", "at_roof", "judge", "measure", "roof_summary"]
