"""Why no FLOPs and bytes are known."""

from __future__ import annotations

from profkit.model.finding import Skipped
from profkit.model.trace import Trace


def without_work(trace: Trace) -> Skipped:
    """What is said of a trace in which no operator has known work."""
    has_ops = len(trace.ops) > 0
    reason = "operators were recorded without shapes" if has_ops else "no operators in this trace"
    how = "record them: profkit capture --shapes, or torch.profiler.profile(record_shapes=True)"
    if trace.shapes_carried == 0:
        reason = "operators were recorded without shapes, and the later steps do not tell them for certain"
    elif trace.meta.has_shapes or (trace.signatures and has_ops):
        reason, how = "no operator with recorded shapes has a formula", ""
    return Skipped(analyzer="roof", reason=f"{reason}: FLOPs and bytes are not known", how_to_get=how)
