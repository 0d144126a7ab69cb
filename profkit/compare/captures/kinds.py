"""What kind of kernels the program runs for the same purpose: attention, layouts of convolutions, the optimizer.

Told by names, on one side only. Each says what it replaced, and claims the groups of compute that it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from profkit.compare.captures.groups import PREFIX, group_of
from profkit.compare.captures.measured import Measured
from profkit.compare.captures.pair import Pair, Reading, moved, reading
from profkit.compare.captures.waterfall import Use, uses
from profkit.compare.captures.work_rows import OPTIMIZER, Rows, Work
from profkit.findings import changes
from profkit.model.finding import Evidence
from profkit.model.names import family_of
from profkit.units import format_count, format_ns

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


def readings(pair: Pair) -> tuple[Reading, ...]:
    """The kinds that changed."""
    found = (attention(pair), *(() if pair.is_cpu or pair.hidden else (layout(pair), optimizer(pair))))
    return tuple(item for item in found if item is not None)


def attention(pair: Pair) -> Reading | None:
    """Attention runs as one kernel on one side only."""
    if pair.is_cpu or pair.hidden:
        return None
    times = {
        name: [_time(pair, side, lambda work, one=one: bool(one.search(work.name))) for side in (0, 1)]  # type: ignore[misc]
        for name, one in _FUSED_ATTENTION
    }
    total = [sum(time[side] for time in times.values()) for side in (0, 1)]
    now = _turned_on(pair, total[0], total[1], changes.ATTENTION.limit("share"))
    if now is None:
        return None
    name = max(times, key=lambda name: times[name][now])
    groups = ("attention", "products_of_attention", "softmax")
    return reading(
        changes.ATTENTION,
        f"attention {'runs' if now else 'no longer runs'} as one kernel ({name})",
        evidence=(
            _moved(pair, "fused attention kernels", "fused_attention", total),
            _moved(
                pair,
                "attention, softmax and their products in all",
                "attention",
                [_time(pair, side, lambda work: group_of(work) in groups) for side in (0, 1)],
            ),
        ),
        fix="keep it; longer sequences gain more"
        if now
        else "check dtype, mask and head size: they decide which kernel is taken",
        confidence=0.8,
        claims=tuple(PREFIX + name for name in groups),
    )


def layout(pair: Pair) -> Reading | None:
    """Convolutions (no longer) convert the layout of their tensors."""
    times = [_time(pair, side, lambda work: group_of(work) == "layout") for side in (0, 1)]
    is_more = _turned_on(pair, times[0], times[1], changes.CHANNELS.limit("share"))
    n = [_count(pair, side, lambda work: work.family == "convolution") for side in (0, 1)]
    if is_more is None or min(n) < (1 - changes.CHANNELS.limit("convolutions")) * max(n):
        return None
    return reading(
        changes.CHANNELS,
        "convolutions convert the layout of their tensors"
        if is_more
        else "convolutions no longer convert the layout of their tensors (channels_last)",
        evidence=(_moved(pair, "conversions between NCHW and NHWC", "layout", times),),
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
    if named[0] == named[1] or not all(named) or not {"fused", "foreach"} & set(named):
        return None
    works = [work for side in pair.sides for trace in side.traces for work in trace.compute.works]
    is_marked = any(work.family == OPTIMIZER != family_of(work.name) for work in works)
    groups = ("optimizer",) if is_marked else ("optimizer", "elementwise")
    times = [_time(pair, side, lambda work: group_of(work) in groups) for side in (0, 1)]
    counts = [_count(pair, side, lambda work: group_of(work) in groups) for side in (0, 1)]
    calls = moved(*(format_count(round(count, 1)) for count in counts))
    what = f"kernels of the optimizer{'' if is_marked else ' and elementwise ones'}"
    return reading(
        changes.UPDATES,
        f"the optimizer is {named[1]}, before {named[0]}",
        evidence=(
            Evidence(
                statement=f"{what} {moved(*map(format_ns, times), of=pair.per)} (launches {calls})",
                metric="compare.optimizer_change_ns",
                value=float(times[1] - times[0]),
                unit="ns",
            ),
        ),
        fix="keep it"
        if named[1] == "fused"
        else "fused=True updates all tensors in one kernel, where the optimizer has it",
        confidence=0.8,
        claims=tuple(PREFIX + name for name in groups),
    )


def _implementation(pair: Pair, side: int) -> str:
    """How weights are updated: by kernels, or by operators where those were recorded; "" where nothing tells."""
    names = {work.name for trace in pair.sides[side].traces for work in trace.compute.works}
    names |= {name for trace in pair.sides[side].traces for name in trace.op_calls}
    is_marked = any(trace.counts.optimizer_steps for trace in pair.sides[side].traces)
    least = changes.UPDATES.limit("named")
    found = (name for name, pattern in _IMPLEMENTATIONS if sum(map(bool, map(pattern.search, names))) >= least)
    return next(found, _LOOPED if is_marked else "")


def _turned_on(pair: Pair, before: float, after: float, least: float) -> int | None:
    """1 where something is there on the candidate's side only, 0 on the baseline's, None where neither."""
    steps = pair.waterfall.baseline_ns, pair.waterfall.candidate_ns
    if after >= least * steps[1] and before <= _GONE * after:
        return 1
    return 0 if before >= least * steps[0] and after <= _GONE * before else None


def _moved(pair: Pair, what: str, metric: str, times: Sequence[float]) -> Evidence:
    return Evidence(
        statement=f"{what} {moved(*map(format_ns, times), of=pair.per)}",
        metric=f"compare.{metric}_change_ns",
        value=float(times[1] - times[0]),
        unit="ns",
    )


def _time(pair: Pair, side: int, chosen: Callable[[Work], bool]) -> int:
    return sum(use.total_ns for work, use in _uses(pair, side).items() if chosen(work))


def _count(pair: Pair, side: int, chosen: Callable[[Work], bool]) -> float:
    return float(sum(use.count for work, use in _uses(pair, side).items() if chosen(work)))


def _uses(pair: Pair, side: int) -> dict[Work, Use]:
    return uses(pair.runs[side], _compute)[0]


def _compute(trace: Measured) -> Rows:
    return trace.compute
