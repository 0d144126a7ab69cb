"""A scaling report as JSON: `profkit schema scaling` prints its schema."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import asdict

from profkit.model.documents.scaling import Point, ScalingReport, Series
from profkit.render.json.values import written
from profkit.version import __version__

SCHEMA_ID: Final = "profkit.scaling/1"


def render(report: ScalingReport, *, width: int | None = None, color: bool | None = None, verbose: bool = False) -> str:
    """The document as text."""
    return written(scaling_to_dict(report))


def scaling_to_dict(report: ScalingReport) -> dict[str, Any]:
    """The document as plain values: throughput in the series' unit, sizes in bytes, what is absent None."""
    return {
        "schema": SCHEMA_ID,
        "profkit_version": __version__,
        "sources": list(report.sources),
        "series": [_series(series) for series in report.series],
        "warnings": list(report.warnings),
    }


def _series(series: Series) -> dict[str, Any]:
    return {
        "name": series.name,
        "held": series.held.value,
        "unit": series.unit,
        "standing": series.standing.value,
        "sentence": series.sentence,
        "honest": list(series.honest),
        "points": [_point(point) for point in series.points],
        "usl": None if series.usl is None else asdict(series.usl),
        "clues": [{"id": clue.id, "bearing": clue.bearing.value, "statement": clue.statement} for clue in series.clues],
        "decompositions": [
            {
                "base_gpus": one.base_gpus,
                "gpus": one.gpus,
                "efficiency": one.efficiency,
                "log_efficiency": {part.name: part.log_efficiency for part in one.parts},
            }
            for one in series.decompositions
        ],
        "next_command": series.next_command,
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "gpus": point.gpus,
        "n": point.n,
        "runs": list(point.runs),
        "mean": point.mean,
        "per_gpu": point.per_gpu,
        "cv": point.cv,
        "speedup": point.speedup,
        "efficiency": point.efficiency,
        "efficiency_interval": None if point.interval is None else list(point.interval),
        "is_pilot": point.is_pilot,
        "serial_fraction": point.serial_fraction,
        "memory_bytes": point.memory_bytes,
        "capacity_bytes": point.capacity_bytes,
        "work_per_step": point.work_per_step,
        "micro_batch": point.micro_batch,
        "accumulation": point.accumulation,
    }
