"""A fleet as plain values for the report's JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profkit.model.documents.fleet import ClockRow, Fleet, GroupRow, Prediction, RankRow
from profkit.render.words.fleet import times_of_row


def fleet_to_dict(fleet: Fleet) -> dict[str, Any]:
    """The fleet: times integer ns, what is absent None."""
    return {
        "world_size": fleet.world_size,
        "ranks": list(fleet.ranks),
        "missing": list(fleet.missing),
        "n_missing": fleet.n_missing,
        "left_out": [{"source": item.source, "reason": item.reason} for item in fleet.left_out],
        "rows": [_row(row) for row in fleet.rows],
        "groups": [_group(group) for group in fleet.groups],
        "clocks": {"note": fleet.clock_note, "ranks": [_clock(clock) for clock in fleet.clocks]},
        "refusals": list(fleet.refusals),
        "explained": list(fleet.explained),
        "prediction": None if fleet.prediction is None else _prediction(fleet.prediction),
        "prediction_note": fleet.prediction_note,
    }


def _prediction(found: Prediction) -> dict[str, Any]:
    return {
        "ranks": list(found.ranks),
        "observed_ns": found.observed_ns,
        "replayed_ns": found.replayed_ns,
        "predicted_ns": found.predicted_ns,
        "predicted_most_ns": found.predicted_most_ns,
        "replay_error_fraction": found.error_fraction,
        "n_steps": found.n_steps,
        "unmodelled": list(found.unmodelled),
    }


def _row(row: RankRow) -> dict[str, Any]:
    return {"rank": row.ranks[0], **times_of_row(row), "cause": row.cause or None}


def _group(group: GroupRow) -> dict[str, Any]:
    return {
        "name": group.name,
        "ranks": list(group.ranks),
        "size": group.size,
        "method": group.method,
        "n_instances": group.n_instances,
        "wait_ns": group.wait_ns,
        "transfer_ns": group.transfer_ns,
        "exposed_ns": group.exposed_ns,
        "bus_bytes_per_s": group.bus_bytes_per_s,
        "note": group.note,
    }


def _clock(clock: ClockRow) -> dict[str, Any]:
    return {
        "rank": clock.rank,
        "offset_ns": clock.offset_ns,
        "drift_ppm": clock.drift_ppm,
        "n_ends": clock.n_ends,
        "residual_p95_ns": clock.residual_p95_ns,
        "fitted": clock.is_fitted,
    }
