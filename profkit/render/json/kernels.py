"""A kernel report as JSON: `profkit schema kernels` prints its schema."""

from __future__ import annotations

from typing import Any, Final

from profkit.model.kernel import Advice, KernelAssessment, KernelReport, Roofline, SpeedOfLight
from profkit.render.json.values import BRIEF_EVIDENCE, Shapes, document_of, written
from profkit.render.words.keys import keyed

SCHEMA_ID: Final = "profkit.kernels/1"


def _kernel(one: KernelAssessment) -> dict[str, Any]:
    profile = one.profile
    return {
        **keyed(profile, "source number name function grid block process_id device device_name compute_capability"),
        "n_launches": profile.n_launches,
        "n_metrics": len(profile.metrics),
        "n_unmeasured": len(profile.unmeasured),
        "rules": profile.rules,
        **keyed(one, "duration_ns speed_of_light=speed occupancy waves roofline stalls busiest_pipe evidence advice"),
    }


_SHAPES: Final[Shapes] = {
    **BRIEF_EVIDENCE,
    KernelAssessment: _kernel,
    SpeedOfLight: "class=kernel_class title is_near_roof compute_percent memory_percent agrees_with_ncu",
    Roofline: "precision flop_per_s peak_flop_per_s bytes_per_s peak_bytes_per_s intensity_flop_per_byte=intensity"
    " ridge_flop_per_byte=ridge roof_fraction",
    Advice: "topic fix because at_most_fraction=at_most ncu_estimate=estimate",
}


def render(report: KernelReport, **_: object) -> str:
    """The document as text; times in ns, percent as ncu prints them (0-100), what is absent None."""
    return written(document_of(SCHEMA_ID, report, _SHAPES))
