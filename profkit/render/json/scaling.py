"""A scaling report as JSON: `profkit schema scaling` prints its schema."""

from __future__ import annotations

from typing import Any, Final

from profkit.model.documents.scaling import Decomposition, Point, ScalingReport, Series
from profkit.render.json.values import Shapes, document_of, written
from profkit.render.words.keys import keyed

SCHEMA_ID: Final = "profkit.scaling/1"


def _decomposition(one: Decomposition) -> dict[str, Any]:
    parts = {part.name: part.log_efficiency for part in one.parts}
    return {**keyed(one, "base_gpus gpus efficiency"), "log_efficiency": parts}


_SHAPES: Final[Shapes] = {
    Series: "name held unit standing sentence honest points usl clues decompositions next_command",
    Point: "gpus n runs mean per_gpu cv speedup efficiency efficiency_interval=interval is_pilot serial_fraction"
    " memory_bytes capacity_bytes work_per_step micro_batch accumulation",
    Decomposition: _decomposition,
}


def render(report: ScalingReport, **_: object) -> str:
    """The document as text."""
    return written(scaling_to_dict(report))


def scaling_to_dict(report: ScalingReport) -> dict[str, Any]:
    """The document as plain values: throughput in the series' unit, sizes in bytes, what is absent None."""
    return document_of(SCHEMA_ID, report, _SHAPES)
