"""Does the step wait for its data? What waits cost, who makes the batches, and what to do about it (docs/method.md)."""

from profkit.analyzers.input.judged import ANALYZER, ONCE, judge
from profkit.analyzers.input.measured import InputWaits, measure

__all__ = ["ANALYZER", "ONCE", "InputWaits", "judge", "measure"]
