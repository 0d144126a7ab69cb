"""What a recording is of: PyTorch or another program; a device of which it holds nothing, or one that nobody uses.

Or of no job at all: exports that are pictures of a recording.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.errors import UnsupportedTraceError
from profkit.model.arrays import distinct, distinct_codes, is_one_of
from profkit.model.names import WHOLE_GRAPH, is_inductors
from profkit.model.trace import CallKind, Kind, Trace
from profkit.plain import clean
from profkit.redact.later import later

EXPORT: Final = "profkit_export"
"""The key under which a file says that `profkit export` wrote it, and of what."""
METAL: Final = "Apple's GPU (MPS)"
_UNRECORDED: Final = (
    (METAL, later(r"mps|^aten::linear_backward$|^(?:autograd::\S+ )?LinearBackward0$")),
    ("an Intel GPU (XPU)", later(r"^(?:xpu|aten::_?xpu|torch_ipex)|::xpu")),
    ("an Ascend NPU", later(r"^(?:npu|aten::npu|torch_npu|aclnn|_C10D_NPU)", re.IGNORECASE)),
    ("a Gaudi accelerator (HPU)", later(r"^(?:hpu|hccl|habana)", re.IGNORECASE)),
    ("an MTIA accelerator", later(r"^mtia", re.IGNORECASE)),
    ("a device of XLA", later(r"^(?:xla|torch_xla)", re.IGNORECASE)),
    (
        "a CUDA device",
        later(
            r"^aten::_?(?:cudnn|miopen)_(?!is_acceptable$)|^aten::_(?:flash|efficient)_attention_(?:forward|backward)$|^nccl:"
        ),
    ),
)
"""What a program runs on by operators and ranges that exist for it alone. MPS has a linear operator of its own, where
others multiply matrices (aten/src/ATen/native/Linear.cpp and derivatives.yaml of torch: linear_backward is for MPS).
Recurrent layers ask on every device whether cuDNN would take them (RNN.cpp: cudnn_is_acceptable)."""
_OF_TORCH: Final = later(r"(?<!\w)at::")
"""The namespace of its kernels; `genericReformat::` of TensorRT ends like it."""
_NESTED: Final = later(r"nested", re.IGNORECASE)
"""Nested tensors have that operator as well."""
_COMPUTES: Final = later(r"^aten::(?:\w*(?:mm|linear|conv\w*|matmul|relu|norm|gelu|softmax|mul|add|clamp\w*)_?)$")
_FILLS: Final = later(r"^aten::(?:uniform_|normal_|bernoulli_|pow|exp|sub|div|sum|mean)$")
"""What else computes where nothing says that there is another device: some of these wait for a queue that is full."""
_USES: Final = (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH, CallKind.COPY, CallKind.ALLOC)
"""Calls that use a device. A profiler that ends asks for devices and waits for them where nothing ran, too."""
_LONG_NS: Final = 1_000_000
"""What an operator on a device never takes on the host, but for its first call. Chosen: launching takes 0.01 ms."""
_MOSTLY: Final = 0.5
_TO_COPY: Final = later(r"^aten::_to_copy$")
_NEW: Final = later(r"^aten::empty_strided$")
_COPY: Final = later(r"^aten::copy_$")
_FORMAT: Final = 1
"""The place of a new number format among the arguments of aten::_to_copy."""
_AGAIN: Final = 3
_MUCH: Final = 0.1
"""Of the window: conversions take less. Chosen, both."""


def refuse_drawn(trace: Trace) -> None:
    """Raise UnsupportedTraceError for an export that is a picture: of one chosen moment, or of another tool's rows."""
    told = trace.meta.metadata.get(EXPORT)
    if not isinstance(told, dict):
        return
    if told.get("around"):
        raise UnsupportedTraceError(
            f"{trace.meta.source} holds the moments around {clean(str(told['around']))} that `profkit export --around`"
            " chose, which are no usual step",
            hint="profkit triage on the whole trace; profkit open shows these moments",
        )
    if told.get("drawn_from"):
        raise UnsupportedTraceError(
            f"{trace.meta.source} holds what `profkit export` drew of a recording by {clean(str(told['drawn_from']))}",
            hint="profkit triage on that recording; profkit open shows this file",
        )


