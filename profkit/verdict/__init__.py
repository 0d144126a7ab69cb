"""Findings to one answer, for one rank and for many.

In: a `Case`, all that the verdict looks at. Out: a `Verdict`. Begin with `decide.decide`; `compete` ranks the causes by
what their kinds say of each other. Logic: docs/method.md, section 4.
"""

from profkit.verdict.case import MOSTLY_WORK, Case
from profkit.verdict.compete import said_once
from profkit.verdict.decide import decide
from profkit.verdict.on_cpu import bounded
from profkit.verdict.shown import CHEAPER_WORK, FASTER_PRODUCTS, LEAVE_IT, capped, of_mean_step, ruled_out
from profkit.verdict.unprofiled import in_unprofiled_time

__all__ = [
    "CHEAPER_WORK",
    "FASTER_PRODUCTS",
    "LEAVE_IT",
    "MOSTLY_WORK",
    "Case",
    "bounded",
    "capped",
    "decide",
    "in_unprofiled_time",
    "of_mean_step",
    "ruled_out",
    "said_once",
]
