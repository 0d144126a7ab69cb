"""What a recording is of: PyTorch or another program; a device of which it holds nothing, or one that nobody uses."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import distinct_codes, is_one_of
from profkit.model.names import is_inductors
from profkit.model.trace import Trace

METAL: Final = "Apple's GPU (MPS)"
_UNRECORDED: Final = (
    (METAL, re.compile(r"mps|^aten::linear_backward$|^(?:autograd::\S+ )?LinearBackward0$")),
    ("an Intel GPU (XPU)", re.compile(r"^(?:xpu|aten::_?xpu|torch_ipex)|::xpu")),
    ("an Ascend NPU", re.compile(r"^(?:npu|aten::npu|torch_npu|aclnn|_C10D_NPU)", re.IGNORECASE)),
    ("a Gaudi accelerator (HPU)", re.compile(r"^(?:hpu|hccl|habana)", re.IGNORECASE)),
    ("an MTIA accelerator", re.compile(r"^mtia", re.IGNORECASE)),
    ("a device of XLA", re.compile(r"^(?:xla|torch_xla)", re.IGNORECASE)),
    (
        "a CUDA device",
        re.compile(r"^aten::_?(?:cudnn|miopen)_|^aten::_(?:flash|efficient)_attention_(?:forward|backward)$|^nccl:"),
    ),
)
"""What a program runs on by operators and ranges that exist for it alone. MPS has a linear operator of its own, where
others multiply matrices (aten/src/ATen/native/Linear.cpp and derivatives.yaml of torch: linear_backward is for MPS)."""
_NESTED: Final = re.compile(r"nested", re.IGNORECASE)
"""Nested tensors have that operator as well."""
_COMPUTES: Final = re.compile(r"^aten::(?:\w*(?:mm|linear|conv\w*|matmul|relu|norm|gelu|softmax|mul|add|clamp\w*)_?)$")
_FILLS: Final = re.compile(r"^aten::(?:uniform_|normal_|bernoulli_|pow|exp|sub|div|sum|mean)$")
"""What else computes where nothing says that there is another device: some of these wait for a queue that is full."""
_LONG_NS: Final = 1_000_000
"""What an operator on a device never takes on the host, but for its first call. Chosen: launching takes 0.01 ms."""
_MOSTLY: Final = 0.5


def is_of_torch(trace: Trace) -> bool:
    """Whether PyTorch ran: its own profiler recorded, or operators did, or kernels are its own or its compiler's."""
    if not trace.meta.traits.has_host_calls or len(trace.ops):  # nsys records any program
        return True
    return any("at::" in name or is_inductors(name) for name in trace.strings)


def unrecorded(trace: Trace) -> str:
    """On which device the program ran, where the trace holds nothing of it; "" where that is not known."""
    if trace.device_indices or len(trace.calls) or _works_on_cpu(trace, _COMPUTES):
        return ""
    names = [trace.name(int(code)) for table in (trace.ops, trace.spans) for code in distinct_codes(table.name)]
    if any(_NESTED.search(name) for name in names):
        return ""
    return next((device for device, sign in _UNRECORDED if any(sign.search(name) for name in names)), "")


def unused(trace: Trace) -> str:
    """The name of a GPU that the file lists, while all work is on the CPU; "" for none."""
    listed = next((device.name for device in trace.meta.devices if device.name), "")
    if not listed or trace.device_indices or len(trace.calls) or not _works_on_cpu(trace, _COMPUTES, _FILLS):
        return ""
    return listed


def _works_on_cpu(trace: Trace, *patterns: re.Pattern[str]) -> bool:
    """Whether the operators that compute take as long as only a CPU's do, for half of their time."""
    ops = trace.ops
    rows = np.concatenate([_named(trace, pattern) for pattern in patterns])
    length = (ops.end_ns - ops.start_ns)[rows]
    return bool(length.size) and int(length[length >= _LONG_NS].sum()) >= _MOSTLY * int(length.sum())


def _named(trace: Trace, pattern: re.Pattern[str]) -> NDArray[np.intp]:
    names = trace.ops.name
    return np.flatnonzero(
        is_one_of(names, [c for c in distinct_codes(names).tolist() if pattern.search(trace.name(c))])
    )
