"""`rank0.work`: what only rank 0 does while the others wait for it."""

from __future__ import annotations

from typing import Final

from profkit.analyzers.base import Scope
from profkit.analyzers.tools import system_timeline
from profkit.findings.ranks.stragglers import RANK0
from profkit.model.finding import Evidence, Finding
from profkit.model.names import short_name
from profkit.ranks.findings.joint_lateness import recoverable_ns
from profkit.ranks.findings.late_cause import part_of_delay
from profkit.ranks.measure.fingerprints import OnlyWork
from profkit.ranks.measure.fleet_measures import Joint
from profkit.ranks.measure.stragglers import Straggler
from profkit.units import format_ns

_NAMED: Final = 0.85
_UNNAMED: Final = 0.7
"""Chosen: lateness at barriers says when rank 0 is busy, not with what."""
_NAME_WIDTH: Final = 40
_FIX: Final = "make it rarer or asynchronous, split it among the ranks, or drop the barrier after it"


def _at_barriers(straggler: Straggler, part: str) -> str:
    """Where rank 0 is late: of all its delay, or at barriers alone, where that alone is more than chance."""
    where = "; elsewhere its delay may be chance" if straggler.is_at_barriers else f": {part} arises there"
    return f"the others wait for rank 0 at barriers{where}"


def rank0_finding(straggler: Straggler, alone: OnlyWork, joint: Joint, scope: Scope, *, confidence: float) -> Finding:
    """The finding `rank0.work`; `confidence` is that in rank 0's lateness."""
    recoverable = int(recoverable_ns(straggler, joint) * min(max(alone.covered_fraction, alone.barrier_fraction), 1.0))
    fraction = joint.fraction(recoverable)
    is_named = bool(alone.names) and alone.covered_fraction >= RANK0.limit(
        "covered"
    )  # what covers less is not why it is late
    covered = alone.covered_fraction if is_named else alone.barrier_fraction
    names = ", ".join(short_name(name, _NAME_WIDTH) for name in alone.names[:3])
    verb = "runs" if len(alone.names) == 1 else "run"
    part = f"{part_of_delay(covered)} of the delay"
    evidence = [
        Evidence(
            statement=f"{names} {verb} on rank 0 only; this explains {part}"
            if is_named
            else _at_barriers(straggler, part),
            metric="rank0.covered_fraction",
            value=covered,
            unit="fraction",
            expected=f">= {RANK0.thresholds['covered'].shown}",
        ),
        Evidence(
            statement=f"{'without that work' if is_named else 'if rank 0 comes with the others,'} the job saves at most"
            f" {format_ns(joint.saved_ns(recoverable))} {joint.per}",
            metric="rank0.recoverable_ns",
            value=float(recoverable),
            unit="ns",
        ),
    ]
    return RANK0.found(
        title="" if is_named else "all ranks wait for rank 0 at barriers",
        confidence=min(confidence, _NAMED if is_named else _UNNAMED),
        recoverable_ns=joint.per_step(recoverable),
        fraction=fraction,
        evidence=tuple(evidence),
        fix=_FIX if is_named else f"name rank 0's work with torch.profiler.record_function; then {_FIX}",
        next_tools=(
            system_timeline(
                scope, "what does rank 0 do alone?", "rank 0's main thread between its last two collectives"
            ),
        ),
        rank=0,
    )
