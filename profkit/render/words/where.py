"""Sentences on places in the user's code."""

from __future__ import annotations

from profkit.model.documents.where import PlacesOf, Where
from profkit.render.words.places import share_of
from profkit.shell import clean
from profkit.units import format_fraction, format_ns

_PHASES = ("forward", "backward", "optimizer", "other")
HEADERS = ("share", "in the window", "rows", "place")


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
    said = [f"{name} {format_fraction(where.phase_ns.get(name, 0) / total)}" for name in _PHASES]
    return "work: " + ", ".join(said)
