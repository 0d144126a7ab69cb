"""The hand-over as plain values, for the triage document."""

from __future__ import annotations

from typing import Any, Final

from profkit.model.documents.handover import (
    KernelHandover,
    MatchedSide,
    PartAgreement,
    ProfiledKernel,
    TimelineHandover,
)
from profkit.render.json.values import BRIEF_EVIDENCE, Shapes
from profkit.render.words.keys import keyed


def _timeline(line: TimelineHandover) -> dict[str, Any]:
    keys = (
        "rank source first_tool second_tool first_bottleneck second_bottleneck status sentence evidence paired_by?"
        " n_pairs first second has_shapes functions parts"
    )
    sure = keyed(line, "before=confidence_before after=confidence_after why?=confidence_why")
    return {**keyed(line, keys), "confidence": sure, **keyed(line, "explained next_tool other_rank")}


def _kernels(kernels: KernelHandover) -> dict[str, Any]:
    keys = (
        "rank sources status sentence evidence step_ns kernel_ns busy_ns covered_ns by_class_ns=by_class kernels"
        " unmatched next_tool"
    )
    return keyed(kernels, keys) | {"by_class_ns": dict(kernels.by_class)}


SHAPES: Final[Shapes] = {
    **BRIEF_EVIDENCE,
    TimelineHandover: _timeline,
    MatchedSide: "n_steps step_ns unprofiled_step_ns n_launches n_matched kernel_ns matched_ns launch_fraction"
    " time_fraction",
    PartAgreement: "part first second difference allowed agrees",
    KernelHandover: _kernels,
    ProfiledKernel: "function grid block class=kernel_class count kernel_ns mean_ns ncu_ns roof_percent recoverable_ns"
    " n_profiles",
}
"""Of what a hand-over holds; a rank in it is as the document has it."""
