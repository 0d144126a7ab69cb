"""Why a rank is late: what it has more of than its peers. What all ranks have alike is no cause, however large.

Of a rank that is late by its host the lines of the script that it spends longer on than its peers, from the places of
the ranks' own findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from profkit.findings import kind_of
from profkit.findings.host import LAUNCH_BOUND
from profkit.findings.memory import PRESSURE
from profkit.findings.ranks.stragglers import LATE_RANK
from profkit.model.code import OF_DELAY, CodePlace, PlaceShare
from profkit.model.documents.rank_report import RankReport
from profkit.model.finding import Evidence, Finding
from profkit.model.names import short_name
from profkit.ranks.measure.fleet_measures import Joint, busiest, spent_ns
from profkit.ranks.measure.longer_compute import Longer, elements, tokens_factor
from profkit.ranks.measure.stragglers import Straggler, Stragglers
from profkit.ranks.measure.waits import GroupWaits
from profkit.ranks.reduce.outcome import Outcome
from profkit.ranks.reduce.records import PHASES, LeadRanges, RankSummary
from profkit.units import format_fraction, format_ns, format_speedup

_NAME_WIDTH: Final = 40
_WORTH: Final = 0.1
"""Of a rank's lateness, from which the difference in one range, or at one line, is said. Chosen."""
_SHOWN: Final = 3
_HOST_BUDGET: Final = ("idle_sync", "idle_launch", "idle_host", "idle_unknown")
"""What a rank can spend on host work at all."""

Totals = Mapping[str, float]
"""Time by name, ns per step (per window without steps)."""


class Late(msgspec.Struct, frozen=True):
    """A late rank with the group in which that costs most, and the answer for that group."""

    straggler: Straggler
    waits: GroupWaits
    answer: Stragglers
    joint: Joint

    @property
    def rank(self) -> int:
        """Its number."""
        return self.straggler.rank

    @property
    def phase(self) -> str | None:
        """The phase that makes it late, None where several do."""
        return self.straggler.phase

    @property
    def outcome(self) -> Outcome:
        """Its own outcome."""
        return self.joint.outcome_of(self.rank)

    @property
    def peers(self) -> list[Outcome]:
        """The outcomes of the other ranks of the group."""
        return [self.joint.outcome_of(rank) for rank in self.waits.ranks if rank != self.rank]

    @property
    def excess_ns(self) -> float:
        """Per step, what the rank has more of its phase than its peers; of no phase, its lateness."""
        one = self.straggler
        total_ns = one.lateness_ns if one.phase is None else one.phase_excess_ns[PHASES.index(one.phase)]
        return total_ns / self.joint.n_steps

    @property
    def least_ns(self) -> float:
        """What a cause must explain of that, per step."""
        return LATE_RANK.limit("beside_peers") * self.excess_ns

    @property
    def is_hostless(self) -> bool:
        """Whether the rank's trace holds no host time at all: no operator, no range of the script, no launch."""
        summary = self.outcome.summary
        rows = summary.collectives
        return not summary.is_cpu and not len(summary.ranges) and bool((rows.issued_ns == rows.start_ns).all())

    @property
    def is_unrecorded(self) -> bool:
        """Whether host time with nothing recorded is what makes the rank late."""
        if self.phase == "host" and self.is_hostless:
            return True
        return self.phase in ("host", None) and _quiet(self)[1] >= self.least_ns > 0

    @property
    def is_slower(self) -> bool:
        """Whether the usual run of a kernel takes longer here, and not some runs alone."""
        return (self.straggler.compute_factor or 1) >= LATE_RANK.limit("slow_kernels")

    @property
    def models_apart(self) -> tuple[str, str] | None:
        """The rank's device and its peers', where all of these have one other model; None where not."""
        mine = busiest(self.outcome.report).name
        others = {busiest(peer.report).name for peer in self.peers}
        theirs = next(iter(others), "")
        return (mine, theirs) if mine and theirs and len(others) == 1 and mine != theirs else None

    @property
    def own_finding(self) -> Finding | None:
        """The rank's own finding in the phase that makes it late, the largest that exceeds its peers' enough."""
        found = [
            item
            for item in (self.outcome.report.findings if self.phase is not None else ())
            if kind_of(item.id).late_phase == self.phase
            and self.beyond_peers(partial(_cost_ns, name=item.id)) >= self.least_ns
        ]
        return max(found, key=lambda item: item.fraction, default=None)

    def beyond_peers(self, value_of: Callable[[Outcome], float]) -> float:
        """The rank's value beyond the median of its peers'."""
        return value_of(self.outcome) - float(np.median([value_of(peer) for peer in self.peers]))


def cause_of(late: Late) -> str:
    """Why a rank is late, in some words for a table: the phase, and of what in it the rank has more than its peers."""
    phase = late.phase or "mixed"
    if late.phase == "compute":
        return f"{phase}: {_longer_words(late)}"
    if late.phase == "device":
        return f"{phase}: late"
    places = late_places(late)
    if is_one_line(places):
        return f"{phase}: {_short_place(places[0].place)}"
    if late.is_unrecorded:
        return f"{phase}: not recorded"
    own = late.own_finding
    if own is not None:
        return f"{phase}: {kind_of(own.id).late_word}"
    name, longer_ns = _longest(late, partial(_ranges_before, late.waits))
    return f"{phase}: {name}" if late.phase != "data" and longer_ns >= late.least_ns > 0 else phase


