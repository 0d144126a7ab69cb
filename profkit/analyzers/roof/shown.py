"""What the report shows of the distance from the roof: sentences, plain numbers, two tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.analyzers.roof.distance import Distance, Family, Use, formats
from profkit.findings.roof import BELOW_ROOF
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import SEVERITY_FROM, Severity
from profkit.roof.formulas.work import MATRIX_FAMILIES
from profkit.roof.roofline import Limit
from profkit.units import format_fraction, format_ns, format_quantity

_MAX_SHOWN: Final = 15
_NAMED: Final = 0.1
"""Chosen: a number format with less of the time of products is not named."""
_TOLD: Final = 0.01
"""Share of the FLOPs that a causal mask hides, from which on that is said. Chosen: data sheets round to 1 %."""
COMPLETE: Final = 0.95
"""Share of the time of matrix kernels whose FLOPs are known, from which on their sum is the model's. Chosen."""
NAMES: Final = {
    "matmul": "matrix products",
    "convolution": "convolutions",
    "attention": "attention",
    "norm": "norms",
    "softmax": "softmax kernels",
    "embedding": "embeddings",
    "reduction": "reductions",
    "elementwise": "elementwise kernels",
}


_DENSE: Final = 16
"""FLOPs for each byte, and..."""
_LARGE: Final = 10_000_000
"""...FLOPs of each call from which a product can have much of a CPU's rate: memory and dispatch allow it. Chosen."""
_BEHIND: Final = 5
"""Times as fast as it is another of the trace. Chosen: more than sizes alone make of it, less than subnormal numbers."""
_SLOW: Final = 0.3
"""Of the compute, such products. Chosen: less leaves most of the work as it is."""


def tera(flop_per_s: float) -> str:
    """FLOP/s in a sentence."""
    return format_quantity(flop_per_s / 1e12, "TFLOP/s")


def rate_of(family: Family) -> str:
    """What a family reaches of what limits it, in brackets."""
    if family.limit is Limit.COMPUTE and family.flop_per_s is not None:
        return f" (it reaches {tera(family.flop_per_s)} in {family.precision.value})"
    rate = family.bytes_per_s
    return "" if rate is None else f" (it reaches {format_quantity(rate / 1e9, 'GB/s')} of memory)"


def at_roof(result: Distance) -> str:
    """What a step takes with every operator that has a roof at its roof; "" where too little has one."""
    if not result.left_ns or result.above or result.judged_share < BELOW_ROOF.limit("judged"):
        return ""
    used = [use for use in result.uses if use.work.is_matrix and use.roof is not None]
    total = sum(use.time_ns for use in used)
    named = [made for made in formats(used) if sum(u.time_ns for u in used if u.precision is made) >= _NAMED * total]
    roof = f"at the roof ({', '.join(named)})" if named else "at the roof"
    if result.step_ns:
        return f"{roof} this step takes {format_ns(_left_over(result, result.step_ns))}"
    return f"{roof} this window takes {format_ns(_left_over(result, result.scope.window_ns))}"


def slow_products(result: Distance) -> str:
    """That large products of a CPU take much of its time at a fifth or less of the rate of others; "" where none do."""
    if not result.scope.is_cpu:
        return ""
    dense = [
        (use, flops / use.time_ns)
        for use in result.uses
        if use.work.is_matrix
        and use.time_ns
        and (flops := use.least_flops or 0) >= max(_DENSE * (use.n_bytes or 0), _LARGE * use.n_calls)
    ]
    best = max((rate for _, rate in dense), default=0.0)
    slow = [(use, rate) for use, rate in dense if _BEHIND * rate <= best]
    if sum(use.time_ns for use, _ in slow) <= _SLOW * result.work_ns:
        return ""
    use, rate = max(slow, key=lambda one: one[0].time_ns)
    reached = format_quantity(rate, "GFLOP/s")
    return f"{use.operator} of {use.shapes} reaches {reached}, another {format_quantity(best, 'GFLOP/s')}: why?"


def step_sentence(result: Distance) -> str:
    """The same, beside what it takes; "" where too little has a roof."""
    said = at_roof(result)
    return said and f"{said} instead of {format_ns(result.step_ns or result.scope.window_ns)}"


