"""The all-reduces of DistributedDataParallel's gradient buckets: which requests these are, and what they move."""

from __future__ import annotations

import math
import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, is_one_of, place_among
from profkit.model.trace import CpuOps, Spans, Trace
from profkit.redact.later import later
from profkit.timeline.collectives import UNKNOWN, element_bytes
from profkit.timeline.host import BACKWARD_NODE, enclosing_op

NODE: Final = f"{BACKWARD_NODE}: torch::autograd::AccumulateGrad"
REQUEST: Final = "c10d::allreduce_"
DDP_PASS: Final = later(r"^DistributedDataParallel\.forward$")
_DDP: Final = re.compile(r"DistributedDataParallel\.forward|\bddp\.reducer::")
_GRADIENT: Final = "torch::autograd::AccumulateGrad"
_MOST_BYTES: Final = 2**50


def named(trace: Trace, table: CpuOps, name: str) -> NDArray[np.intp]:
    """The operators of this name."""
    codes = [code for code, text in enumerate(trace.strings) if text == name]
    return np.flatnonzero(is_one_of(table.name, codes))


def bucket_requests(trace: Trace) -> NDArray[np.intp]:
    """The all-reduces asked for where a gradient became ready.

    Not FSDP's, ZeRO's or tensor parallelism's, nor the script's.
    """
    if not any(map(_DDP.search, trace.strings)):
        return np.empty(0, np.intp)
    ops = trace.ops
    asked, nodes = named(trace, ops, REQUEST), named(trace, ops, NODE)
    around = enclosing_op(ops.take(nodes), ops.thread[asked], ops.start_ns[asked])
    return asked[around >= 0]


def ddp_passes(trace: Trace) -> Spans:
    """The forward passes of DistributedDataParallel."""
    return trace.spans.take(np.flatnonzero(trace.named(trace.spans.name, DDP_PASS)))


def kernel_of_each(trace: Trace, rows: NDArray[np.intp], requests: NDArray[np.intp]) -> NDArray[np.intp] | None:
    """Of these device rows the one that each request launched, in their order; None unless each launched one."""
    rows = rows[trace.gpu.launch_row[rows] >= 0]
    launch = trace.gpu.launch_row[rows]
    of = enclosing_op(trace.ops.take(requests), trace.calls.thread[launch], trace.calls.start_ns[launch])
    rows, of = rows[of >= 0], of[of >= 0]
    order = np.argsort(of, kind="stable")
    return rows[order] if np.array_equal(of[order], np.arange(requests.size)) else None


def argument_bytes(trace: Trace, requests: NDArray[np.intp]) -> I64:
    """The bytes of the tensors that each request is given, by recorded shapes; `UNKNOWN` without.

    Their type is that of the gradient that was accumulated last before.
    """
    ops = trace.ops
    gradients = named(trace, ops, _GRADIENT)
    place = place_among(ops.start_ns[gradients], ops.start_ns[requests], after=True) - 1
    if gradients.size == 0 or bool((place < 0).any()):
        return np.full(requests.size, UNKNOWN, np.int64)
    pairs = zip(ops.signature[requests].tolist(), ops.signature[gradients[place]].tolist(), strict=True)
    return np.array([_moved(trace, *pair) for pair in pairs], np.int64)


def _moved(trace: Trace, request: int, gradient: int) -> int:
    """The bytes of one list of tensors, whose elements are of a gradient's type."""
    list_of, typed = (trace.signatures[code] if code >= 0 else None for code in (request, gradient))
    if list_of is None or typed is None or not typed.types:
        return UNKNOWN
    width, tensors = element_bytes(typed.types[0]), list_of.listed(0)
    if width == UNKNOWN or not tensors:
        return UNKNOWN
    return min(int(width * sum(math.prod(one) for one in tensors)), _MOST_BYTES)
