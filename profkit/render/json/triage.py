"""The report as JSON: the contract that scripts, gates and agents read. Names and units are fixed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, Final

from profkit.model.documents.rank_report import Again, DeviceReport, RankReport, Section, TableView
from profkit.model.documents.report import Report, Verdict
from profkit.model.finding import Evidence, Finding
from profkit.render.json.values import evidence_to_dict, number, place_to_dict, tool_to_dict, written
from profkit.version import __version__

SCHEMA_ID: Final = "profkit.triage/1"


def render(report: Report, *, width: int | None = None, color: bool | None = None, verbose: bool = False) -> str:
    """The document as text."""
    return written(report_to_dict(report))


def report_to_dict(report: Report) -> dict[str, Any]:
    """The document as plain values: times integer ns, fractions 0-1, what is absent None."""
    fleet = handover = None
    if report.fleet is not None:
        from profkit.render.json.fleet import fleet_to_dict

        fleet = fleet_to_dict(report.fleet)
    if report.handover is not None:
        from profkit.render.json.crosscheck import handover_to_dict

        handover = handover_to_dict(report.handover, _rank)
    return {
        "schema": SCHEMA_ID,
        "profkit_version": __version__,
        "verdict": _verdict(report.verdict),
        "ranks": [_rank(rank) for rank in report.ranks],
        "findings": [finding_to_dict(finding) for finding in report.findings],
        "joint_findings": [finding_to_dict(finding) for finding in report.joint_findings],
        "skipped": [
            {"analyzer": skip.analyzer, "reason": skip.reason, "how_to_get": skip.how_to_get} for skip in report.skipped
        ],
        "failures": [
            {"source": failure.source, "error": failure.error, "message": failure.message}
            for failure in report.failures
        ],
        "fleet": fleet,
        "handover": handover,
    }


def _plain(value: object) -> Any:
    """What an analyzer shows as values that JSON has: numpy's numbers, enums and tuples become its own kinds."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Iterable):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):  # a scalar of numpy
        return _plain(value.item())
    if isinstance(value, Integral):
        return int(value)
    return number(float(value)) if isinstance(value, Real) else str(value)


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "bottleneck": verdict.bottleneck.value,
        "confidence": verdict.confidence,
        "headline": verdict.headline,
        "step_ns": verdict.step_ns,
        "recorded_step_ns": verdict.recorded_step_ns,
        "unprofiled_step_ns": verdict.unprofiled_step_ns,
        "recoverable_ns": verdict.recoverable_ns,
        "speedup_ceiling": number(verdict.speedup_ceiling),
        "most_recoverable_ns": verdict.most_recoverable_ns,
        "next_tool": tool_to_dict(verdict.next_tool),
        "fixes": list(verdict.fixes),
        "caveats": list(verdict.caveats),
        "healthy": verdict.is_healthy,
        "findings": [finding.id for finding in verdict.findings],
        "ruled_out": list(verdict.ruled_out),
        "proof": verdict.proof,
        "measure": None if verdict.measure is None else verdict.measure.text,
        "rank": verdict.rank,
        "source": verdict.source,
        "where": next((share.words for finding in verdict.findings[:1] for share in finding.places[:1]), None),
    }


def finding_to_dict(finding: Finding) -> dict[str, Any]:
    """A finding as plain values."""
    return {
        "id": finding.id,
        "title": finding.title,
        "severity": finding.severity.value,
        "confidence": finding.confidence,
        "recoverable_ns": finding.recoverable_ns,
        "most_recoverable_ns": finding.most_recoverable_ns,
        "fraction": finding.fraction,
        "rank": finding.rank,
        "evidence": [_evidence(evidence) for evidence in finding.evidence],
        "fix": finding.fix,
        "next_tools": [tool_to_dict(tool) for tool in finding.next_tools],
        "device": finding.device,
        "places": [place_to_dict(share) for share in finding.places],
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    span = None if evidence.span_ns is None else list(evidence.span_ns)
    return {**evidence_to_dict(evidence), "expected": evidence.expected, "span_ns": span}


def _rank(rank: RankReport) -> dict[str, Any]:
    low, high = rank.window_ns
    return {
        "rank": rank.rank,
        "world_size": rank.world_size,
        "source": rank.source,
        "format": rank.format,
        "torch_version": rank.torch_version,
        "n_events": rank.n_events,
        "quality": {
            "ok": all(check.ok for check in rank.checks),
            "checks": [
                {"id": check.id, "ok": check.ok, "value": number(check.value), "message": check.message}
                for check in rank.checks
            ],
        },
        "window": {
            "start_ns": low,
            "end_ns": high,
            "duration_ns": high - low,
            "n_steps": rank.steps.n,
            "step_source": rank.steps.source,
        },
        "steps": {
            "mean_ns": rank.steps.mean_ns,
            "p50_ns": rank.steps.p50_ns,
            "p95_ns": rank.steps.p95_ns,
            "cv": number(rank.steps.cv),
            "durations_ns": list(rank.steps.durations_ns),
        },
        "devices": [_device(device, high - low) for device in rank.devices],
        "sections": [_section(section) for section in rank.sections],
        "warnings": list(rank.warnings),
        "unprofiled_step_ns": rank.unprofiled_step_ns,
        "recorded_command": rank.recorded_command or None,
        "roof": rank.roof or None,
        "recorded_again": None if rank.again is None else _again(rank.again),
    }


def _again(again: Again) -> dict[str, Any]:
    return {
        "source": again.source,
        "n_steps": again.n_steps,
        "mean_step_ns": again.mean_step_ns or None,
        "stalled_ns": again.stalled_ns,
        "matched": number(again.matched),
        "shapes": None if again.shapes is None else number(again.shapes),
        "is_sampled": again.is_sampled,
    }


def _device(device: DeviceReport, window_ns: int) -> dict[str, Any]:
    def share(busy_ns: int) -> float:
        return busy_ns / window_ns if window_ns else 0.0

    return {
        "device": device.device,
        "name": device.name,
        "kind": device.kind,
        "budget_ns": device.budget.parts,
        "busy_ns": {
            "compute": device.busy_compute_ns,
            "comm": device.busy_comm_ns,
            "copy": device.busy_copy_ns,
            "any": device.busy_any_ns,
        },
        "comm_overlapped_ns": device.comm_overlapped_ns,
        "occupancy": {
            "compute": share(device.busy_compute_ns),
            "comm": share(device.busy_comm_ns),
            "copy": share(device.busy_copy_ns),
            "idle": 1 - share(device.busy_any_ns),
        },
        "comm_hidden_fraction": device.comm_hidden_fraction,
        "streams": [
            {
                "stream": use.stream,
                "label": use.label,
                "busy_ns": use.busy_ns,
                "occupancy": use.occupancy,
                "n_ops": use.n_ops,
            }
            for use in device.streams
        ],
    }


def _section(section: Section) -> dict[str, Any]:
    return {
        "analyzer": section.analyzer,
        "title": section.title,
        "values": _plain(section.values),
        "tables": [_table(table) for table in section.tables],
    }


def _table(table: TableView) -> dict[str, Any]:
    return {
        "title": table.title,
        "headers": list(table.headers),
        "units": list(table.units),
        "rows": _plain(table.rows),
        "note": table.note,
    }