def is_of_torch(trace: Trace) -> bool:
    """Whether PyTorch ran, or may have: kernels are not recorded by name, or operators are, or kernels of its own."""
    if not trace.meta.traits.has_host_calls or len(trace.ops):  # nsys records any program
        return True
    kernels = distinct_codes(trace.gpu.name[trace.gpu.kind == Kind.COMPUTE]).tolist()
    if not kernels or any(trace.name(code).startswith(WHOLE_GRAPH) for code in kernels):
        return True
    return any(("at::" in name and _OF_TORCH.search(name)) or is_inductors(name) for name in trace.strings)


def unrecorded(trace: Trace) -> str:
    """On which device the program ran, where the trace holds nothing of it; "" where that is not known."""
    if trace.device_indices or len(trace.calls):
        return ""
    if (listed := _listed(trace)) and _copies_elsewhere(trace):
        return f"the CPU and, by its copies to another device, on {listed}"
    if _works_on_cpu(trace, _COMPUTES):
        return ""
    names = [trace.name(int(code)) for table in (trace.ops, trace.spans) for code in distinct_codes(table.name)]
    if any(_NESTED.search(name) for name in names):
        return ""
    return next((device for device, sign in _UNRECORDED if any(sign.search(name) for name in names)), "")


def unused(trace: Trace) -> str:
    """The name of a GPU that the file lists, while all work is on the CPU; "" for none."""
    is_used = bool(trace.device_indices) or is_one_of(trace.calls.kind, _USES).any() or _copies_elsewhere(trace)
    return "" if is_used or not _works_on_cpu(trace, _COMPUTES, _FILLS) else _listed(trace)


def _listed(trace: Trace) -> str:
    """The name of the first device that the file lists, "" for none."""
    return next((device.name for device in trace.meta.devices if device.name), "")


def _copies_elsewhere(trace: Trace) -> bool:
    """Whether tensors are copied into new ones again and again, in no other number format: to another device.

    Where the activity is that of the CPU alone, no call of the device is recorded: the operators alone show it.
    """
    ops = trace.ops
    rows = np.flatnonzero(trace.named(trace.ops.name, _TO_COPY))
    casts = [
        code
        for code, one in enumerate(trace.signatures)
        if one is not None and any(one.concrete[_FORMAT : _FORMAT + 1])
    ]
    rows = rows[~is_one_of(ops.signature[rows], casts)] if casts else rows
    if rows.size < _AGAIN:
        return False
    n_parts = np.zeros(len(ops), np.int8)
    for pattern in (_NEW, _COPY):
        n_parts[distinct(_around(trace, rows, pattern))] += 1
    rows = rows[n_parts[rows] == 2]
    low, high = trace.window_ns
    return rows.size >= _AGAIN and int((ops.end_ns - ops.start_ns)[rows].sum()) >= _MUCH * (high - low)


def _around(trace: Trace, rows: NDArray[np.intp], pattern: re.Pattern[str]) -> NDArray[np.intp]:
    """Of these operators, none inside another, those in which one of such a name begins."""
    ops, inside = trace.ops, np.flatnonzero(trace.named(trace.ops.name, pattern))
    found = [rows[:0]]
    for thread in distinct_codes(ops.thread[rows]).tolist():
        own = rows[ops.thread[rows] == thread]
        own = own[np.argsort(ops.start_ns[own], kind="stable")]
        at = ops.start_ns[inside[ops.thread[inside] == thread]]
        place = np.searchsorted(ops.start_ns[own], at, "right") - 1
        found.append(own[place[(place >= 0) & (at < ops.end_ns[own[np.maximum(place, 0)]])]])
    return np.concatenate(found)


def _works_on_cpu(trace: Trace, *patterns: re.Pattern[str]) -> bool:
    """Whether the operators that compute take as long as only a CPU's do, for half of their time."""
    ops = trace.ops
    rows = np.concatenate([np.flatnonzero(trace.named(trace.ops.name, pattern)) for pattern in patterns])
    length = (ops.end_ns - ops.start_ns)[rows]
    return bool(length.size) and int(length[length >= _LONG_NS].sum()) >= _MOSTLY * int(length.sum())
