"""A comparison of kernels as JSON: `profkit schema compare_kernels` prints its schema."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import asdict

from profkit.model.documents.kernel_comparison import KernelChange, KernelComparison, KernelSide
from profkit.render.json.values import written
from profkit.version import __version__

SCHEMA_ID: Final = "profkit.compare-kernels/1"


def render(
    report: KernelComparison, *, width: int | None = None, color: bool | None = None, verbose: bool = False
) -> str:
    """The document as text."""
    return written(comparison_to_dict(report))


def comparison_to_dict(report: KernelComparison) -> dict[str, Any]:
    """The document as plain values; times in ns, percent as ncu prints them (0-100), what is absent None."""
    return {
        "schema": SCHEMA_ID,
        "profkit_version": __version__,
        "baseline": list(report.before),
        "candidate": list(report.after),
        "kernels": [_kernel(one) for one in report.kernels],
        "only_baseline": [_side(side) for side in report.only_before],
        "only_candidate": [_side(side) for side in report.only_after],
        "warnings": list(report.warnings),
    }


def _kernel(one: KernelChange) -> dict[str, Any]:
    return {
        "function": one.function,
        "matched_by": one.matched_by.value,
        "answer": one.answer.value,
        "measure": one.measure,
        "change": one.change,
        "baseline": _side(one.before),
        "candidate": _side(one.after),
        "metrics": [
            {
                "metric": item.metric,
                "label": item.label,
                "unit": item.unit,
                "baseline": item.before,
                "candidate": item.after,
                "change": item.change,
                "has_moved": item.has_moved,
            }
            for item in one.metrics
        ],
        "caveats": list(one.caveats),
    }


def _side(side: KernelSide) -> dict[str, Any]:
    return {
        **asdict(side),
        "grid": None if side.grid is None else list(side.grid),
        "block": None if side.block is None else list(side.block),
        "kernel_class": side.kernel_class.value,
    }
