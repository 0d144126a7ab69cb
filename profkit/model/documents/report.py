"""The report: results as plain values, named as in the JSON contract. Renderers know nothing else."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import force_setattr

from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.shown import Shown
from profkit.model.finding import Finding, NextTool, Skipped
from profkit.plain import clean
from profkit.redact import redacted_text, shown_url
from profkit.shell import CommandLine

if TYPE_CHECKING:  # of one trace alone there is neither
    from profkit.model.documents.fleet import Fleet
    from profkit.model.documents.handover import Handover
    from profkit.model.documents.tracks import Tracks


LEAST_LEFT: Final = 0.1
"""Of a step: where a fix could leave less, a speed-up says nothing: what must remain is not known. Chosen."""


def speedup(left: float) -> float | None:
    """How many times as fast a step is of which this share (0-1) is left; None where that is no bound."""
    return 1 / left if left >= LEAST_LEFT else None


class Bottleneck(StrEnum):
    """The verdicts of the contract."""

    DATA = "data-bound"
    COPY = "copy-bound"
    SYNC = "sync-bound"
    OVERHEAD = "overhead-bound"
    KERNEL = "kernel-bound"
    COMM = "comm-bound"
    STRAGGLER = "straggler-bound"
    MEMORY = "memory-pressure"
    INCONCLUSIVE = "inconclusive"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The one answer. `recoverable_ns` is per step; `is_healthy` says that no cause is worth chasing."""

    bottleneck: Bottleneck
    is_healthy: bool
    confidence: float
    headline: str
    step_ns: int | None
    recoverable_ns: int
    speedup_ceiling: float | None
    next_tool: NextTool
    fixes: tuple[str, ...]
    caveats: tuple[str, ...]
    findings: tuple[Finding, ...]  # the three at most that the headline stands on
    ruled_out: tuple[str, ...]  # what was looked at and is not it, with its number
    rank: int | None = None
    source: str = ""
    recorded_step_ns: int | None = None  # the mean recorded step, where `step_ns` is one without the profiler
    unprofiled_step_ns: int | None = None
    """Of many ranks, where the profiler slows `recorded_step_ns`: that step without it."""
    most_recoverable_ns: int | None = None
    """On a CPU, what a fix saves at most: more than the time of its cause. None where `recoverable_ns` is the most."""
    proof: str = ""  # the experiment that would prove it, "" where none is known
    measure: CommandLine | None = None
    """The command that measures what removing the cause gives; None where the verdict names none."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A source that could not be analysed; no secret stays in what is said of it."""

    source: str
    error: str
    message: str

    def __post_init__(self) -> None:
        """Take out what a URL or a quoted value may hold."""
        force_setattr(self, "source", shown_url(self.source))
        force_setattr(self, "message", redacted_text(self.message))


class Report(Shown, frozen=True, kw_only=True):
    """Everything `profkit triage` knows; `fleet` is None for one rank alone, `handover` without a second tool."""

    verdict: Verdict
    ranks: tuple[RankReport, ...]
    findings: tuple[Finding, ...]
    skipped: tuple[Skipped, ...]
    failures: tuple[Failure, ...] = ()
    fleet: Fleet | None = None
    handover: Handover | None = None
    tracks: tuple[Tracks, ...] = ()
    """What can be drawn of each rank, where that was asked for: no part of the contract."""

    @property
    def joint_findings(self) -> tuple[Finding, ...]:
        """The findings of the verdict that `findings` does not have as the verdict tells them.

        They say of several ranks together what `findings` says of each, or carry the evidence of one that they join.
        """
        return tuple(one for one in self.verdict.findings if one not in self.findings)

    def __repr__(self) -> str:
        """One line: the verdict, and of how many ranks."""
        of = f", {len(self.ranks)} ranks" if len(self.ranks) > 1 else ""
        return clean(f"<Report: {self.verdict.bottleneck}{of}: {self.verdict.headline}>")
