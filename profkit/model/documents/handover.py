"""The hand-over from one tool to the next, as plain values: what the second tool says of the first one's verdict.

"First" is the tool whose trace the report was made from, "second" what was given beside it. Times are ns per step.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from profkit.model.documents.rank_report import RankReport
from profkit.model.finding import Evidence, NextTool


class HandoverStatus(StrEnum):
    """What comes of the second tool."""

    CONFIRMED = "confirmed"
    """The second tool sees the same bottleneck."""
    OVERTURNED = "overturned"
    """The second tool contradicts the first, with evidence, and disturbs the job no more."""
    ANSWERED = "answered"
    """The first could not tell; the second can."""
    OPEN = "open"
    """Not settled; `next_tool` is the capture that would."""
    REFUSED = "refused"
    """Not the same workload, or nothing to pair: not merged."""


class MatchedSide(msgspec.Struct, frozen=True, kw_only=True):
    """One tool's kernel launches in the paired steps, and the share of them with a partner in the other tool, 0-1."""

    n_steps: int
    step_ns: int
    """Mean of all its steps, not of the paired ones alone."""
    unprofiled_step_ns: int | None
    n_launches: int
    n_matched: int
    kernel_ns: int
    matched_ns: int

    @property
    def launch_fraction(self) -> float:
        """Share of launches with a partner."""
        return self.n_matched / self.n_launches if self.n_launches else 0.0

    @property
    def time_fraction(self) -> float:
        """Share of kernel time with a partner."""
        return self.matched_ns / self.kernel_ns if self.kernel_ns else 0.0


class FunctionMatch(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel function in both tools, per paired step.

    `ratio` is the median of second / first over matched launches, None without any.
    """

    function: str
    family: str
    first_count: float
    second_count: float
    first_ns: int
    second_ns: int
    n_matched: int
    ratio: float | None


class PartAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the budget in both tools, as shares of the step (0-1).

    `allowed` is the difference that step-to-step scatter allows, None where a tool has one step; `agrees` is None where
    that leaves it open.
    """

    part: str
    first: float
    second: float
    allowed: float | None
    agrees: bool | None

    @property
    def difference(self) -> float:
        """Second minus first."""
        return self.second - self.first


class TimelineHandover(msgspec.Struct, frozen=True, kw_only=True):
    """A trace and another tool's timeline of the same rank, matched and compared."""

    rank: int | None
    source: str
    first_tool: str
    second_tool: str
    first_bottleneck: str
    second_bottleneck: str
    """The verdicts that each tool gives alone."""
    status: HandoverStatus
    sentence: str
    evidence: tuple[Evidence, ...]
    paired_by: str
    """How steps were paired: number or order; "" where they were not."""
    n_pairs: int
    first: MatchedSide | None
    second: MatchedSide | None
    has_shapes: bool
    """Whether grid and block were part of the identity."""
    functions: tuple[FunctionMatch, ...]
    parts: tuple[PartAgreement, ...]
    confidence_before: float
    confidence_after: float
    confidence_why: str
    explained: tuple[Evidence, ...]
    """What the second tool shows that the first could not."""
    next_tool: NextTool | None
    other_rank: RankReport | None
    """The rank by the tool that the report does not speak from: the second's; where it was overturned, the first's."""


class ProfiledKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel of the trace that ncu profiled in the same shape."""

    function: str
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    kernel_class: str
    count: float
    kernel_ns: int
    mean_ns: int
    """Of one launch in the trace."""
    ncu_ns: float | None
    """Of the launch that ncu measured."""
    roof_percent: float | None
    """Percent of peak of the busier of compute and memory."""
    recoverable_ns: int | None
    """Per step, at most: its time less what it would take at the peak of its busier roof."""
    n_profiles: int


class KernelHandover(msgspec.Struct, frozen=True, kw_only=True):
    """A trace and ncu's profiles of its kernels. Times are ns per step."""

    rank: int | None
    sources: tuple[str, ...]
    status: HandoverStatus
    sentence: str
    evidence: tuple[Evidence, ...]
    step_ns: int
    kernel_ns: int
    """Of all compute kernels; what runs side by side counts twice."""
    busy_ns: int
    """How long any of them runs within the step, at most `kernel_ns`."""
    covered_ns: int
    by_class: tuple[tuple[str, int], ...]
    kernels: tuple[ProfiledKernel, ...]
    unmatched: tuple[str, ...]
    """Profiled functions that the trace does not launch in that shape."""
    next_tool: NextTool | None

    def share(self, kernel_ns: int) -> float:
        """Kernels' time as a share of the step (0-1): their part of the time in which any kernel runs."""
        whole = self.kernel_ns * self.step_ns
        return kernel_ns * self.busy_ns / whole if whole else 0.0


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was given beside the trace, and what comes of it; `status` is that of the verdict's rank."""

    status: HandoverStatus
    sentence: str
    timelines: tuple[TimelineHandover, ...] = ()
    kernels: KernelHandover | None = None
    unpaired: tuple[str, ...] = ()