def gain_sentence(result: Distance) -> str:
    """The same, in short where the roof leaves little of the step: then kernels are not what to work on."""
    said = step_sentence(result)
    share = result.scope.fraction(result.left_ns)
    if not said or share >= SEVERITY_FROM[Severity.MEDIUM]:
        return said
    what = "step" if result.step_ns else "window"
    return f"kernels at their roof would shorten this {what} by {format_fraction(share)} only"


def _left_over(result: Distance, whole_ns: int) -> int:
    """What remains of a step, or of the window."""
    left = result.scope.per_step(result.left_ns) if result.step_ns else result.left_ns
    return max(whole_ns - left, 0)


def is_complete(result: Distance) -> bool:
    """Whether the FLOPs of nearly all matrix kernels are known."""
    return result.matrix_known_share is None or result.matrix_known_share >= COMPLETE


def mfu_sentence(result: Distance) -> str:
    """Model FLOPs utilization with what it is of; "" where that is not known."""
    mfu, peak, rate = result.mfu, result.peak, result.peak_flop_per_s
    if mfu is None or peak is None or rate is None or result.precision is None:
        return ""
    least = "" if is_complete(result) else "at least "
    known = result.matrix_known_share
    rest = (
        ""
        if is_complete(result) or known is None
        else f"; FLOPs of {format_fraction(known)} of matrix-kernel time are known"
    )
    hfu = "" if result.hfu is None else f", HFU {format_fraction(result.hfu)} with what is computed again"
    causal = ", causal attention counted in full" if result.masked_flops >= _TOLD * result.flops() else ""
    over = "" if result.scope.has_steps else "over the window "
    of = f"{tera(rate)} ({result.precision.value}, dense, {peak.name}{causal})"
    return f"MFU {over}{least}{format_fraction(mfu)} of {of}{hfu}{rest}"


def told_sentence(result: Distance) -> str:
    """Tokens or samples per second, as the script counted them; "" where it did not."""
    seconds = _seconds(result)
    if not seconds:
        return ""
    return ", ".join(f"{total / seconds:,.0f} {name.replace('_', ' ')}/s" for name, total in result.told.items())


def _seconds(result: Distance) -> float:
    """The window's steps without the profiler, in seconds."""
    faster = result.step_ns / result.recorded_step_ns if result.step_ns and result.recorded_step_ns else 1.0
    return result.scope.window_ns * 1e-9 * faster


def present(result: Distance) -> Section:
    """The numbers and two tables: families, and the operators with most time."""
    return Section(
        title="distance from the roof",
        values=_values(result),
        tables=(_families(result), _operators(result)),
    )


def _values(result: Distance) -> dict[str, object]:
    scope, peak = result.scope, result.peak
    seconds = _seconds(result)
    model, again = result.flops(), result.flops(is_recomputed=True)
    has_roof = peak is not None and not result.above
    return {
        "device": result.device,
        "peak": None if peak is None else peak.name,
        "peak_source": None if peak is None else peak.source,
        "peak_flop_per_s": result.peak_flop_per_s,
        "peak_bytes_per_s": None if peak is None else peak.bytes_per_s,
        "precision": None if result.precision is None else result.precision.value,
        "known_share": result.known_share,
        "judged_share": result.judged_share,
        "matrix_known_share": result.matrix_known_share,
        "model_flops_per_step": scope.per_step(model) if model else None,
        "masked_flops_per_step": scope.per_step(result.masked_flops),
        "recomputed_flops_per_step": scope.per_step(again),
        "flop_per_s": model / seconds if seconds and model else None,
        "mfu": result.mfu,
        "mfu_is_complete": is_complete(result),
        "hfu": result.hfu,
        "left_ns_per_step": scope.per_step(result.left_ns) if has_roof else None,
        "step_at_roof_ns": max(result.step_ns - scope.per_step(result.left_ns), 0)
        if has_roof and result.step_ns
        else None,
        "above_ns": result.above_ns,
        "per_second": {name: total / seconds for name, total in result.told.items()} if seconds else {},
        "summary": roof_summary(result),
    }


