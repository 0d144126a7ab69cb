"""Speed against peak memory: which cells no other one beats in both."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.compare.ladder.cells import Tried
from profkit.model.documents.ladder import Spot


def front_of(cells: Sequence[Tried]) -> tuple[Spot, ...]:
    """The cells of known memory, from the least memory up, each with one that dominates it.

    That is the fastest of those that take no more memory. Cells alike in both do not dominate each other.
    """
    known = [one for one in cells if one.memory_bytes is not None]
    known.sort(key=lambda one: (one.memory_bytes or 0.0, -one.speed, one.rung, one.key.settings))
    spots = []
    fastest = 0
    for place, one in enumerate(known):
        best = known[fastest]
        is_beaten = best.speed > one.speed or (
            best.speed == one.speed and (best.memory_bytes or 0.0) < (one.memory_bytes or 0.0)
        )
        spots.append(Spot(cell=one.cell, by=fastest if is_beaten else None))
        if one.speed > best.speed:
            fastest = place
    return tuple(spots)
