"""What a trace says that its device can do: its compute capability, and its rates by number format."""

from __future__ import annotations

import re
from typing import Final

from profkit.findings.kernels import MATRIX_RATES, MatrixRates
from profkit.model.kernel_names import Precision
from profkit.model.trace import Trace
from profkit.redact.later import later

HALF: Final = (Precision.BF16, Precision.FP16, Precision.HALF, Precision.FP8, Precision.FP4, Precision.INT8)
"""Formats of half precision or less."""
_AMPERE: Final = (8, 0)
"""From there on NVIDIA's devices have TF32 and bfloat16."""
_VOLTA: Final = (7, 0)
"""From there on they have tensor cores, but for small ones of Turing."""
_FAST_HALF: Final = ((5, 3), (6, 0), (6, 2))
"""Before that those that compute in fp16 twice as fast; 6.1 does at 1/64 (CUDA's programming guide, arithmetic)."""
_OTHERS: Final = later(r"^(?:AMD|Radeon|Intel)|^MI\d|Instinct|gfx\d")
"""HIP numbers its devices like CUDA, by another count."""


def capability_of(trace: Trace, device: int) -> tuple[int, int] | None:
    """The compute capability that the file says of a device: Kineto as two numbers, nsys' reader as "7.5"."""
    one = next((one for one in trace.meta.listed("deviceProperties") if one.get("id") == device), {})
    major, minor, said = one.get("computeMajor"), one.get("computeMinor"), one.get("computeCapability")
    if isinstance(major, int) and isinstance(minor, int):
        return (major, minor) if major > 0 else None
    match = re.fullmatch(r"([1-9]\d?)\.(\d)", said) if isinstance(said, str) else None
    return (int(match[1]), int(match[2])) if match else None


def rates_of(trace: Trace, device: int) -> MatrixRates | None:
    """A device's rates by its name, else what its compute capability tells; None where neither is known."""
    name = trace.device_name(device)
    by_name = next((rates for pattern, rates in MATRIX_RATES if pattern.search(name)), None)
    capability = capability_of(trace, device)
    if by_name is not None or capability is None or capability >= _AMPERE or _OTHERS.search(name):
        return by_name
    if capability >= _VOLTA:
        return MatrixRates(0, 8, "float16")
    return MatrixRates(0, 2 if capability in _FAST_HALF else 1, "float16", False)
