"""Operators that take a slow way: those that exist for a fall-back alone, and naive kernels."""

from __future__ import annotations

import re
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.patterns.ranges import Ranges, around_launches, codes_with
from profkit.model.arrays import distinct, distinct_codes, is_one_of
from profkit.model.signature import Signature
from profkit.model.trace import Trace
from profkit.redact.later import later
from profkit.timeline import Facts

_NAIVE: Final = later(r"^naive_conv")
_INDEX_PUT: Final = r"^aten::_?index_put_(?:impl_)?$"
_ACCUMULATING: Final = later(r"indexing_backward")
"""The kernels of torch that add up values of one index, after a sort."""
_ACCUMULATE_ARGUMENT: Final = 3
_SLOW_PATHS: Final = {
    r"^aten::(?:_slow_conv2d_forward|thnn_conv2d|slow_conv\w+|_slow_conv\w+)$": "{} copies into columns and multiplies: have"
    " oneDNN take it on a CPU (torch.backends.mkldnn.is_available(), float32 or bfloat16, no unusual layout), cuDNN on a"
    " GPU (a type and a dilation that it takes), or compile the model",
    _INDEX_PUT: "{} sorts its indices and adds one by one: use index_select, F.embedding or gather"
    " for what is learned, index_add_ or scatter_add_ where order does not matter",
    r"^aten::embedding_renorm_$": "{} (max_norm) takes the norm of each row apart at every look-up: limit norms every few"
    " hundred steps, or normalise what was looked up",
    r"^aten::_conv_depthwise2d$": "{} runs without cuDNN: channels_last and half precision have depthwise kernels there",
}
"""Operators that exist for a fall-back alone, and what there is against each."""
_SLOW_2D: Final = later(r"^aten::(?:_slow_conv2d_(?:forward|backward)|thnn_conv2d)$")
_OF_FILTERS: Final = 2
"""The axis of a convolution's weight from which on it has the size of a filter."""
_OTHER_PATH: Final = "{} runs MIOpen's naive kernels: let it search (MIOPEN_FIND_MODE=NORMAL), or use a type and layout it has kernels for"


def slow_paths(facts: Facts) -> Ranges:
    """Operators that exist for a fall-back alone, and those that launch MIOpen's naive kernels."""
    trace, ops = facts.trace, facts.trace.ops
    rows = np.flatnonzero(
        trace.named(ops.name, re.compile("|".join(sign for sign in _SLOW_PATHS if sign != _INDEX_PUT)))
    )
    if facts.cpu is not None:
        rows = rows[~is_one_of(ops.name[rows], _names_of_pointwise(trace))]
    naive = around_launches(facts, _NAIVE)
    return Ranges.of(ops, distinct(np.concatenate((rows, naive, _accumulating(facts)))), trace.window_ns)


def _names_of_pointwise(trace: Trace) -> list[int]:
    """Codes of names of which all calls with known shapes are 1x1 convolutions, which copy no columns.

    A name goes out whole: the timed steps need not have shapes. One larger filter, and all its calls stay.
    """
    told = trace.again if trace.again is not None and trace.again.signatures else trace
    mine = np.flatnonzero(told.named(told.ops.name, _SLOW_2D) & (told.ops.signature >= 0))
    n = max(len(told.signatures), 1)
    pairs = distinct(told.ops.name[mine].astype(np.int64) * n + told.ops.signature[mine]).tolist()
    calls = [(told.name(pair // n), told.signatures[pair % n]) for pair in pairs]
    others = {name for name, given in calls if not _is_pointwise(name, given)}
    names = {name for name, _ in calls} - others
    return [code for code in distinct_codes(trace.ops.name).tolist() if trace.name(code) in names]


def _is_pointwise(name: str, given: Signature | None) -> bool:
    weight = given.shape(2 if name.endswith("backward") else 1) if given is not None else ()
    return len(weight) > _OF_FILTERS and prod(weight[_OF_FILTERS:]) == 1


def _accumulating(facts: Facts) -> NDArray[np.int64]:
    """Assignments by index that add up what has one index: by their kernels, on a CPU by their fourth argument."""
    if facts.trace.device_indices:
        return around_launches(facts, _ACCUMULATING)
    trace, ops = facts.trace, facts.trace.ops
    rows = np.flatnonzero(trace.named(ops.name, re.compile(_INDEX_PUT)))
    return rows[is_one_of(ops.signature[rows], codes_with(trace, _ACCUMULATE_ARGUMENT))]


def fix_of_slow_paths(facts: Facts, found: Ranges) -> str:
    """What there is against the slow way that takes most of the time."""
    name = found.longest_name(facts.trace)
    fix = next((fix for sign, fix in _SLOW_PATHS.items() if re.search(sign, name)), _OTHER_PATH)
    return fix.format(name)
