"""In what numbers a kernel computes, by its instructions or its name, and which smaller ones can be advised."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from profkit.kernels.fixes import Owner, owner_of
from profkit.kernels.roofline import flop_per_s, tensor_percent
from profkit.model.kernel import KernelProfile
from profkit.model.kernel_names import Precision
from profkit.model.names import precision_of

SINGLE: Final = "single precision where its digits suffice"
HALF: Final = "a half-precision format"
_ANY: Final = "a smaller number format where its digits suffice"
INTEGERS: Final = "integers"
_WORDS: Final = {
    Precision.HALF: re.compile(r"\b(?:BFloat16|Half2?|half2?|__half2?|__nv_bfloat16|bfloat16)\b"),
    Precision.FP32: re.compile(r"\bfloat[24]?\b"),
    Precision.FP64: re.compile(r"\bdouble[24]?\b"),
}
"""Types in a name, the one that counts first: sums and scalars are wider than what is stored."""
_SMALLER: Final = {"fp64": SINGLE, "fp32": HALF, "tf32": HALF}


def smaller_format(profile: KernelProfile) -> str:
    """What to advise; "" where nothing smaller will do: of integers, and of half precision."""
    own = number_format(profile)
    if "curand" in profile.name and own != "fp64":
        return ""  # cuRAND writes integers, fp32 and fp64
    if own:
        return _SMALLER.get(own, "")
    return _ANY if owner_of(profile.name) is Owner.OWN else HALF


def number_format(profile: KernelProfile) -> str:
    """The format of most operations, "integers" where no others were counted; else the name's; "" where none tells."""
    counted = _counted(profile.metrics)
    if counted and counted != INTEGERS:
        return counted
    named = precision_of(profile.name)
    if named not in {None, Precision.UNKNOWN}:
        return str(named)
    return next((str(one) for one, words in _WORDS.items() if words.search(profile.name)), counted)


def _counted(metrics: Mapping[str, float]) -> str:
    """By the instructions that were counted: "" where some were not, or where tensor cores worked as well."""
    done = {name: flop for name in ("fp32", "fp64", "fp16") if (flop := flop_per_s(metrics, name)) is not None}
    if not {"fp32", "fp64"} <= set(done) or tensor_percent(metrics):
        return ""
    most = max(done, key=lambda name: done[name])
    if done[most]:
        return most
    return INTEGERS if metrics.get("sm__inst_executed_pipe_fp16.avg.pct_of_peak_sustained_active", 0.0) == 0 else ""
