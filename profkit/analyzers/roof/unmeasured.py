"""Why no FLOPs and bytes are known."""

from __future__ import annotations

from typing import Final

from profkit.model.finding import Skipped
from profkit.model.trace import ShapesDoubt, Trace
from profkit.timeline.elsewhere import is_of_torch

_DOUBTS: Final = {
    ShapesDoubt.COUNTS: "those of the later steps do not fit, since the script counted other tokens or samples there",
    ShapesDoubt.LAUNCHES: "those of the later steps may not fit, since kernels, grids or copies differ from step to step",
    ShapesDoubt.TIMES: "those of the later steps may not fit, since products take much longer in one step than in another"
    " (larger batches, or a busy machine)",
}
"""Why none of the later steps' shapes are taken."""


def without_work(trace: Trace) -> Skipped:
    """What is said of a trace in which no operator has known work."""
    has_ops = len(trace.ops) > 0
    reason = "operators were recorded without shapes" if has_ops else "no operators in this trace"
    how = "record them: profkit capture --shapes, or torch.profiler.profile(record_shapes=True)"
    if not is_of_torch(trace):
        how = "profkit ncu measures them, a kernel at a time"
    if trace.shapes_carried == 0:
        doubt = "the later steps do not tell them for certain"
        if trace.shapes_doubt is not None:
            doubt = _DOUBTS[trace.shapes_doubt]
        reason = f"operators were recorded without shapes, and {doubt}"
    elif trace.meta.has_shapes or (trace.signatures and has_ops):
        reason, how = "no operator with recorded shapes has a formula", ""
    return Skipped(analyzer="roof", reason=f"{reason}: FLOPs and bytes are not known", how_to_get=how)
