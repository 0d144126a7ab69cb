"""Findings: what was found, how bad, how sure, on what evidence."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from profkit.model.code import PlaceShare
from profkit.shell import CommandLine


class Severity(StrEnum):
    """How much it costs; separate from how sure we are."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    INFO = "info"

    @property
    def rank(self) -> int:
        """Its place among the severities, 0 for the worst."""
        return list(Severity).index(self)


UNSURE: Final = 0.5
"""Confidence up to which a finding takes no other one's place (chosen: what is in one step only has it)."""
_WHOLE: Final = 1 + 1e-9
"""What a share is at most: all, and what adding up in float64 leaves."""


class Evidence(msgspec.Struct, frozen=True):
    """One number that anyone can recompute, and where it is; of unit "fraction" a share, or the difference of two."""

    statement: str
    metric: str
    value: float
    unit: str
    expected: str | None = None
    span_ns: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.unit == "fraction" and not -_WHOLE <= self.value <= _WHOLE:
            raise ValueError(f"evidence {self.metric} is a share of {self.value}, outside -1 to 1")

    @classmethod
    def time(
        cls,
        metric: str,
        ns: float,
        statement: str,
        *,
        expected: str | None = None,
        span_ns: tuple[int, int] | None = None,
    ) -> Self:
        """A duration, ns."""
        return cls(statement, metric, float(ns), "ns", expected, span_ns)

    @classmethod
    def share(
        cls,
        metric: str,
        share: float,
        statement: str,
        *,
        expected: str | None = None,
        span_ns: tuple[int, int] | None = None,
    ) -> Self:
        """A share (0-1), or the difference of two."""
        return cls(statement, metric, share, "fraction", expected, span_ns)

    @classmethod
    def count(cls, metric: str, n: float, statement: str, *, expected: str | None = None) -> Self:
        """How many there are."""
        return cls(statement, metric, float(n), "count", expected)

    @classmethod
    def factor(cls, metric: str, factor: float, statement: str, *, expected: str | None = None) -> Self:
        """How many times something is another, without a unit."""
        return cls(statement, metric, factor, "", expected)

    @classmethod
    def size(cls, metric: str, n_bytes: float, statement: str, *, expected: str | None = None) -> Self:
        """An amount of memory, bytes."""
        return cls(statement, metric, float(n_bytes), "bytes", expected)


class NextTool(msgspec.Struct, frozen=True, kw_only=True):
    """The cheapest capture that would answer the open question."""

    name: str
    line: CommandLine
    purpose: str
    look_for: str

    @property
    def command(self) -> str:
        """What to paste; it runs as printed."""
        return self.line.text


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A named condition with its evidence.

    `recoverable_ns` is per step, the time of the cause: an upper bound of what its removal gives where
    `most_recoverable_ns` is None. That is set on a CPU, and by an analyzer that estimates what stays: the time of the
    whole part in which the cause lies. `fraction` is the share of the window it was computed from. `confidence` (0-1)
    is ordinal: an evidence ladder capped by the quality of the capture.
    """

    id: str
    title: str
    severity: Severity
    confidence: float
    recoverable_ns: int
    fraction: float
    evidence: tuple[Evidence, ...]
    fix: str
    next_tools: tuple[NextTool, ...] = ()
    rank: int | None = None
    device: int | None = None
    most_recoverable_ns: int | None = None
    proof: str = ""
    """How to prove it, where its kind's proof does not fit what was found."""
    one_stretch: float = 0.0
    """Share (0-1) of the window that one stretch of it in each step has; 0 where not each has one, or not known."""
    mostly: str = ""
    """What has most of it, of a kind that counts several: "all-reduce" of collectives; "" elsewhere."""
    places: tuple[PlaceShare, ...] = ()
    """The lines of the user's code that cause most of it, the first one most; empty where no frames were recorded."""

    def __post_init__(self) -> None:
        if not self.evidence:
            raise ValueError(f"finding {self.id} has no evidence")
        if not 0 <= self.fraction <= _WHOLE:
            raise ValueError(f"finding {self.id} is a share of {self.fraction} of its window, outside 0-1")
        if not 0 <= self.confidence <= 1:
            raise ValueError(f"finding {self.id} has confidence {self.confidence}, outside 0-1")

    def worth(self, recoverable_ns: int) -> Finding:
        """The same with another gain, and what it saves at most in proportion."""
        most_ns = self.most_recoverable_ns
        if most_ns is not None and self.recoverable_ns:
            most_ns = max(round(most_ns * (recoverable_ns / self.recoverable_ns)), recoverable_ns)
        return replace(self, recoverable_ns=recoverable_ns, most_recoverable_ns=most_ns)

    @property
    def measure(self) -> Evidence:
        """The number that it is judged by: the first of its evidence."""
        return self.evidence[0]

    def has(self, metric: str) -> bool:
        """Whether there is evidence of that metric."""
        return any(item.metric == metric for item in self.evidence)

    def seen(self, metric: str) -> Evidence:
        """The evidence of one metric."""
        return next(item for item in self.evidence if item.metric == metric)


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """An analysis that could not run: not the same as clean, not the same as failed."""

    analyzer: str = ""
    """Its name, which the pipeline gives it."""
    reason: str
    how_to_get: str


SEVERITY_FROM: Final = {Severity.HIGH: 0.15, Severity.MEDIUM: 0.05, Severity.LOW: 0.02}
"""Share of the window from which a severity holds. Chosen close to XProf's 20 % and 5 % for input; below 2 % lies the
run-to-run noise of a quiet machine."""


def severity_of(fraction: float) -> Severity:
    """The severity of a share of the window."""
    return next((severity for severity, least in SEVERITY_FROM.items() if fraction >= least), Severity.INFO)


def confidence_label(confidence: float) -> str:
    """The word for a confidence: high from 0.75, medium from 0.5, else low (chosen: thirds of the ladder)."""
    if confidence >= 0.75:
        return "high"
    return "medium" if confidence >= 0.5 else "low"