def part_of_delay(share: float) -> str:
    """How much of a rank's delay is explained."""
    return "all" if share >= 0.9995 else format_fraction(share)


def _longer_words(late: Late) -> str:
    if late.models_apart is not None:
        return "other model of device"
    if late.straggler.longer is Longer.WORK:
        return "more work"
    factor = late.straggler.compute_factor or 1
    return f"same kernels {format_speedup(factor)}" if late.is_slower else "longer at times"


def _cost_ns(outcome: Outcome, name: str) -> float:
    """What a rank has of what a finding is about, ns per step: of the budget where that tells it, below limits as well.

    Of `host.launch_bound` the launches alone: other host work is not launching. Calls of the allocator are not in the
    budget by themselves; a rank without the finding counts as having none.
    """
    report, part = outcome.report, kind_of(name).part
    if name == LAUNCH_BOUND.id:
        return spent_ns(report, "idle_launch")
    if part is not None and name != PRESSURE.id:
        return spent_ns(report, *part.budget)
    low, high = report.window_ns
    share = sum(item.fraction for item in report.findings if item.id == name)
    return share * (high - low) / max(report.steps.n, 1)


def cause_evidence(late: Late) -> Iterable[Evidence]:
    """What the late rank has more of than its peers, each with the difference."""
    joint, phase, per = late.joint, late.phase, late.joint.per
    yield from _more_work(late)
    before, quiet_ns = _quiet(late)
    if phase == "host" and late.is_hostless:
        yield Evidence.count(
            "straggler.n_host_ranges",
            0,
            "its trace has no row of the host: a loader, a sleep and other work on the CPU look the same",
        )
    elif phase in ("host", None) and quiet_ns >= 1:
        where = f", mostly before {before}" if before else ""
        yield Evidence.time(
            "straggler.quiet_excess_ns",
            quiet_ns * joint.n_steps,
            f"its CPU spends {format_ns(quiet_ns)} {per} longer than its peers with nothing recorded{where}",
        )
    if (own := late.own_finding) is not None and not late.is_unrecorded:
        yield replace(own.measure, statement=f"on rank {late.rank}: {own.measure.statement}")
    name, longer_ns = _longest(late, partial(_ranges_before, late.waits))
    is_worth = longer_ns >= max(_WORTH * late.straggler.lateness_ns / joint.n_steps, 1)
    if is_worth and phase not in ("compute", "device"):
        yield Evidence.time(
            "straggler.range_excess_ns",
            longer_ns * joint.n_steps,
            f"before collectives, {name} takes {format_ns(longer_ns)} {per} longer here",
        )
    if phase == "compute":
        yield from _longer_compute(late)


def _longer_compute(late: Late) -> Iterable[Evidence]:
    """What a rank that computes longer has more of: another device, tokens, a kernel that takes longer."""
    if models := late.models_apart:
        said = f"its device is {models[0]}, its peers have {models[1]}"
        yield Evidence(said, "straggler.is_other_model", 1.0, "bool")
    members = {rank: late.joint.outcome_of(rank).summary for rank in late.waits.ranks}
    tokens = tokens_factor(members, late.rank) if late.straggler.longer is Longer.WORK else None
    if tokens is not None and tokens > 1:
        said = f"it computes on {format_speedup(tokens)} as many tokens as the median rank"
        yield Evidence.factor("straggler.tokens_factor", tokens, said)
    kernel, longer_ns = _longest(late, _work)
    if late.straggler.more is None and longer_ns >= 1:
        yield Evidence.time(
            "straggler.kernel_excess_ns",
            longer_ns * late.joint.n_steps,
            f"{kernel} takes {format_ns(longer_ns)} {late.joint.per} longer here than on the median rank",
        )


def _more_work(late: Late) -> Iterable[Evidence]:
    """How many operators, or how large inputs, a rank with more work has, and its peers."""
    more, summary = late.straggler.more, late.outcome.summary
    if more is None:
        return
    mine, theirs = (f"{value:,.0f}" for value in (more.mine, more.peers))
    what = "it runs {} operators a step" if more.is_operators else "the input of its first layer has {} elements"
    made = summary.batch_place
    yield Evidence.factor(
        f"straggler.{'operators' if more.is_operators else 'inputs'}_factor",
        more.factor,
        f"{what.format(mine)}, the median of the other ranks {theirs}"
        + (f"; its batches come from {made}" if made and not more.is_own else ""),
    )
    if more.is_own:
        return
    peer = min((peer.summary for peer in late.peers), key=lambda peer: abs(elements(peer) - more.peers))
    shapes = [", ".join(" x ".join(map(str, shape)) for shape in one.inputs[:_SHOWN]) for one in (summary, peer)]
    if all(shapes):
        yield Evidence.count(
            "straggler.input_elements",
            elements(summary),
            f"its first layer is given {shapes[0]} (steps with recorded shapes), that of rank {peer.rank} {shapes[1]}",
        )


