"""What a pattern is: a kind of finding, how its ranges are found, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from profkit.analyzers.patterns.ranges import Ranges
from profkit.findings.kind import FindingKind
from profkit.findings.patterns import FROZEN
from profkit.timeline import Facts


class Pattern(msgspec.Struct, frozen=True):
    """One kind of finding and how its ranges are found; None where the trace cannot tell."""

    kind: FindingKind
    ranges: Callable[[Facts], Ranges | None]
    is_pause: bool
    """Whether the host does nothing for the step meanwhile: else it launches work there."""
    what: tuple[str, str]
    """One range, and several, in a sentence."""

    fix: Callable[[Facts, Ranges], str] | None = None
    """What to do where that depends on what was found; None: the kind's first fix."""

    halved: Callable[[Facts], Ranges] | None = None
    """The part of its ranges of which a change spares half at most; None: none."""
    remains: str = ""
    """What the other half is, in a sentence."""
    kept: Callable[[Facts, Ranges], float] | None = None
    """The share (0-1) of its cost that a change leaves; None: none."""
    title: Callable[[Facts, Ranges], str] | None = None
    """What it is called where that depends on what was found, "" and None: as its kind."""
    proof: Callable[[Facts, Ranges], str] | None = None
    """How to prove it, in the same way."""

    @property
    def spares_work(self) -> bool:
        """Whether a change spares what the host launches in it, not only the host's time."""
        return self.kind.is_about_work or self.kind is FROZEN
