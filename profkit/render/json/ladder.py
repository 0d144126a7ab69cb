"""A ladder report as JSON: `profkit schema ladder` prints its schema."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import asdict

from profkit.model.documents.ladder import (
    Beside,
    Cell,
    Changed,
    Effect,
    Factor,
    Interaction,
    Ladder,
    LadderReport,
    Rung,
)
from profkit.render.json.values import written
from profkit.version import __version__

SCHEMA_ID: Final = "profkit.ladder/1"


def render(report: LadderReport, *, width: int | None = None, color: bool | None = None, verbose: bool = False) -> str:
    """The document as text."""
    return written(ladder_to_dict(report))


def ladder_to_dict(report: LadderReport) -> dict[str, Any]:
    """The document as plain values: speeds in the report's unit, sizes in bytes, what is absent None."""
    return {
        "schema": SCHEMA_ID,
        "profkit_version": __version__,
        "source": report.source,
        "metric": report.metric,
        "unit": report.unit,
        "higher_is_better": report.higher_is_better,
        "counts": report.counts.value,
        "rung_column": report.rung_column,
        "series_columns": list(report.series_columns),
        "setting_columns": list(report.setting_columns),
        "order": [list(group) for group in report.order],
        "order_source": report.order_source.value,
        "layers_told": report.are_layers_told,
        "margin": report.margin,
        "noise": None if report.noise is None else asdict(report.noise),
        "ladders": [_ladder(ladder) for ladder in report.ladders],
        "n_pairs": report.n_pairs,
        "n_mixed": report.n_mixed,
        "effects": [_effect(one) for one in report.effects],
        "warnings": list(report.warnings),
    }


def _ladder(ladder: Ladder) -> dict[str, Any]:
    return {
        "name": ladder.name,
        "total": ladder.total,
        "sentence": ladder.sentence,
        "rungs": [_rung(one) for one in ladder.rungs],
        "beside": [_beside(one) for one in ladder.beside],
        "absent": list(ladder.absent),
        "interactions": [_interaction(one) for one in ladder.interactions],
        "front": [{"cell": _cell(spot.cell), "dominated_by": spot.by} for spot in ladder.spots],
        "notes": [{"id": note.id, "statement": note.statement} for note in ladder.notes],
    }


def _rung(one: Rung) -> dict[str, Any]:
    return {
        "step": one.step.value,
        "cell": _cell(one.cell),
        "over_before": _factor(one.over_before),
        "over_first": _factor(one.over_first),
        "added": list(one.added),
        "removed": list(one.removed),
        "changed": [_changed(each) for each in one.changed],
        "confounds": [each.heading for each in one.confounds],
        "padding_factor": one.padding_factor,
        "n_settings": one.n_settings,
    }


def _beside(one: Beside) -> dict[str, Any]:
    return {
        "cell": _cell(one.cell),
        "why": one.why.value,
        "against": one.against,
        "over": _factor(one.over),
        "changed": [_changed(each) for each in one.changed],
    }


def _interaction(one: Interaction) -> dict[str, Any]:
    return {
        "rung": one.rung,
        "layers": list(one.layers),
        "base": None if one.base is None else _cell(one.base),
        "singles": [_cell(cell) for cell in one.singles],
        "gains": list(one.gains),
        "together": None if one.together is None else _cell(one.together),
        "product": one.product,
        "measured": one.measured,
        "ratio": one.ratio,
        "ratio_interval": None if one.interval is None else list(one.interval),
        "missing": one.missing,
        "sentence": one.sentence,
    }


def _effect(one: Effect) -> dict[str, Any]:
    return {
        "heading": one.heading,
        "before": one.before,
        "after": one.after,
        "along": [_changed(each) for each in one.along],
        "mix": one.mix.value,
        "gains": [
            {
                "series": gain.series,
                "rung": gain.rung,
                "settings": dict(gain.settings),
                "factor": _factor(gain.factor),
                "memory_factor": gain.memory_factor,
            }
            for gain in one.gains
        ],
        "sentence": one.sentence,
    }


def _changed(one: Changed) -> dict[str, Any]:
    return {"heading": one.heading, "before": one.before, "after": one.after, "is_own": one.is_own}


def _factor(one: Factor | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "value": one.value,
        "interval": None if one.interval is None else list(one.interval),
        "answer": one.answer.value,
        "p_value": one.p_value,
        "n": list(one.n),
        "is_pilot": one.is_pilot,
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "rung": cell.rung,
        "settings": dict(cell.settings),
        "n": cell.n,
        "runs": list(cell.runs),
        "mean": cell.mean,
        "cv": cell.cv,
        "memory_bytes": cell.memory_bytes,
        "padding": cell.padding,
    }
