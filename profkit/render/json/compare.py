"""A comparison as JSON: the contract that scripts, gates and agents read. Names and units are fixed."""

from __future__ import annotations

from typing import Any, Final

from profkit.model.documents.comparison import Account, Bar, Comparison, Judgement, SideReport, WorkChange
from profkit.render.json.triage import finding_to_dict
from profkit.render.json.values import number, written
from profkit.version import __version__

SCHEMA_ID: Final = "profkit.compare/1"


def render(
    comparison: Comparison, *, width: int | None = None, color: bool | None = None, verbose: bool = False
) -> str:
    """The document as text."""
    return written(comparison_to_dict(comparison))


def comparison_to_dict(comparison: Comparison) -> dict[str, Any]:
    """The document as plain values: times integer ns per step, fractions 0-1, what is absent None."""
    waterfall = comparison.waterfall
    return {
        "schema": SCHEMA_ID,
        "profkit_version": __version__,
        "judgement": _judgement(comparison.judgement),
        "configurations": [
            {"name": name, "judgement": _judgement(judgement)} for name, judgement in comparison.configurations
        ],
        "baseline": _side(comparison.baseline),
        "candidate": _side(comparison.candidate),
        "waterfall": None
        if waterfall is None
        else {
            "per": "step" if comparison.baseline.n_steps else "window",
            "baseline_ns": waterfall.baseline_ns,
            "candidate_ns": waterfall.candidate_ns,
            "change_ns": waterfall.delta_ns,
            "parts": [_bar(bar) for bar in waterfall.bars],
        },
        "compute": _account(comparison.compute),
        "comm": _account(comparison.comm),
        "readings": [finding_to_dict(reading) for reading in comparison.readings],
        "findings": [
            {
                "id": item.id,
                "title": item.title,
                "presence": item.presence.value,
                "baseline_fraction": item.baseline_fraction,
                "candidate_fraction": item.candidate_fraction,
            }
            for item in comparison.findings
        ],
        "unlike": [
            {"what": item.what, "baseline": item.baseline, "candidate": item.candidate} for item in comparison.unlike
        ],
        "caveats": list(comparison.caveats),
        "failures": [
            {"source": failure.source, "error": failure.error, "message": failure.message}
            for failure in comparison.failures
        ],
    }


def _judgement(judged: Judgement) -> dict[str, Any]:
    return {
        "answer": judged.answer,
        "sentence": judged.sentence,
        "comparable": judged.is_comparable,
        "metric": judged.metric,
        "unit": judged.unit,
        "higher_is_better": judged.higher_is_better,
        "baseline_mean": judged.baseline_mean,
        "candidate_mean": judged.candidate_mean,
        "ratio": judged.ratio,
        "change": judged.change,
        "change_interval": None if judged.change_interval is None else [number(end) for end in judged.change_interval],
        "effect": judged.effect,
        "interval": None if judged.interval is None else [number(bound) for bound in judged.interval],
        "p_value": number(judged.p_value),
        "test": judged.test,
        "n": list(judged.n),
        "unit_of_replication": judged.unit_of_replication,
        "margin": judged.margin,
        "minimum_detectable_effect": number(judged.minimum_detectable_effect),
        "runs_to_settle": judged.runs_to_settle,
        "method_note": judged.method_note,
    }


def _side(side: SideReport) -> dict[str, Any]:
    return {
        "name": side.name,
        "sources": list(side.sources),
        "n_runs": side.n_runs,
        "n_traces": side.n_traces,
        "n_steps": side.n_steps,
        "run_values": list(side.run_values),
        "device": side.device,
        "kind": "cpu" if side.is_cpu else "gpu",
        "bottleneck": side.bottleneck or None,
        "late_rank": side.late_rank,
        "occupancy": side.occupancy,
        "busy_comm_ns": side.busy_comm_ns,
        "hidden_comm_ns": side.hidden_comm_ns,
        "comm_hidden_fraction": side.comm_hidden_fraction,
        "peak_memory_bytes": side.peak_memory_bytes,
    }


def _account(account: Account | None) -> dict[str, Any] | None:
    if account is None:
        return None
    return {
        "baseline_ns": account.baseline_ns,
        "candidate_ns": account.candidate_ns,
        "change_ns": account.delta_ns,
        "rows": [_work(row) for row in account.rows],
        "rest": {"n": account.n_rest, **_work(account.rest)},
        "side_by_side": _bar(account.side_by_side),
    }


def _work(row: WorkChange) -> dict[str, Any]:
    return {
        "name": row.name,
        "operator": row.operator,
        "family": row.family,
        "presence": row.presence.value,
        "replaced_by": row.replaced_by,
        "baseline_count": row.baseline_count,
        "candidate_count": row.candidate_count,
        "baseline_ns": row.baseline_ns,
        "candidate_ns": row.candidate_ns,
        "change_ns": row.delta_ns,
        "by_count_ns": row.by_count_ns,
        "by_duration_ns": row.by_duration_ns,
    }


def _bar(bar: Bar) -> dict[str, Any]:
    return {
        "name": bar.name,
        "baseline_ns": bar.baseline_ns,
        "candidate_ns": bar.candidate_ns,
        "change_ns": bar.delta_ns,
    }
