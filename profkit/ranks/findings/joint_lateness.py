"""What several late ranks cost together: each alone costs next to nothing where another one is as late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from profkit.findings.ranks.stragglers import LATE_WORDS
from profkit.model.finding import Evidence, Finding, severity_of
from profkit.ranks.measure.fleet_measures import Joint
from profkit.ranks.measure.kernel_slowdown import Longer
from profkit.ranks.measure.permutation_test import lateness_ns
from profkit.ranks.measure.replay import Counterfactual
from profkit.ranks.measure.stragglers import Straggler, Stragglers
from profkit.ranks.measure.waits import GroupWaits
from profkit.units import format_ns, format_numbers

_AS_LONG: Final = 0.5
"""Of what a late rank costs, what a rank of another group must wait to be counted among those that wait. Chosen."""


def excess_of_ns(waits: GroupWaits, ranks: Sequence[int]) -> int:
    """What instances would have begun earlier in all, had these ranks come with the last of the others."""
    chosen = np.isin(waits.ranks, ranks)
    is_late, is_other = waits.present & chosen, waits.present & ~chosen
    rows = np.flatnonzero(is_late.any(axis=1) & is_other.any(axis=1))
    if rows.size == 0:
        return 0
    lowest = np.iinfo(np.int64).min // 4
    arrival = waits.arrival_ns[rows]
    last = np.where(is_late[rows], arrival, lowest).max(axis=1)
    other = np.where(is_other[rows], arrival, lowest).max(axis=1)
    # As for one rank: none has come later, by its own doing, than by what it did longer than the others.
    longer = np.where(is_late, lateness_ns(waits.own_ns.sum(axis=2), waits.present), 0)[rows].max(axis=1)
    return int(np.minimum(np.maximum(last - other, 0), longer).sum())


def recoverable_ns(straggler: Straggler, joint: Joint) -> int:
    """What mending this rank alone gives at most over the window: by replay where it can say, else by its arrivals.

    By arrivals it is the distance from the second last of its group (docs/sources.md, rule 7). The replay knows what of
    the lateness comes back elsewhere, and that another group waits for another rank meanwhile.
    """
    if (alone := joint.alone.get(straggler.rank)) is not None:
        return alone.gain_ns * joint.n_steps
    prediction = joint.prediction
    if isinstance(prediction, Counterfactual) and {item.rank for item in prediction.equalised} == {straggler.rank}:
        return prediction.most_gain_ns * joint.n_steps + _sent_more_ns([straggler], joint)
    return round(straggler.excess_ns * _unseen(straggler, joint))


def _unseen(straggler: Straggler, joint: Joint) -> float:
    """All steps over those up to the last collective, where collectives are rare; 1 where none lies in a marked step.

    What is late behind it shows at the next one, which is not recorded.
    """
    waits = next((one for one in joint.waits if one.group == straggler.group), None)
    if waits is None or straggler.event is not None or straggler.is_once:
        return 1.0
    if not 0 < 2 * waits.n_steps <= joint.n_steps:
        return 1.0
    numbers = joint.outcome_of(straggler.rank).summary.steps.number
    return numbers.size / max(int((numbers <= waits.step.max()).sum()), 1)


def _sent_more_ns(late: Sequence[Straggler], joint: Joint) -> int:
    """By how much ranks with more work may make their groups' transfers longer than the twins', which have none.

    They get more to work on.
    """
    ranks = {one.rank for one in late if one.phase == "compute" and one.longer is Longer.WORK}
    longer = 0
    for waits in joint.waits:
        twins = [
            int(other.transfer_ns.sum())
            for other in joint.waits
            if other.rows.shape == waits.rows.shape and not set(other.ranks) & (ranks | set(waits.ranks))
        ]
        if ranks & set(waits.ranks) and twins:
            longer += max(int(waits.transfer_ns.sum()) - round(float(np.median(twins))), 0)
    return longer


def together_ns(joint: Joint, late: Sequence[Straggler]) -> tuple[int, bool]:
    """What mending these ranks would give over the window, and whether the replay says so.

    Else by arrivals, in the group where it is most: no less than one of them alone has there.
    """
    prediction, ranks = joint.prediction, sorted(one.rank for one in late)
    if isinstance(prediction, Counterfactual) and sorted(item.rank for item in prediction.equalised) == ranks:
        return prediction.most_gain_ns * joint.n_steps + _sent_more_ns(late, joint), True
    return max((excess_of_ns(waits, ranks) for waits in joint.waits), default=0), False


def waiting_for(joint: Joint, late: Sequence[tuple[Straggler, GroupWaits]]) -> list[int]:
    """The ranks that wait for these: their peers in the groups where they are late, and who waits as long elsewhere.

    A late rank of a tensor-parallel pair holds up its peer there, and everybody in the groups of the two behind that.
    """
    mine = {straggler.rank for straggler, _ in late}
    waited: dict[int, int] = {}
    for group in joint.waits:
        for rank, total in zip(group.ranks, group.wait_ns.sum(axis=0).tolist(), strict=True):
            waited[rank] = waited.get(rank, 0) + total
    least = _AS_LONG * max(straggler.excess_ns for straggler, _ in late)
    peers = {rank for _, waits in late for rank in waits.ranks}
    return sorted((peers | {rank for rank, total in waited.items() if total >= least}) - mine)


def waiting_words(ranks: Sequence[int]) -> str:
    """Who waits, as the subject of a sentence."""
    return f"{len(ranks)} ranks wait" if len(ranks) != 1 else f"rank {ranks[0]} waits"


def for_all(first: Finding, late: Sequence[tuple[Straggler, GroupWaits, Stragglers]], joint: Joint) -> Finding:
    """The costliest rank's finding as that of all late ranks: where each is as late, none alone is worth much."""
    ranks = sorted(straggler.rank for straggler, _, _ in late)
    named = format_numbers(ranks)
    won, is_replayed = together_ns(joint, [straggler for straggler, _, _ in late])
    fraction = joint.fraction(won)
    phases = {straggler.phase for straggler, _, _ in late}
    why = LATE_WORDS[phases.pop()].several if len(phases) == 1 else "which are late for different reasons"
    waiting = waiting_words(waiting_for(joint, [(straggler, waits) for straggler, waits, _ in late]))
    said = Evidence(
        statement=(
            f"if ranks {named} were as fast as their peers, this would save"
            f" {format_ns(joint.saved_ns(won))} {joint.per}{', by replay' if is_replayed else ''};"
            f" rank {first.rank} alone would save {format_ns(joint.saved_ns(first.recoverable_ns * joint.n_steps))}"
        ),
        metric="straggler.recoverable_together_ns",
        value=float(won),
        unit="ns",
    )
    return replace(
        first,
        title=f"{waiting} for ranks {named}, {why}",
        severity=severity_of(fraction),
        recoverable_ns=joint.per_step(won),
        fraction=fraction,
        evidence=(said, *first.evidence),
    )
