"""Sentences on places in the user's code: of a finding, and of all that `profkit where` tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from profkit.model.code import OF_DELAY, OF_THREAD, OF_WORKERS, Phase, PlaceShare
from profkit.model.finding import Finding
from profkit.shell import clean
from profkit.units import format_fraction, format_ns

if TYPE_CHECKING:
    from profkit.model.documents.where import PlacesOf, Where

_ENOUGH: Final = 0.5
"""Chosen: where the first place has half of a finding's time, it alone is what to look at."""
_SHOWN: Final = 3
_PHASES: Final = {Phase.BACKWARD: " (in its backward pass)", Phase.OPTIMIZER: " (the optimizer)"}
_PHASE_NAMES = ("forward", "backward", "optimizer", "other")
HEADERS = ("share", "in the window", "rows", "place")


def place_line(share: PlaceShare) -> str:
    """`78.0 %  train.py:83 in step(): loss.item()`, with what it is a share of where that is not the thing itself."""
    whole = f"{share_of(share)}: " if share.of else ""
    return f"{format_fraction(share.share):>7}  {whole}{place_words(share)}"


def share_of(share: PlaceShare) -> str:
    """What the share of a place is of."""
    named = {"": "of this time", OF_DELAY: "of the delay", OF_WORKERS: "of the loader workers' time"}
    named[OF_THREAD] = "of that thread's time"
    return named.get(share.of) or f"of that rank's {clean(share.of)} time"


def place_words(share: PlaceShare) -> str:
    """A place with its module and, where that is not the one its line runs in, its phase; no phase of a callback's."""
    is_closure = share.phase is Phase.OPTIMIZER and share.place.beside  # the optimizer's step calls a whole step
    return clean(share.words + ("" if is_closure else _PHASES.get(share.phase, "")))


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


def title(one: PlacesOf) -> str:
    """What the places are of, and how much of the window that has."""
    share = f", {format_fraction(one.share)} of the window" if one.share else ""
    if one.kind == "finding":
        return clean(f"{one.name}: {one.title}{share}")
    kind = "" if one.kind == "work" else f"{one.kind} "
    return clean(f"{kind}{one.name}: {format_ns(one.ns)}{share}")


def no_places(one: PlacesOf) -> str:
    """What is said where a thing has no place."""
    return (
        "no place is known: the trace shows no Python frame around it"
        if one.kind != "finding"
        else "no place in the user's code is known for it"
    )


def unplaced(one: PlacesOf) -> str:
    """What of it is at places that are not shown or not known, "" where that is little."""
    alike = [share for share in one.places if share.of == one.places[0].of]
    rest = 1 - sum(share.share for share in alike)
    whole = f" {share_of(alike[0])}" if alike and alike[0].of else ""
    return (
        f"{format_fraction(rest)}{whole} is elsewhere, or where no frame was recorded" if alike and rest > 0.01 else ""
    )


def rank_line(where: Where) -> str:
    """Which of several ranks the places are of and why, "" of one trace alone."""
    if where.n_ranks < 2:
        return ""
    return clean(f"rank {'?' if where.rank is None else where.rank} of {where.n_ranks:,} traces: {where.chosen}")


def phases(where: Where) -> str:
    """How the work divides into phases, "" without any."""
    total = sum(where.phase_ns.values())
    if not total:
        return ""
    said = [f"{name} {format_fraction(where.phase_ns.get(name, 0) / total)}" for name in _PHASE_NAMES]
    return "work: " + ", ".join(said)
