"""Is the host too slow for the device? Launches, their lag, and the idle time they leave (docs/method.md)."""

from profkit.analyzers.launches.judged import ANALYZER, judge
from profkit.analyzers.launches.measured import Launches, measure

__all__ = ["ANALYZER", "Launches", "judge", "measure"]