def _quiet(late: Late) -> tuple[str, float]:
    """What follows the longest host time with nothing recorded, and by how much the rank has more of it, per step."""
    longer = late.beyond_peers(lambda outcome: sum(_quiet_totals(outcome.summary).values()))
    mine = _quiet_totals(late.outcome.summary)
    name = max(mine, key=lambda key: mine[key], default="")
    return short_name(name, _NAME_WIDTH) if name else "", max(longer, 0.0)


def _longest(late: Late, totals_of: Callable[[RankSummary], Totals]) -> tuple[str, float]:
    """The name whose time is most above the middle of the other ranks', and by how much, ns per step."""
    totals = {rank: totals_of(late.joint.outcome_of(rank).summary) for rank in late.waits.ranks}

    def longer_ns(name: str) -> float:
        return late.beyond_peers(lambda outcome: totals[outcome.summary.rank].get(name, 0.0))

    longer = {name: longer_ns(name) for name in totals[late.rank]}
    name = max(longer, key=lambda key: longer[key], default="")
    return short_name(name, _NAME_WIDTH) if name else "", max(longer.get(name, 0.0), 0.0)


def _quiet_totals(summary: RankSummary) -> Totals:
    return _totals(summary, summary.quiet, np.arange(len(summary.quiet)))


def _ranges_before(waits: GroupWaits, summary: RankSummary) -> Totals:
    """Host ranges before the group's collectives."""
    leads, rows = summary.lead_ranges, waits.rows[:, waits.ranks.index(summary.rank)]
    return _totals(summary, leads, np.flatnonzero(np.isin(leads.row, rows)))


def _work(summary: RankSummary) -> Totals:
    """Kernels, of any shape."""
    out: dict[str, float] = {}
    for name, total in zip(summary.work.name, summary.work.total_ns, strict=True):
        text = summary.name(int(name))
        out[text] = out.get(text, 0.0) + int(total) / max(len(summary.steps), 1)
    return out


def _totals(summary: RankSummary, leads: LeadRanges, chosen: np.ndarray) -> Totals:
    names, inverse = np.unique(leads.name[chosen], return_inverse=True)
    totals = np.bincount(inverse.reshape(-1), leads.total_ns[chosen], names.size)
    n_steps = max(len(summary.steps), 1)
    return {summary.name(int(code)): float(total) / n_steps for code, total in zip(names, totals, strict=True)}


def late_places(late: Late) -> tuple[PlaceShare, ...]:
    """By line what a rank that host work makes late has more of than the median of its peers; shares are of the delay.

    Empty where that explains less than half of the delay, and where the rank's trace has no places.
    """
    report, peers, delay_ns = late.outcome.report, late.peers, late.excess_ns
    if late.phase != "host" or delay_ns <= 0 or not peers:
        return ()
    n_steps = max(report.steps.n, 1)
    found = []
    for share in _host_places(report):
        usual_ns = float(np.median([_most_ns(peer.report, share.place) for peer in peers]))
        longer_ns = share.ns / n_steps - usual_ns
        if longer_ns >= _WORTH * delay_ns:
            found.append(replace(share, ns=round(longer_ns * n_steps), of=OF_DELAY))
    longer_ns = sum(share.ns for share in found) / n_steps
    if not found or longer_ns < late.least_ns:
        return ()
    whole_ns = max(delay_ns, longer_ns) * n_steps  # lines also take longer where nobody waits for the rank
    return tuple(replace(one, share=one.ns / whole_ns) for one in sorted(found, key=lambda share: -share.ns))


def places_of(own: Finding | None) -> tuple[PlaceShare, ...]:
    """The places of a late rank's own finding, whose shares are of that finding's time and not of the delay."""
    return tuple(replace(share, of=share.of or own.id) for share in own.places) if own is not None else ()


def is_one_line(places: Sequence[PlaceShare]) -> bool:
    """Whether one line explains half of the delay: on a slow core all lines take longer."""
    return bool(places) and places[0].share >= LATE_RANK.limit("beside_peers")


def _short_place(place: CodePlace) -> str:
    """A place in the width of a table's cell: its function, else its line."""
    return f"line {place.line}" if place.function.endswith(">") and place.line else place.function.strip("<>") + "()"


def _host_places(report: RankReport) -> tuple[PlaceShare, ...]:
    """The places of a rank's largest finding on host work that has any: these findings share their time."""
    found = [one for one in report.findings if kind_of(one.id).late_phase == "host" and one.places]
    return max(found, key=lambda one: one.fraction).places if found else ()


def _most_ns(report: RankReport, place: CodePlace) -> float:
    """The most that a rank can spend at a place, ns per step; where it names no lines, all its host work."""
    places = _host_places(report)
    if not places:
        return spent_ns(report, *_HOST_BUDGET)
    mine = sum(share.ns for share in places if replace(share.place, module="") == replace(place, module=""))
    return (mine or min(share.ns for share in places)) / max(report.steps.n, 1)
