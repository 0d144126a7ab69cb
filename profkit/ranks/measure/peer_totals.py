"""What a late rank has more of than its peers over the whole window: the check on why it is late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from profkit.findings.ranks.stragglers import LATE_RANK
from profkit.model.budget import Budget
from profkit.model.documents.rank_report import DeviceReport, RankReport
from profkit.ranks.measure.stragglers import Straggler
from profkit.ranks.reduce.outcome import Outcome
from profkit.ranks.reduce.records import PHASES

_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "data": ("idle_data",),
    "compute": ("compute",),
    "host": ("idle_sync", "idle_launch", "idle_host", "idle_unknown"),
    "copy": ("copy_exposed",),
    "device": ("idle_dependency",),
}
_ALIKE: Final = 0.1
"""By how much windows without steps may differ in length to be compared. Chosen."""


def busiest(report: RankReport) -> DeviceReport:
    """A rank's busiest device."""
    return max(report.devices, key=lambda device: device.busy_any_ns)


def budget_of(report: RankReport) -> Budget:
    """The budget of a rank's busiest device."""
    return busiest(report).budget


def spent_ns(report: RankReport, *parts: str) -> float:
    """What a rank has of these parts of the budget, per step; per window without steps."""
    budget = budget_of(report)
    return float(sum(getattr(budget, part) for part in parts)) / max(report.steps.n, 1)


def excess_of(rank: int, ranks: Sequence[int], values: Mapping[int, float]) -> float:
    """A rank's value beyond the median of these ranks' without it."""
    return values[rank] - float(np.median([values[other] for other in ranks if other != rank]))


def with_checked_phase(late: Straggler, ranks: Sequence[int], outcomes: Sequence[Outcome], n_steps: int) -> Straggler:
    """The straggler with a phase of which its rank has more than its peers of the group (`ranks`) in the whole window.

    What was counted before some collectives may be missing before others: a rank whose compute comes in another place
    computes no longer. Then the phase is the one of which the rank has most beyond its peers, or none.
    """
    members = set(ranks)
    by_rank = {outcome.summary.rank: outcome for outcome in outcomes if outcome.summary.rank in members}
    if not _are_alike([by_rank[rank].report for rank in ranks]):
        return late
    more = {
        phase: excess_of(late.rank, ranks, {rank: _phase_ns(outcome, phase) for rank, outcome in by_rank.items()})
        for phase in _PARTS
    }
    if late.more is not None:  # its operators and what dispatches them are one cause
        more["compute"] += more["host"]
        more["host"] = 0.0
    least = LATE_RANK.limit("beside_peers")
    if late.phase is not None:
        seen = late.phase_excess_ns[PHASES.index(late.phase)] / n_steps
        if more[late.phase] >= least * seen:
            return late
    largest = max(more, key=lambda phase: more[phase])
    if late.phase is None and more[largest] < least * late.lateness_ns / n_steps:
        return late
    is_enough = more[largest] >= least * late.lateness_ns / n_steps
    over_window = tuple(round(more[phase] * n_steps) for phase in PHASES)
    return replace(late, phase=largest if is_enough else None, phase_excess_ns=over_window)


def _phase_ns(outcome: Outcome, phase: str) -> float:
    """What a rank has of a phase, per step: of the host also what communication alone hides of it."""
    hidden = outcome.summary.unasked_ns / max(outcome.report.steps.n, 1) if phase == "host" else 0.0
    return spent_ns(outcome.report, *_PARTS[phase]) + hidden


def _are_alike(reports: Sequence[RankReport]) -> bool:
    """Whether these ranks' windows can be compared: by their steps, or where they are equally long."""
    if all(report.steps.mean_ns is not None for report in reports):
        return True
    lengths = [high - low for low, high in (report.window_ns for report in reports)]
    return max(lengths) <= (1 + _ALIKE) * min(lengths)
