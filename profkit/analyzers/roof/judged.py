"""`kernel.below_roof`, `kernel.unaligned` and `roof.above`: what the roof leaves, and where the roof itself is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from profkit.analyzers.base import Vendor
from profkit.analyzers.roof.distance import Distance, Family, Use
from profkit.analyzers.roof.shown import NAMES, mfu_sentence, rate_of, step_sentence
from profkit.analyzers.tools import typical_profile
from profkit.findings.roof import ABOVE_ROOF, BELOW_ROOF, UNALIGNED
from profkit.model.finding import Evidence, Finding, NextTool, Severity
from profkit.model.kernel_names import Precision
from profkit.redact.later import later
from profkit.roof.roofline import Limit
from profkit.timeline import Facts
from profkit.timeline.code import Rows
from profkit.units import format_fraction, format_ns

_FIXES: Final = {
    "matmul": "give products more rows (a larger batch), with sizes that are multiples of 64; torch.compile(mode='max-autotune') chooses among kernels",
    "convolution": "keep model and batches in channels_last, in bf16 or fp16, and set torch.backends.cudnn.benchmark = True",
    "embedding": "of large tables use sparse=True or a fused embedding (fbgemm): their gradient does not write the whole table",
}
_FIX_OF_MEMORY: Final = (
    "keep tensors contiguous and fuse these operators (torch.compile): fewer, larger passes over memory"
)
_IS_FUSED: Final = later(r"flash|fmha|attn|attention|sdpa|cudnn", re.IGNORECASE)
_FULL: Final = (Precision.FP32, Precision.TF32, Precision.FP64)
_WIDE: Final = re.compile(r"align(?:8|16)(?!\d)")
"""What kernels are called that load whole rows of 16 bytes; of tf32 it is `align4`, which narrow loads of bf16 are as well."""
_MOST_NAMED: Final = 3


def _fix(family: Family) -> str:
    if family.name != "attention":
        return _FIXES.get(family.name, _FIX_OF_MEMORY)
    if family.precision in _FULL:
        return "run attention in bf16 or fp16: the fast fused kernels take no other format"
    if _IS_FUSED.search(family.kernel):
        return "this attention is fused already: try another backend (torch.nn.attention.sdpa_kernel) or a newer kernel library; longer sequences and heads of 64 or 128 suit the kernels best"
    return "let F.scaled_dot_product_attention choose a fused kernel: bf16 or fp16, no dense mask, heads of 64 or 128"


def judge(result: Distance) -> tuple[Finding, ...]:
    """The family that its roof leaves most of, products of unaligned sizes, and whether the roof is wrong."""
    if result.above or result.peak is None:
        return (_above(result),) if result.above else ()
    family = _lowest(result)
    return (*((_below(result, family),) if family is not None else ()), *unaligned(result))


def _lowest(result: Distance) -> Family | None:
    """The family that loses most, where one loses enough."""
    if result.judged_share < BELOW_ROOF.limit("judged"):
        return None
    low = [
        family
        for family in result.families
        if family.share is not None
        and result.scope.fraction(round(_excess_ns(family) * result.overlap)) >= BELOW_ROOF.limit("window")
    ]
    return max(low, key=_excess_ns, default=None)


def rows(facts: Facts, result: Distance) -> Mapping[str, Rows]:
    """The operators of each finding, with what could be spared of the time of each."""
    family = _lowest(result)
    left = [(use, use.time_ns - (use.roof_ns or 0.0)) for use in result.uses if use.roof_ns is not None]
    mine = [(use, ns) for use, ns in left if family is not None and use.work.family == family.name]
    found = {BELOW_ROOF.id: mine, UNALIGNED.id: list(spared(result))}
    return {name: _spared_rows(facts, uses) for name, uses in found.items() if uses}


def _spared_rows(facts: Facts, uses: Sequence[tuple[Use, float]]) -> Rows:
    taken, ns = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for use, spared_ns in uses:
        if use.rows is not None and use.row_ns is not None and use.time_ns > 0 and spared_ns > 0:
            taken.append(use.rows)
            ns.append((use.row_ns * (spared_ns / use.time_ns)).astype(np.int64))
    return Rows.of_ops(facts.trace, np.concatenate(taken), np.concatenate(ns))


def _excess_ns(family: Family) -> float:
    """The time that a family takes beyond what it would at the share of its roof that good kernels reach."""
    return family.judged_ns - family.roof_ns / BELOW_ROOF.limit("share")


def _below(result: Distance, family: Family) -> Finding:
    scope, share, peak = result.scope, family.share, result.peak
    assert share is not None  # noqa: S101 - judge chose it for its share
    assert peak is not None  # noqa: S101 - without one there is no share
    left = min(round(family.left_ns * result.overlap), result.busy_ns)
    name = NAMES[family.name]
    return BELOW_ROOF.found(
        title=f"{name} run{'s' if family.name == 'attention' else ''} at {format_fraction(share)} of what the device can do",
        confidence=0.6,
        recoverable_ns=scope.per_step(left),
        fraction=scope.fraction(left),
        evidence=(
            Evidence.share(
                "roof.family_share",
                share,
                f"{name}: {scope.time(family.judged_ns)}, at the roof"
                f" {format_ns(scope.per_step(round(family.roof_ns)))}{rate_of(family)}",
                expected=f"> {format_fraction(BELOW_ROOF.limit('share'))}",
            ),
            Evidence.time("roof.left_ns", result.left_ns, step_sentence(result)),
            *(
                Evidence.share("roof.mfu", min(mfu, 1), mfu_sentence(result))
                for mfu in (result.mfu,)
                if mfu is not None
            ),
            Evidence.share(
                "roof.known_share",
                result.known_share,
                f"FLOPs or bytes are known of {format_fraction(result.known_share)} of compute time",
            ),
        ),
        fix=_fix(family),
        next_tools=_profile(result, family),
    )


def _profile(result: Distance, family: Family) -> tuple[NextTool, ...]:
    """A profile of the kernel that the family loses most in."""
    if not family.kernel:
        return ()
    look_for = (
        "memory throughput far below 80 % of peak: latency, occupancy or access pattern"
        if family.limit is Limit.MEMORY
        else "tensor (pipe) utilization, the grid against the number of SMs, and stalls"
    )
    typical = result.launches.get(family.kernel)
    question = "what keeps this kernel from its roof?"
    return (typical_profile(result.scope, family.kernel, typical, question, look_for),)


def _above(result: Distance) -> Finding:
    """Said, never clipped: a sum with such work in it would be wrong."""
    worst = max(result.above, key=lambda use: use.time_ns)
    peak = result.peak
    assert peak is not None  # noqa: S101 - there is a roof
    faster = worst.time_ns / worst.roof_ns if worst.roof_ns else 0.0
    share = min(result.above_ns / result.work_ns, 1.0) if result.work_ns else 0.0
    return ABOVE_ROOF.found(
        confidence=0.9,
        recoverable_ns=0,
        fraction=0.0,
        severity=Severity.INFO,
        evidence=(
            Evidence.share(
                "roof.above_share",
                share,
                f"{worst.operator} takes {format_ns(worst.time_ns / worst.n_calls)} a call, {format_fraction(faster)}"
                f" of the least that {peak.name} needs for it; operators like it have {format_fraction(share)} of compute time",
                expected="0 %",
            ),
        ),
        fix="do not use the rates and the MFU of this report; check the device's name and the operator's formula in docs/roof.md",
    )


def unaligned(result: Distance) -> Iterator[Finding]:
    """The finding where aligned sizes could save enough."""
    if result.scope.vendor is not Vendor.NVIDIA or result.peak is None:
        return
    reference = _reference(result)
    gains = spared(result)
    saved = min(round(sum(ns for _, ns in gains) * result.overlap), result.busy_ns)
    fraction = result.scope.fraction(saved)
    if fraction < UNALIGNED.limit("window"):
        return
    worst = [use for use, ns in sorted(gains, key=lambda gain: -gain[1]) if ns > 0]
    time_ns = sum(use.time_ns for use in worst)
    roof_ns = sum(use.roof_ns or 0.0 for use in worst)
    share = min(time_ns / result.work_ns, 1.0) if result.work_ns else 0.0
    scope = result.scope
    yield UNALIGNED.found(
        confidence=0.5,
        recoverable_ns=scope.per_step(saved),
        fraction=fraction,
        evidence=(
            Evidence.share(
                "roof.unaligned_share",
                share,
                f"products with rows that are no multiple of 16 bytes take {scope.time(time_ns)}"
                f" ({format_fraction(share)} of compute time): {_sizes(worst)}",
                expected="0 %",
            ),
            Evidence.share(
                "roof.unaligned_roof_share",
                min(roof_ns / time_ns, 1.0),
                f"they reach {format_fraction(roof_ns / time_ns)} of their roof; at {format_fraction(reference)} they"
                f" would take {scope.time(saved)} less",
                expected=f"> {format_fraction(reference)}",
            ),
        ),
        fix=_fix_of_unaligned(worst),
    )


def spared(result: Distance) -> tuple[tuple[Use, float], ...]:
    """Such products, with what each would take less at the share of its roof that aligned ones reach, in ns."""
    found = [use for use in result.uses if is_unaligned(use)]
    reference = _reference(result) if found else 1.0
    return tuple((use, max(use.time_ns - (use.roof_ns or 0.0) / reference, 0.0)) for use in found)


def is_unaligned(use: Use) -> bool:
    """Whether a product has such rows, and no kernel that does without."""
    return bool(use.misfits) and use.roof is not None and _WIDE.search(use.kernel) is None


def _reference(result: Distance) -> float:
    """The share of their roof (0-1) that the aligned products of the trace reach; where that is less, what good kernels do."""
    aligned = [
        use for use in result.uses if use.work.family == "matmul" and use.roof_ns is not None and not use.misfits
    ]
    time_ns = sum(use.time_ns for use in aligned)
    reached = sum(use.roof_ns or 0.0 for use in aligned) / time_ns if time_ns else 0.0
    return min(max(reached, BELOW_ROOF.limit("share")), 1.0)


def _sizes(uses: Sequence[Use]) -> str:
    """The first products with their sizes."""
    shown = [f"{use.operator} of {use.shapes}" for use in uses]
    first = list(dict.fromkeys(shown))
    return "; ".join(first[:_MOST_NAMED]) + (
        f"; and {len(first) - _MOST_NAMED} more" if len(first) > _MOST_NAMED else ""
    )


def _fix_of_unaligned(uses: Sequence[Use]) -> str:
    pads = dict.fromkeys((misfit.size, misfit.fits) for use in uses for misfit in use.misfits)
    named = ", ".join(f"{size:,} to {fits:,} or {-(-size // 64) * 64:,}" for size, fits in list(pads)[:_MOST_NAMED])
    return f"pad these sizes in the model: {named} (the second is the next multiple of 64)"
