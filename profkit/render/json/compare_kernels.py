"""A comparison of kernels as JSON: `profkit schema compare_kernels` prints its schema."""

from __future__ import annotations

from typing import Final

from profkit.model.documents.kernel_comparison import KernelChange, KernelComparison, MetricChange
from profkit.render.json.values import Shapes, document_of, written

SCHEMA_ID: Final = "profkit.compare-kernels/1"
_SHAPES: Final[Shapes] = {
    KernelComparison: "baseline=before candidate=after kernels only_baseline=only_before only_candidate=only_after"
    " warnings",
    KernelChange: "function matched_by answer measure change baseline=before candidate=after metrics caveats",
    MetricChange: "metric label unit baseline=before candidate=after change has_moved",
}


def render(report: KernelComparison, **_: object) -> str:
    """The document as text; times in ns, percent as ncu prints them (0-100), what is absent None."""
    return written(document_of(SCHEMA_ID, report, _SHAPES))
