"""What kind of kernels the program runs for the same purpose: attention, layouts of convolutions, the optimizer.

Told by names, on one side only. Each says what it replaced, and claims the groups of compute that it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from profkit.compare.captures.pair import Pair, Reading, change, counts_moved, is_within, moved, reading
from profkit.compare.captures.waterfall import PREFIX, group_of
from profkit.compare.captures.work_rows import OPTIMIZER
from profkit.findings import changes
from profkit.model.names import family_of
from profkit.units import format_ns

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
