"""Places in the user's code in a sentence."""

from __future__ import annotations

from typing import Final

from profkit.model.code import OF_DELAY, OF_WORKERS, Phase, PlaceShare
from profkit.model.finding import Finding
from profkit.shell import clean
from profkit.units import format_fraction

_ENOUGH: Final = 0.5
"""Chosen: where the first place has half of a finding's time, it alone is what to look at."""
_SHOWN: Final = 3
_PHASES: Final = {Phase.BACKWARD: " (in its backward pass)", Phase.OPTIMIZER: " (the optimizer)"}


def place_line(share: PlaceShare) -> str:
    """`78.0 %  train.py:83 in step(): loss.item()`, with what it is a share of where that is not the thing itself."""
    whole = f"{share_of(share)}: " if share.of else ""
    return f"{format_fraction(share.share):>7}  {whole}{place_words(share)}"


def share_of(share: PlaceShare) -> str:
    """What the share of a place is of."""
    named = {"": "of this time", OF_DELAY: "of the delay", OF_WORKERS: "of the loader workers' time"}
    return named.get(share.of) or f"of that rank's {clean(share.of)} time"


def place_words(share: PlaceShare) -> str:
    """A place with its module and, where that is not the one its line runs in, its phase."""
    return clean(share.words + _PHASES.get(share.phase, ""))


def shown_places(finding: Finding, *, is_full: bool = False) -> tuple[PlaceShare, ...]:
    """The places of a finding that are worth a line: one if it has half of the time, else three, or all."""
    if is_full:
        return finding.places
    first = finding.places[:1]
    return first if first and first[0].share >= _ENOUGH else finding.places[:_SHOWN]


def place_sentence(finding: Finding) -> str:
    """Where most of a finding's time is caused, "" where that is not known."""
    if not finding.places:
        return ""
    first = finding.places[0]
    verb = "comes from" if first.of == OF_DELAY else "is in"
    return f"{format_fraction(first.share)} {share_of(first)} {verb} {place_words(first)}"
