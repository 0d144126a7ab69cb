"""The report as JSON: the contract that scripts, gates and agents read. Names and units are fixed."""

from __future__ import annotations

from typing import Any, Final

from profkit.model.documents.rank_report import Again, DeviceReport, RankReport
from profkit.model.documents.report import Report, Verdict
from profkit.render.json.values import SHAPES, Shapes, document_of, plain, written
from profkit.render.words.keys import keyed

SCHEMA_ID: Final = "profkit.triage/1"


def render(report: Report, **_: object) -> str:
    """The document as text."""
    return written(report_to_dict(report))


def report_to_dict(report: Report) -> dict[str, Any]:
    """The document as plain values: times integer ns, fractions 0-1, what is absent None."""
    fleet = handover = None
    if report.fleet is not None:
        from profkit.render.json.fleet import SHAPES as OF_FLEETS

        fleet = plain(report.fleet, OF_FLEETS)
    if report.handover is not None:
        from profkit.render.json.crosscheck import SHAPES as OF_HANDOVERS

        handover = plain(report.handover, {**_SHAPES, **OF_HANDOVERS})
    return {**document_of(SCHEMA_ID, report, _SHAPES), "fleet": fleet, "handover": handover}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    keys = (
        "bottleneck confidence headline step_ns recorded_step_ns unprofiled_step_ns recoverable_ns speedup_ceiling"
        " most_recoverable_ns next_tool fixes caveats healthy=is_healthy findings ruled_out proof measure rank source"
    )
    return keyed(verdict, keys) | {
        "findings": [finding.id for finding in verdict.findings],
        "measure": None if verdict.measure is None else verdict.measure.text,
        "where": next((share.words for finding in verdict.findings[:1] for share in finding.places[:1]), None),
    }


def _rank(rank: RankReport) -> dict[str, Any]:
    low, high = rank.window_ns
    window = {"start_ns": low, "end_ns": high, "duration_ns": high - low}
    return {
        **keyed(rank, "rank world_size source format torch_version n_events"),
        "quality": {"ok": all(check.ok for check in rank.checks), "checks": rank.checks},
        "window": window | keyed(rank.steps, "n_steps=n step_source=source"),
        "steps": keyed(rank.steps, "mean_ns p50_ns p95_ns cv durations_ns"),
        "devices": [_device(device, high - low) for device in rank.devices],
        **keyed(rank, "sections warnings unprofiled_step_ns recorded_command? roof? recorded_again=again"),
    }


def _device(device: DeviceReport, window_ns: int) -> dict[str, Any]:
    busy = keyed(device, "compute=busy_compute_ns comm=busy_comm_ns copy=busy_copy_ns any=busy_any_ns")
    shares = {name: busy_ns / window_ns if window_ns else 0.0 for name, busy_ns in busy.items()}
    idle = 1 - shares.pop("any")
    return {
        **keyed(device, "device name kind budget_ns=budget.parts"),
        "busy_ns": busy,
        "comm_overlapped_ns": device.comm_overlapped_ns,
        "occupancy": {**shares, "idle": idle},
        **keyed(device, "comm_hidden_fraction streams"),
    }


_SHAPES: Final[Shapes] = {
    **SHAPES,
    Report: "verdict ranks findings joint_findings skipped failures",
    Verdict: _verdict,
    RankReport: _rank,
    Again: "source n_steps mean_step_ns? stalled_ns matched shapes is_sampled",
}
