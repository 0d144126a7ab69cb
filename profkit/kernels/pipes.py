"""Which part of an SM is the busiest: a pipe, the issue of instructions, or the queue to memory.

Compute throughput is the largest of these readings, so the busiest one says what a compute-bound launch is bound by.
From the metrics of ncu's breakdown, else from the words of its rule HighPipeUtilization.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from profkit.model.kernel import BusiestPipe, KernelProfile

_METRIC: Final = re.compile(
    r"sm__(?:inst_executed_pipe_(?P<inst>\w+)|pipe_(?P<cycles>\w+)_cycles_active|(?P<queue>mio)\w+"
    r"|(?P<issue>issue_active|inst_executed))\.(?:avg|sum)\.pct_of_peak_sustained_(?P<base>elapsed|active)"
)
_PARTS: Final = {"fp16": "fp16", "hfma2": "fp16"} | {
    name: name for name in ("tensor", "fp64", "fma", "alu", "xu", "lsu", "tex", "uniform", "adu", "cbu")
}
"""What the name of a pipe holds, in NVIDIA's metrics or in the rule's words, and the pipe it counts to here. Half
precision first: some chips run it on the pipes of tensor cores (`tensor_op_hmma_type_hfma2`) or of fp32."""
SHARE_OF_COMPUTE: Final = 0.95
"""A reading below this share of compute throughput is not what that throughput is. Chosen: the largest reading of a
complete breakdown is the throughput itself, but for the few percent by which passes differ."""

PIPES: Final = {
    "tensor": ("the tensor pipe", "matrix products"),
    "fma": ("the FMA pipe", "fp32 arithmetic and integer multiplication"),
    "alu": ("the ALU pipe", "integer, logic and comparison instructions"),
    "xu": ("the XU pipe", "exp, log, sin, sqrt and conversions between formats"),
    "fp64": ("the fp64 pipe", "double precision"),
    "fp16": ("the fp16 pipe", "half-precision arithmetic outside tensor cores"),
    "lsu": ("the load/store pipe", "loads, stores and shared memory"),
    "tex": ("the texture pipe", "texture loads"),
    "uniform": ("the uniform pipe", "work that is the same for a whole warp"),
    "adu": ("the address divergence unit", "branches and constants by address"),
    "cbu": ("the branch unit", "branches and barriers"),
    "issue": ("instruction issue", "all instructions together"),
    "mio": ("the memory instruction queue", "shared memory, special functions and loads"),
}
"""Name to (what it is called in a sentence, what runs on it); after NVIDIA's Kernel Profiling Guide, "Pipelines"."""
_HIGHEST: Final = re.compile(
    r"(?P<name>[A-Z][\w ()]{0,40}?) is the highest-utilized pipeline \((?P<percent>\d{1,3}(?:\.\d{1,9})?)%\)"
)
_DOMINATED: Final = re.compile(r"dominated by its (?P<name>[A-Z][\w ()]{0,40}?) sub-pipeline")
RULE: Final = "rule:HighPipeUtilization"
WELL_USED_PERCENT: Final = 20.0
"""Below, NVIDIA's rule HighPipeUtilization calls all pipes under-utilized, and the busiest one explains nothing."""


def busiest_pipe(profile: KernelProfile, compute_percent: float | None) -> BusiestPipe | None:
    """The busiest part of the SM; None where the page does not tell, or tells of parts that are not the limit."""
    found = _measured(profile.metrics) or _said(rule.message for rule in profile.rules)
    least = max(WELL_USED_PERCENT, SHARE_OF_COMPUTE * (compute_percent or 0.0))
    if found is None or found.percent < least:
        return None
    return found


def _measured(metrics: Mapping[str, float]) -> BusiestPipe | None:
    found: dict[str, list[BusiestPipe]] = {"elapsed": [], "active": []}
    for metric, percent in metrics.items():
        match = _METRIC.fullmatch(metric)
        if match is None:
            continue
        name = "mio" if match["queue"] else "issue" if match["issue"] else _part(match["inst"] or match["cycles"])
        if name:
            found[match["base"]].append(BusiestPipe(name=name, metric=metric, percent=percent))
    # Throughput is of elapsed cycles; shares of active ones, which are larger, only where there are no others.
    known = found["elapsed"] if any(one.name not in {"issue", "mio"} for one in found["elapsed"]) else found["active"]
    return max(known, key=lambda one: (one.percent, one.name not in {"issue", "mio"}), default=None)


def _said(messages: Iterable[str]) -> BusiestPipe | None:
    for message in messages:
        told = _HIGHEST.search(message)
        if told is None:
            continue
        part = _DOMINATED.search(message)
        name = _part((part or told)["name"].lower())
        if name:
            return BusiestPipe(name=name, metric=RULE, percent=float(told["percent"]))
    return None


def _part(text: str) -> str:
    return next((name for said, name in _PARTS.items() if said in text), "")