def roof_summary(result: Distance) -> str:
    """One line for the page: MFU, tokens per second, the step at the roof, and how much of the work is known."""
    said = [mfu_sentence(result), told_sentence(result)]
    is_known = result.known_share >= BELOW_ROOF.limit("judged")
    if result.scope.is_cpu:
        said.append(_cpu_sentence(result))
    elif result.peak is None:
        whose = f" {result.device}" if result.device else " this device"
        said.append(f"no peak is known for{whose}: rates (-v) have no roof")
    else:
        said.append(gain_sentence(result))
    if not is_known:
        said.append(f"FLOPs or bytes are known of {format_fraction(result.known_share)} of compute time only")
    return "; ".join(filter(None, [*said, carried_sentence(result)]))


def carried_sentence(result: Distance) -> str:
    """Whose shapes these are, where the timed operators were recorded without; else ""."""
    if not result.n_later_steps:
        return ""
    share = format_fraction(result.shapes_carried)
    return f"shapes are from {result.n_later_steps} later steps, which agree on {share} of the operators"


def _cpu_sentence(result: Distance) -> str:
    """What the products of a step reach: a CPU's peak stands in no data sheet that a trace names."""
    products = [use for use in result.uses if use.work.is_matrix and use.flops]
    time_ns = sum(use.time_ns for use in products)
    if not time_ns:
        return ""
    rate = sum(use.least_flops or 0 for use in products) / time_ns
    return f"products of matrices reach {format_quantity(rate, 'GFLOP/s')}, of a CPU whose peak is not known"


def _families(result: Distance) -> TableView:
    scale, unit = _scale(result)
    rows = [
        (
            family.name,
            family.n_calls,
            family.time_ns,
            _rounded(family.flop_per_s if family.name in MATRIX_FAMILIES else None, scale),
            _rounded(family.bytes_per_s, 1e9),
            round(family.roof_ns) if family.judged_ns else None,
            family.share,
        )
        for family in result.families
    ]
    return _table(
        result,
        "achieved rates by family of operators",
        {"family": "text", "calls": "count", "time": "ns", unit: "count", "GB/s": "count"},
        {"at the roof": "ns", "of the roof": "fraction"},
        rows,
        _note(result),
    )


def _operators(result: Distance) -> TableView:
    scale, unit = _scale(result)
    rows = [
        (
            use.operator + (" (again)" if use.is_recomputed else ""),
            use.shapes,
            use.precision.value,
            use.n_calls,
            use.time_ns,
            _rounded(_rate(use.least_flops if use.work.is_matrix else None, use), scale),
            _rounded(_rate(use.n_bytes, use), 1e9),
            None if use.roof_ns is None or not use.time_ns else use.roof_ns / use.time_ns,
            "-" if use.roof is None else use.roof.limit.value,
            use.kernel,
        )
        for use in result.uses[:_MAX_SHOWN]
    ]
    return _table(
        result,
        "operators by time, with their rates",
        {"operator": "text", "shapes": "text", "format": "text"}
        | {"calls": "count", "time": "ns", unit: "count", "GB/s": "count"},
        {"of the roof": "fraction", "limit": "text", "hottest kernel": "text"},
        rows,
        "(again): computed a second time during backward." if any(use.is_recomputed for use in result.uses) else "",
    )


def _table(
    result: Distance,
    title: str,
    columns: dict[str, str],
    of_roof: dict[str, str],
    rows: Sequence[tuple[object, ...]],
    note: str,
) -> TableView:
    """A table whose last columns, those of the roof, are left out where no peak is known."""
    shown = columns if result.peak is None else columns | of_roof
    return TableView.of(title, shown, (row[: len(shown)] for row in rows), note=note)


def _scale(result: Distance) -> tuple[float, str]:
    return (1e9, "GFLOP/s") if result.scope.is_cpu else (1e12, "TFLOP/s")


def _rate(amount: int | None, use: Use) -> float | None:
    return None if amount is None or not use.time_ns else amount * 1e9 / use.time_ns


def _rounded(rate: float | None, scale: float) -> float | None:
    """Three significant digits are enough."""
    return None if rate is None else float(f"{rate / scale:.3g}")


def _note(result: Distance) -> str:
    known = f"FLOPs or bytes are known of {format_fraction(result.known_share)} of compute time"
    if result.peak is None:
        return f"{known}; no peak is known for this device."
    return f"{known}; at the roof: those that have one, with the peaks of {result.peak.name} ({result.peak.source})."
