"""The batches of a rank: how large they are, by the shapes its first layer is given, and where they are made."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import is_one_of
from profkit.model.code import Phase
from profkit.model.intervals import Intervals
from profkit.model.trace import Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code import Rows, code_of, shares
from profkit.timeline.cpu import training_threads
from profkit.timeline.steps import step_of

_LAYER: Final = later(
    r"^aten::(embedding|embedding_bag|linear|addmm|mm|matmul|conv[123]d|convolution|lstm|gru|rnn_tanh)$"
)
_AFTER_WEIGHTS: Final = ("aten::embedding", "aten::embedding_bag")
"""What these look up is their second argument, else the input is the first."""
_STEPPING: Final = later(r"^Optimizer\.step#")
_MOST: Final = 8
"""Steps whose shapes are kept. Chosen: enough for a sentence."""

Shape = tuple[int, ...]


def first_inputs(trace: Trace) -> tuple[Shape, ...]:
    """The shape of the first layer's input by step, of later steps where these alone have shapes; () if unknown."""
    source = trace.again if trace.again is not None and trace.again.signatures else trace
    steps, ops = source.steps, source.ops
    rows = _layers(source) if source.signatures and steps else np.empty(0, np.intp)
    rows = rows[np.argsort(ops.start_ns[rows], kind="stable")]
    place = step_of(ops.start_ns[rows], steps)
    _, first = np.unique(place, return_index=True)
    found = tuple(_input(source, int(rows[at])) for at in first if place[at] >= 0)
    names = {source.name(int(ops.name[rows[at]])) for at in first if place[at] >= 0}
    return () if len(names) != 1 or any(shape is None for shape in found) else tuple(s for s in found if s)[:_MOST]


def batch_place(facts: Facts) -> str:
    """The user's line with most time in operators from the optimizer's step to the next first layer; "" if unknown.

    A batch is made there, whichever side of it a step begins on.
    """
    if facts.cpu is None or facts.code is None:
        return ""
    again = facts.trace.again  # of other batches than the timed ones, some of whose operators have no place by it
    trace = facts.trace if again is None else again
    code = facts.code if again is None else code_of(again)
    if code is None:
        return ""
    ops = trace.ops
    layers = np.sort(ops.start_ns[_layers(trace)])
    stepping = [number for number, text in enumerate(trace.strings) if _STEPPING.search(text)]
    since = np.sort(np.append(trace.spans.end_ns[is_one_of(trace.spans.name, stepping)], trace.window_ns[0]))
    until = np.append(layers, trace.window_ns[1])[np.searchsorted(layers, since)]
    rows = np.flatnonzero(Intervals.of(since, until).contains(ops.start_ns))
    rows = rows[np.isin(ops.thread[rows], training_threads(trace))]
    rows = rows[code.at(ops.thread[rows], ops.start_ns[rows]).phase == Phase.OTHER]
    found = shares(code, Rows.of_ops(trace, rows, ops.end_ns[rows] - ops.start_ns[rows]), 1)
    return found[0].place.words if found else ""


def _layers(trace: Trace) -> NDArray[np.intp]:
    """The operators that may be a first layer."""
    return np.flatnonzero(trace.named(trace.ops.name, _LAYER))


def _input(trace: Trace, row: int) -> Shape | None:
    code = int(trace.ops.signature[row])
    signature = trace.signatures[code] if code >= 0 else None
    at = 1 if trace.name(int(trace.ops.name[row])) in _AFTER_WEIGHTS else 0
    shape = signature.shape(at) if signature is not None else ()
    return shape if shape and max(shape) < 2**40 else None
