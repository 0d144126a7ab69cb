"""Lines that a late rank's host spends longer on than its peers: from the places of the ranks' own findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from profkit.findings import kind_of
from profkit.findings.ranks.stragglers import LATE_RANK
from profkit.model.code import OF_DELAY, CodePlace, PlaceShare
from profkit.model.documents.rank_report import RankReport
from profkit.model.finding import Finding
from profkit.ranks.measure.fleet_measures import Joint
from profkit.ranks.measure.peer_totals import spent_ns
from profkit.ranks.measure.stragglers import Straggler
from profkit.ranks.measure.waits import GroupWaits
from profkit.ranks.reduce.records import PHASES

_HOST: Final = "host"
_BUDGET: Final = ("idle_sync", "idle_launch", "idle_host", "idle_unknown")
"""What a rank can spend on host work at all."""
_WORTH: Final = 0.1
"""Of the delay, from which a line is told. Chosen, as for ranges."""


def late_places(straggler: Straggler, waits: GroupWaits, joint: Joint) -> tuple[PlaceShare, ...]:
    """By line what a rank that host work makes late has more of than the median of its peers; shares are of the delay.

    Empty where that explains less than half of the delay, and where the rank's trace has no places.
    """
    if straggler.phase != _HOST:
        return ()
    delay_ns = straggler.phase_excess_ns[PHASES.index(_HOST)] / joint.n_steps
    report = joint.outcome_of(straggler.rank).report
    peers = [joint.outcome_of(rank).report for rank in waits.ranks if rank != straggler.rank]
    if delay_ns <= 0 or not peers:
        return ()
    n_steps = max(report.steps.n, 1)
    found = []
    for share in _host_places(report):
        usual_ns = float(np.median([_most_ns(peer, share.place) for peer in peers]))
        longer_ns = share.ns / n_steps - usual_ns
        if longer_ns >= _WORTH * delay_ns:
            found.append(replace(share, ns=round(longer_ns * n_steps), of=OF_DELAY))
    longer_ns = sum(share.ns for share in found) / n_steps
    if not found or longer_ns < LATE_RANK.limit("beside_peers") * delay_ns:
        return ()
    whole_ns = max(delay_ns, longer_ns) * n_steps  # lines also take longer where nobody waits for the rank
    return tuple(replace(one, share=one.ns / whole_ns) for one in sorted(found, key=lambda share: -share.ns))


def places_of(own: Finding | None) -> tuple[PlaceShare, ...]:
    """The places of a late rank's own finding, whose shares are of that finding's time and not of the delay."""
    return tuple(replace(share, of=share.of or own.id) for share in own.places) if own is not None else ()


def is_one_line(places: Sequence[PlaceShare]) -> bool:
    """Whether one line explains half of the delay: on a slow core all lines take longer."""
    return bool(places) and places[0].share >= LATE_RANK.limit("beside_peers")


def short_place(place: CodePlace) -> str:
    """A place in the width of a table's cell: its function, else its line."""
    return f"line {place.line}" if place.function.endswith(">") and place.line else place.function.strip("<>") + "()"


def _host_places(report: RankReport) -> tuple[PlaceShare, ...]:
    """The places of a rank's largest finding on host work that has any: these findings share their time."""
    found = [one for one in report.findings if kind_of(one.id).late_phase == _HOST and one.places]
    return max(found, key=lambda one: one.fraction).places if found else ()


def _most_ns(report: RankReport, place: CodePlace) -> float:
    """The most that a rank can spend at a place, ns per step; where it names no lines, all its host work."""
    places = _host_places(report)
    if not places:
        return spent_ns(report, *_BUDGET)
    mine = sum(share.ns for share in places if _line(share.place) == _line(place))
    return (mine or min(share.ns for share in places)) / max(report.steps.n, 1)


def _line(place: CodePlace) -> CodePlace:
    return replace(place, module="")
