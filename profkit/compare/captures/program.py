"""What the program does otherwise: number formats, compiled or replayed steps, recomputed activations, other kernels.

Told by what ran, not by how long it took: these readings stand also where the amount of work per step differs. Kinds of
kernels for the same purpose (attention, layouts of convolutions, the optimizer) are told by names, on one side only:
each says what it replaced, and claims the groups of compute that it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from profkit.compare.captures.measured import Measured
from profkit.compare.captures.pair import (
    COMPUTE,
    Pair,
    Reading,
    change,
    counts_moved,
    is_within,
    measure,
    moved,
    reading,
)
from profkit.compare.captures.waterfall import PREFIX, group_of
from profkit.compare.captures.work_rows import OPTIMIZER
from profkit.findings import changes, comparison
from profkit.model.budget import HOST_PARTS
from profkit.model.finding import Evidence
from profkit.model.kernel_names import Precision
from profkit.model.names import family_of
from profkit.units import format_bytes, format_fraction, format_ns, format_signed_ns, format_speedup

_BITS: Final = {
    Precision.FP64: 64,
    Precision.FP32: 32,
    Precision.TF32: 19,
    Precision.BF16: 16,
    Precision.FP16: 16,
    Precision.HALF: 16,
    Precision.FP8: 8,
    Precision.INT8: 8,
    Precision.FP4: 4,
}
"""Bits of an operand that count in a product; tf32 is stored in 32."""
_HALF_BITS: Final = 16
_PRODUCTS: Final = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
_AROUND_PRODUCTS: Final = ("aten::linear", "aten::matmul", "aten::t", "aten::transpose", "aten::as_strided")
"""What calls them, or makes the views that they take: called more often as they are."""
_AS_OFTEN: Final = 0.05
_CAST_NODE: Final = "ToCopyBackward0"
_LOSS: Final = "compare the loss as well: a number format changes the result, not only the speed"
_SCALER_ALONE: Final = (
    "kernels that check and unscale gradients run on one side only; names of matrix kernels do not tell their format"
)
_MATRIX: Final = tuple(PREFIX + name for name in ("matrix", "products_of_attention", "attention"))
_FUSIBLE: Final = tuple(PREFIX + name for name in ("generated", "elementwise", "softmax", "other"))


def precision(pair: Pair) -> Reading | None:
    """The reading that matrix kernels changed their number format."""
    kind = comparison.PRECISION
    scaled = [any(trace.counts.scales_loss for trace in side.traces) for side in pair.sides]
    formats = [] if pair.hidden else _format_shares(pair)
    known = [{name: share for name, share in shares.items() if name in _BITS} for shares in formats]
    matrix_ns = pair.rates(lambda trace: sum(trace.counts.matrix_ns.values()))
    # the smaller side is small where the change made it so
    is_little = all(time < kind.limit("matrix") * step for time, step in zip(matrix_ns, pair.steps_ns, strict=True))
    if is_little or not known or min(sum(shares.values()) for shares in known) < max(kind.limit("known"), 1e-9):
        return _by_scaler(scaled)
    known = [{name: share / sum(shares.values()) for name, share in shares.items()} for shares in known]
    bits = [sum(share * _BITS[Precision(name)] for name, share in shares.items()) for shares in known]
    if scaled[0] != scaled[1] and (bits[1] > bits[0]) == scaled[1]:  # names tell the contrary: they do not tell enough
        return _by_scaler(scaled)
    gains = {name: known[1].get(name, 0) - known[0].get(name, 0) for name in {*known[0], *known[1]}}
    if sum(map(abs, gains.values())) / 2 < kind.limit("shift"):
        return None
    gained = _gained(known)
    if formats[1][gained] * matrix_ns[1] <= formats[0].get(gained, 0) * matrix_ns[0]:
        return _by_scaler(scaled)  # the others went, to kernels whose names tell no format
    named = [" and ".join(f"{name} {format_fraction(share)}" for name, share in _largest(shares)) for shares in formats]
    operand = f"an operand has {moved(bits, lambda mean: f'{mean:.3g}', 'bits')} (mean by time)"
    halves = [sum(share for name, share in shares.items() if _BITS[Precision(name)] <= _HALF_BITS) for shares in known]
    by_format = f"matrix-kernel time by format: {named[0]} -> {named[1]}"
    return reading(
        kind,
        _format_title(known, scaled),
        change(by_format, "half_precision_share", halves, "fraction"),
        change(operand, "operand_bits", bits, "bits"),
        pair.time_shown("matrix kernels", "matrix_kernels", matrix_ns),
        fix=_LOSS,
        confidence=0.8,
        claims=_MATRIX,
    )


def _format_title(known: list[dict[str, float]], scaled: list[bool]) -> str:
    """Which formats, and what that is usually called."""
    was, now = (max(shares, key=lambda name: shares[name]) for shares in known)
    if was == now:
        gained = _gained(known)
        before, after = (format_fraction(shares.get(gained, 0.0)) for shares in known)
        return f"matrix products run in {gained} for {after} of their time, before for {before}"
    called = ""
    if {was, now} == {Precision.FP32, Precision.TF32}:
        called = f" (TF32 is {'on' if now == Precision.TF32 else 'off'})"
    elif scaled[0] != scaled[1]:
        called = f" (mixed precision {'with' if scaled[1] else 'no longer, nor'} a gradient scaler)"
    return f"matrix products run in {now}, before in {was}{called}"


def _gained(known: list[dict[str, float]]) -> str:
    """The format whose share grew most."""
    return max(known[1], key=lambda name: known[1][name] - known[0].get(name, 0))


def _by_scaler(scaled: list[bool]) -> Reading | None:
    """Mixed precision in fp16, by its gradient scaler alone."""
    if scaled[0] == scaled[1]:
        return None
    return reading(
        comparison.PRECISION,
        f"a gradient scaler {'runs' if scaled[1] else 'no longer runs'}: mixed precision in fp16 is"
        f" {'on' if scaled[1] else 'off'}",
        change(_SCALER_ALONE, "scaler", scaled, "flag"),
        fix=_LOSS,
        confidence=0.7,
        claims=_MATRIX,
    )


def _format_shares(pair: Pair) -> list[dict[str, float]]:
    """The share of matrix-kernel time by format on both sides, 0-1; empty without matrix kernels."""
    times = pair.rates_by_name(lambda trace: trace.counts.matrix_ns)
    totals = [sum(both[side] for both in times.values()) for side in (0, 1)]
    return [
        {name: both[side] / total for name, both in times.items() if both[side]} for side, total in enumerate(totals)
    ]


def _largest(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(((name, share) for name, share in shares.items() if share >= 0.05), key=lambda item: -item[1])[:2]


def casts(pair: Pair) -> Reading | None:
    """Casts that are differentiated on one side only: mixed precision, where no kernel name tells the format."""
    nodes = pair.rates(lambda trace: _n_rows(trace, _CAST_NODE))
    if not pair.is_cpu or min(nodes) > 0 or max(nodes) < comparison.CASTS.limit("casts"):
        return None
    is_on = nodes[1] > nodes[0]
    return reading(
        comparison.CASTS,
        f"tensors are {'' if is_on else 'no longer '}cast to another number format",
        pair.counted("casts in the backward pass", "cast_nodes", lambda trace: _n_rows(trace, _CAST_NODE)),
        pair.counted("casts and moves", "casts", lambda trace: _n_rows(trace, "aten::_to_copy")),
        pair.part_shown("compute"),
        fix="compare the loss as well: a number format changes the result; record types and shapes with --shapes",
        confidence=0.6,
        claims=COMPUTE,
    )


def _n_rows(trace: Measured, name: str) -> int:
    """How many compute rows have this name."""
    return int(trace.compute.of(lambda work: work.name == name).sum())


def compiled(pair: Pair) -> Reading | None:
    """Generated kernels on one side only, or many more of them, or replayed graphs."""
    kind = comparison.COMPILED
    generated = pair.rates(lambda trace: trace.counts.compiled_ns)
    shares = [time / max(whole, 1) for time, whole in zip(generated, pair.compute_busy_ns, strict=True)]
    is_compiled = [share >= kind.limit("generated") for share in shares]
    is_more = all(is_compiled) and abs(shares[1] - shares[0]) >= kind.limit("more")
    launches = pair.rates(lambda trace: trace.counts.launches)
    graphs = pair.rates(_replays)
    saves_launches = abs(launches[1] - launches[0]) >= kind.limit("launches") * max(launches)
    is_replayed = [rate >= 1 and saves_launches for rate in graphs]
    has_kernels = is_compiled[0] != is_compiled[1] or is_more
    has_graphs = is_replayed[0] != is_replayed[1]
    if not has_kernels and not has_graphs:
        return None
    now = int(shares[1] > shares[0]) if has_kernels else int(is_replayed[1])
    ways = []
    if has_kernels:
        by = " and ".join(sorted({name for trace in pair.sides[now].traces for name in trace.counts.generators}))
        ways.append(f"compiled ({by})" if by else "compiled")
    if has_graphs and is_replayed[now]:
        ways.append("replayed as CUDA graphs")
    how = " and ".join(ways)
    title = f"the work is {how}" if now else f"the work is no longer {how}"
    if is_more:
        title = f"{'more' if now else 'less'} of the work is {how}"
    claims = COMPUTE if not pair.shows_kernels else _FUSIBLE if has_kernels else ()
    return reading(
        kind,
        title,
        *([_generated(pair, generated)] if has_kernels else []),
        pair.operations_shown(),
        *([] if pair.is_cpu else [pair.launches_shown()]),
        *([pair.counted("graph replays", "graph_launches", _replays)] if has_graphs else []),
        _device_and_host(pair),
        fix="compare steady steps only: the first ones compile"
        if has_kernels
        else "keep it: replays save what the host takes to launch, and hide no wait for data"
        if now
        else "capture the step in a CUDA graph again, unless its shapes vary",
        confidence=0.8,
        claims=(*claims, *HOST_PARTS),
    )


def _generated(pair: Pair, times: tuple[float, float]) -> Evidence:
    said = f"{'calls of compiled graphs' if pair.is_cpu else 'generated kernels'} {moved(times, format_ns)}"
    if pair.shows_kernels:
        others = pair.rates(lambda trace: trace.compute.time_ns(lambda work: group_of(work) == "elementwise"))
        said += f", other elementwise ones {moved(others, format_ns)}"
    return change(f"{said} {pair.per}", "compiled", times)


def _device_and_host(pair: Pair) -> Evidence:
    host = sum(pair.waterfall.bar(name).delta_ns for name in HOST_PARTS)
    device = pair.waterfall.bar("compute").delta_ns
    waiting = pair.part_name(*HOST_PARTS)
    said = f"compute {format_signed_ns(device)}, {waiting} {format_signed_ns(host)} {pair.per}"
    return measure(said, "compute_and_host_change_ns", device + host)


def _replays(trace: Measured) -> int:
    return trace.counts.graph_launches


def recomputed(pair: Pair) -> Reading | None:
    """The reading that forward operators (no longer) run again in the backward pass: activation checkpointing."""
    inside = pair.rates(lambda trace: trace.counts.recomputed)
    outside = pair.rates(lambda trace: trace.counts.forward)
    # some may run again more than once: not even all of them can be more than all
    shares = [min(part / whole, 1.0) if whole else 0.0 for part, whole in zip(inside, outside, strict=True)]
    least = comparison.RECOMPUTE.limit("share")
    if abs(shares[1] - shares[0]) < least or min(shares) > least / 2:
        return None
    said = f"{moved(shares, format_fraction)} of the forward operators run again inside the backward pass"
    is_on = shares[1] > shares[0]
    return reading(
        comparison.RECOMPUTE,
        "activations are recomputed in the backward pass"
        if is_on
        else "activations are no longer recomputed in the backward pass",
        change(said, "recomputed_share", shares, "fraction"),
        pair.part_shown("compute"),
        *_peaks(pair),
        fix="use the memory it frees (a larger batch), or leave it off where the activations fit"
        if is_on
        else "make sure that the activations fit with room to spare: memory pressure costs more than recomputing",
        confidence=0.8,
        claims=COMPUTE,
    )


def products(pair: Pair) -> Reading | None:
    """The reading that matrix products are called more, or less, often while most operators are called as before."""
    kind = comparison.PRODUCTS
    calls = pair.rates(_n_products)
    least = kind.limit("ratio")
    if min(calls) <= 0 or max(calls) < least * min(calls) or _share_alike(pair) < kind.limit("alike"):
        return None
    if any(read(pair) is not None for read in (compiled, recomputed, attention)):
        return None  # that says why
    return reading(
        kind,
        f"matrix products are called {format_speedup(calls[1] / calls[0])} as often",
        pair.counted("calls of matrix products", "product_calls", _n_products),
        *([_each_product(pair, calls)] if pair.is_cpu else []),  # of a device the kernels are many per call
        pair.part_shown("compute"),
        *_peaks(pair),
        fix="where something is computed in pieces (a loss in chunks, a loop): larger pieces need fewer calls, and"
        " more memory"
        if calls[1] > calls[0]
        else "compare peak memory as well: larger pieces need more of it",
        confidence=0.6,
        claims=(*COMPUTE, *(HOST_PARTS if pair.is_cpu else ())),
    )


def _n_products(trace: Measured) -> int:
    return sum(trace.op_calls.get(name, 0) for name in _PRODUCTS)


def _share_alike(pair: Pair) -> float:
    """The share (0-1) of the other kinds of operators that both sides call equally often; 0 where there are none."""
    calls = pair.rates_by_name(lambda trace: trace.op_calls)
    rates = [both for name, both in calls.items() if name not in (*_PRODUCTS, *_AROUND_PRODUCTS)]
    alike = sum(abs(after - before) <= _AS_OFTEN * before for before, after in rates)
    return alike / len(rates) if rates else 0.0


def _each_product(pair: Pair, calls: tuple[float, float]) -> Evidence:
    """What one call takes on a CPU, on both sides."""
    times = [0.0, 0.0]
    for name in _PRODUCTS:
        rates = pair.rates(lambda trace: trace.compute.time_ns(lambda work: work.name == name))  # noqa: B023
        times = [time + rate for time, rate in zip(times, rates, strict=True)]
    each = [time / n for time, n in zip(times, calls, strict=True)]
    return change(f"a call takes {moved(each, format_ns)} on average", "product_call", each)


def _peaks(pair: Pair) -> list[Evidence]:
    """Peak memory on both sides, where both told it."""
    before, after = (side.peak_bytes for side in pair.sides)
    if not before or not after:
        return []
    return [change(f"peak memory {moved((before, after), format_bytes)}", "peak_bytes", (before, after), "bytes")]


_GONE: Final = 0.1
"""Of the time on the other side, up to which a kind of kernels is gone. Chosen."""
_FUSED_ATTENTION: Final = (
    ("FlashAttention", re.compile(r"flash_?(?:fwd|bwd|attn|attention)|flash::|FlashAttn", re.IGNORECASE)),
    ("memory-efficient attention", re.compile(r"fmha_cutlass|AttentionKernel|AttentionBackwardKernel|mem_eff")),
    ("cuDNN's attention", re.compile(r"cudnn_generated\w*_sdpa|cudnn\w*fmha|fmha_v2", re.IGNORECASE)),
    ("FlexAttention", re.compile(r"triton_\w*flex_attention")),
)
_FUSED: Final = re.compile(
    r"Fused(?:Adam|Sgd|SGD|Adagrad|Optimizer)|fused_(?:adam|sgd|adagrad|lamb)|multi_tensor_(?:adam|sgd|lamb)"
    r"|\b(?:Adam|SGD|LAMB|NovoGrad|Adagrad|Lion)\w*(?:Capturable\w*)?Functor|cpu_adam",
    re.IGNORECASE,
)
_FOREACH: Final = re.compile(r"(?:PointwiseOp|TernaryOp)\w*Functor|BinaryOpListAlphaFunctor|_foreach_(?:addc|lerp)")
_LOOP: Final = re.compile(r"addcdiv|addcmul")
_LOOPED: Final = "a loop over tensors"
_IMPLEMENTATIONS: Final = (("fused", _FUSED), ("foreach", _FOREACH), (_LOOPED, _LOOP))
"""By kernels and operators of torch, apex and DeepSpeed. Clipping and scaling of gradients run foreach kernels of other
functors."""


def attention(pair: Pair) -> Reading | None:
    """Attention runs as one kernel on one side only."""
    if not pair.shows_kernels:
        return None
    times = {name: pair.spent_ns(lambda work: bool(one.search(work.name))) for name, one in _FUSED_ATTENTION}  # noqa: B023
    total = [sum(time[side] for time in times.values()) for side in (0, 1)]
    now = _turned_on(pair, total, changes.ATTENTION.limit("share"))
    if now is None:
        return None
    name = max(times, key=lambda name: times[name][now])
    groups = ("attention", "products_of_attention", "softmax")
    in_all = pair.spent_ns(lambda work: group_of(work) in groups)
    return reading(
        changes.ATTENTION,
        f"attention {'runs' if now else 'no longer runs'} as one kernel ({name})",
        pair.time_shown("fused attention kernels", "fused_attention", total),
        pair.time_shown("attention, softmax and their products in all", "attention", in_all),
        fix="keep it; longer sequences gain more"
        if now
        else "check dtype, mask and head size: they decide which kernel is taken",
        confidence=0.8,
        claims=tuple(PREFIX + name for name in groups),
    )


def layout(pair: Pair) -> Reading | None:
    """Convolutions (no longer) convert the layout of their tensors."""
    if not pair.shows_kernels:
        return None
    times = pair.spent_ns(lambda work: group_of(work) == "layout")
    is_more = _turned_on(pair, times, changes.CHANNELS.limit("share"))
    n = pair.launched(lambda work: work.family == "convolution")
    if is_more is None or not is_within(changes.CHANNELS.limit("convolutions"), n):
        return None
    return reading(
        changes.CHANNELS,
        "convolutions convert the layout of their tensors"
        if is_more
        else "convolutions no longer convert the layout of their tensors (channels_last)",
        pair.time_shown("conversions between NCHW and NHWC", "layout", times),
        fix="keep model and batches in channels_last"
        if is_more
        else "keep all tensors of the model in channels_last: one that is not converts again",
        confidence=0.8,
        claims=(PREFIX + "layout",),
    )


def optimizer(pair: Pair) -> Reading | None:
    """The optimizer's implementation: a loop over tensors, foreach, fused.

    Elementwise kernels are its own where no range tells which of them it launched.
    """
    named = [_implementation(pair, side) for side in (0, 1)]
    if not pair.shows_kernels or named[0] == named[1] or not all(named) or not {"fused", "foreach"} & set(named):
        return None
    is_marked = any(work.family == OPTIMIZER != family_of(work.name) for side in pair.uses for work in side)
    groups = ("optimizer",) if is_marked else ("optimizer", "elementwise")
    times, calls = (of(lambda work: group_of(work) in groups) for of in (pair.spent_ns, pair.launched))
    what = f"kernels of the optimizer{'' if is_marked else ' and elementwise ones'}"
    said = f"{what} {moved(times, format_ns, pair.per)} (launches {counts_moved(calls)})"
    return reading(
        changes.UPDATES,
        f"the optimizer is {named[1]}, before {named[0]}",
        change(said, "optimizer", times),
        fix="keep it"
        if named[1] == "fused"
        else "fused=True updates all tensors in one kernel, where the optimizer has it",
        confidence=0.8,
        claims=tuple(PREFIX + name for name in groups),
    )


def _implementation(pair: Pair, side: int) -> str:
    """How weights are updated: by kernels, or by operators where those were recorded; "" where nothing tells."""
    names = {work.name for work in pair.uses[side]}
    names |= {name for trace in pair.sides[side].traces for name in trace.op_calls}
    is_marked = any(trace.counts.optimizer_steps for trace in pair.sides[side].traces)
    least = changes.UPDATES.limit("named")
    found = (name for name, pattern in _IMPLEMENTATIONS if sum(map(bool, map(pattern.search, names))) >= least)
    return next(found, _LOOPED if is_marked else "")


def _turned_on(pair: Pair, times: Sequence[float], least: float) -> int | None:
    """1 where something is there on the candidate's side only, 0 on the baseline's, None where neither."""
    for side in (1, 0):
        if times[side] >= least * pair.steps_ns[side] and times[1 - side] <= _GONE * times[side]:
            return side
    return None
