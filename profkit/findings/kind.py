"""What a kind of finding is: its words, its thresholds, its bottleneck class, and what it supersedes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from profkit.findings.parts import LookedFor
from profkit.model.documents.report import Bottleneck
from profkit.model.finding import Evidence, Finding, NextTool, Severity, severity_of
from profkit.units import format_ns

CONTAINED: Final = 0.8
"""Share of a finding's time inside another cause, from which it is not said twice (docs/sources.md, rule 22)."""

TO_TRY: Final = 0.1
"""From which share of the step a saving leads a verdict on a CPU where only a trial shows that the change applies. Chosen
on first looks of docs/accuracy.md: six of the fourteen false alarms of eight rounds promised less, no right answer did."""
MOST_HAVE_IT: Final = 0.15
"""The same of what most programs have some of. Chosen: as the severity "high"."""

VERDICTS: Final[Mapping[Bottleneck, str]] = {
    Bottleneck.DATA: "The device waits for the DataLoader and has nothing else to do.",
    Bottleneck.COPY: "The device waits for copies to or from it that no compute hides.",
    Bottleneck.SYNC: "The host calls something that waits for the device, which then has no work left.",
    Bottleneck.OVERHEAD: "The host (Python, dispatcher, driver) cannot launch work as fast as the device does it.",
    Bottleneck.KERNEL: "The device computes most of the time: the work itself takes the step. It is called healthy where"
    " nothing is worth a change before the algorithm.",
    Bottleneck.COMM: "The device waits for collectives that no compute hides. One rank's trace cannot say which rank is"
    " late.",
    Bottleneck.STRAGGLER: "The other ranks wait for one that is late, or now for one and now for another with more"
    " tokens. It takes the traces of all ranks.",
    Bottleneck.MEMORY: "The allocator calls the driver inside the steps, or what each step leaves behind fills the memory.",
    Bottleneck.INCONCLUSIVE: "This trace cannot tell what limits the step. The next command of the report is the capture"
    " that can.",
}
"""What each verdict means, as `profkit explain` prints it."""


class Threshold(msgspec.Struct, frozen=True):
    """One limit of a finding: judges compare with `value`, `profkit explain` prints it inside `says`."""

    value: float
    says: str
    """What it is a limit of; `{}` stands for the value with its unit."""
    source: str
    unit: str = "fraction"
    """"fraction", "points", "ns", "KiB" (the value is in bytes), "x", "part" (1/16), or "" for plain numbers."""

    @property
    def shown(self) -> str:
        """The value with its unit."""
        match self.unit:
            case "fraction":
                return f"{100 * self.value:g} %"
            case "points":
                return f"{100 * self.value:g} points"
            case "ns":
                return format_ns(self.value)
            case "KiB":
                return f"{self.value / 1024:g} KiB"
            case "part":
                return f"1/{1 / self.value:g}"
            case unit:
                return f"{self.value:g}{unit}"

    @property
    def text(self) -> str:
        """The threshold as a sentence, with its source."""
        return f"{self.says.format(self.shown)}: {self.source}"


class Way(StrEnum):
    """What becomes of a finding that another one supersedes."""

    SAID_ONCE = "said once"
    """It leaves the report, which names it under what is explained."""
    JOINED = "joined"
    """It leaves the competition for the verdict; its first evidence and its doubts go to the finding that supersedes."""
    BEHIND = "behind"
    """It leaves the competition for the verdict."""
    SECOND = "second"
    """It stays, and comes second in the verdict, however large it is."""


class Supersedes(msgspec.Struct, frozen=True):
    """A finding that gives way where this one explains at least `share` (0-1) of its time."""

    id: str
    way: Way
    share: float = CONTAINED


class FindingKind(msgspec.Struct, frozen=True, kw_only=True):
    """All that is the same in every finding of one id; `profkit explain ID` prints it."""

    id: str
    title: str
    meaning: str
    measured: str
    lookalikes: tuple[str, ...]
    proof: str
    """On a GPU, and on a CPU where nothing else is said."""
    fixes: tuple[str, ...]
    thresholds: Mapping[str, Threshold] = {}
    """By the name under which judges ask for them."""
    notes: tuple[str, ...] = ()
    """What `explain` prints under the thresholds beside them."""
    bottleneck: Bottleneck | None = None
    """The verdict it stands for as the largest cause; None: it names no cause of its own."""
    is_about_work: bool = False
    """Whether it is about the work itself: no bottleneck, but a reason not to call the work healthy."""
    is_bound: bool = False
    """Whether its time is a bound alone of what a fix saves: no trace shows how much of it is needed."""
    is_estimated: bool = False
    """Whether what stays of its part is an estimate: then a fix saves at most the time of the whole part."""
    is_pause: bool = False
    """Whether nothing that a profiler slows runs in it: on a CPU it then lasts as long without one."""
    is_of_run: bool = False
    """Whether its share is of the run, not of the window, which may hold none of it."""
    leads_from: float = 0.0
    """The share of the step (0-1) from which its saving leads a verdict on a CPU: more than 0 where only a trial shows
    that its change applies."""
    leads: bool = False
    """Whether it comes before all other findings on the work, whatever these save: what they save is of the wrong device."""
    part: LookedFor | None = None
    """The parts of the budget that it explains."""
    late_phase: str = ""
    """The phase in which a rank with this finding is late."""
    late_word: str = ""
    """What that rank spends the time on, in one word for a table."""
    supersedes: tuple[Supersedes, ...] = ()
    tries: tuple[str, ...] = ()
    """The changes of `profkit try` that take its cause out, at least in part (`profkit/trial/catalogue.py`)."""
    alone_caveat: str = ""
    """What one rank's trace cannot tell of it."""
    proof_on_cpu: str = ""
    """Where the CPU is the device: there the work takes as much longer as there is more of it."""

    def proof_for(self, *, is_cpu: bool) -> str:
        """The experiment that would prove it on that kind of device."""
        return (is_cpu and self.proof_on_cpu) or self.proof

    def limit(self, name: str) -> float:
        """The value of one threshold."""
        return self.thresholds[name].value

    @property
    def threshold_lines(self) -> tuple[str, ...]:
        """Every threshold with its source, then the notes."""
        return (*(threshold.text for threshold in self.thresholds.values()), *self.notes)

    def found(  # noqa: PLR0913 - the fields of a finding, by name
        self,
        *,
        fraction: float,
        confidence: float,
        recoverable_ns: int,
        evidence: tuple[Evidence, ...],
        fix: str,
        title: str = "",
        severity: Severity | None = None,
        next_tools: tuple[NextTool, ...] = (),
        rank: int | None = None,
        proof: str = "",
        one_stretch: float = 0.0,
        most_recoverable_ns: int | None = None,
        mostly: str = "",
    ) -> Finding:
        """A finding of this kind; without a title or severity of its own it has the kind's and the share's."""
        return Finding(
            id=self.id,
            title=title or self.title,
            severity=severity_of(fraction) if severity is None else severity,
            confidence=confidence,
            recoverable_ns=recoverable_ns,
            fraction=fraction,
            evidence=evidence,
            fix=fix,
            next_tools=next_tools,
            rank=rank,
            proof=proof,
            one_stretch=one_stretch,
            most_recoverable_ns=most_recoverable_ns,
            mostly=mostly,
        )
