"""What to change where memory, the SM or both are the limit: by the level of memory or the pipe that is the busiest.

In what numbers a kernel computes, by its instructions or its name, says which smaller ones can be advised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from profkit.kernels.claims import Launch
from profkit.kernels.fixes import ANY_PRODUCT, MATRIX_FAMILIES, Owner, owner_of
from profkit.kernels.pipes import PIPES
from profkit.kernels.roofline import TENSOR_USED_PERCENT, flop_per_s, tensor_metric, tensor_percent
from profkit.kernels.speed import MEMORY_THROUGHPUT, SM_THROUGHPUT, memory_unit
from profkit.model.finding import Evidence
from profkit.model.kernel import Advice, BusiestPipe, KernelClass, KernelProfile, Topic
from profkit.model.kernel_names import Precision
from profkit.model.names import MEMORY_FAMILIES, family_of, precision_of

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


LOW_HIT_PERCENT: Final = 30.0  # chosen: streaming kernels stay below, so it is asked only where L2 is the busiest
_WITH_BF16: Final = 8  # compute capability from which on tensor cores take bf16 and TF32
_PIPE_FIXES: Final = {
    "tensor": "tensor cores are the limit: a format with twice the rate (bf16 for TF32, fp8 where the GPU has it), or"
    " fewer products",
    "fma": "fewer multiplications and additions per result; a number format with twice the rate",
    "alu": "fewer integer and comparison instructions (index arithmetic in 32 bits and outside loops, fewer random"
    " numbers, bit tricks); another floating-point format changes nothing here",
    "xu": "fewer exp, log, sin, sqrt, divisions and conversions (fast intrinsics, tables, compute once and reuse)",
    "fp64": "single precision where its digits suffice",
    "fp16": "pairs of halves in one instruction (half2), or tensor cores for products",
    "lsu": "fewer loads and stores: wider ones (float4), more reuse in registers, fewer shared-memory accesses",
    "tex": "fewer texture loads",
    "uniform": "less work that is the same for a whole warp: hoist it out of loops",
    "adu": "fewer branches and fewer constants read by a computed address",
    "cbu": "fewer branches and barriers",
    "issue": "fewer instructions per result: wider loads (float4), packed arithmetic (half2), less index arithmetic",
    "mio": "fewer shared-memory accesses and special functions: wider ones, more reuse in registers",
}


def roof_advice(launch: Launch, pipe: BusiestPipe | None) -> Iterable[Advice]:
    """What the roof of the launch asks for; nothing where it waits, or is too small."""
    kind = launch.speed.kernel_class
    if kind is KernelClass.MEMORY:
        yield from _memory(launch)
    if kind is KernelClass.COMPUTE:
        yield _compute(launch, pipe)
    if kind is KernelClass.BALANCED:
        said = "compute is at {} of peak, and memory at nearly as much"
        yield _advice(Topic.ROOF, _balanced(launch.profile), SM_THROUGHPUT, 100 * launch.compute, said)


def _advice(topic: Topic, fix: str, metric: str, percent: float, said: str) -> Advice:
    because = Evidence(statement=said.format(f"{percent:.1f} %"), metric=metric, value=percent, unit="%")
    return Advice(topic=topic, fix=fix, because=because)


def _memory(launch: Launch) -> Iterable[Advice]:
    metrics, name = launch.profile.metrics, launch.profile.name
    level, metric, percent = memory_unit(metrics) or ("memory", MEMORY_THROUGHPUT, 100 * launch.memory)
    owner, streams = owner_of(name), family_of(name) in MEMORY_FAMILIES
    is_librarys = owner is Owner.LIBRARY
    if level in {"DRAM", "memory"}:
        at_roof = "it is at its roof: " if launch.speed.is_near_roof else ""
        ways = ["fuse it with its neighbours", "reuse what it loads (tiles in shared memory or registers)"]
        if owner is Owner.INDUCTOR:
            ways = []  # it is fused already
        elif streams:
            ways = ["fuse it with its neighbours" + (" (torch.compile)" if owner is Owner.TORCH else "")]
        elif is_librarys:
            ways = ["a larger batch for the same weights"]
        how = ", ".join(filter(None, (*ways, smaller_format(launch.profile))))
        fix = f"{at_roof}move fewer bytes: {how or 'fewer or smaller tensors between kernels'}"
    elif is_librarys:
        fix = ANY_PRODUCT
    elif streams:
        fix = f"fewer requests to {level}: coalesced and wider accesses (float4)"
    else:
        fix = f"fewer requests to {level}: larger tiles with more results per thread, coalesced and wider accesses"
    yield _advice(Topic.ROOF, fix, metric, percent, f"{level} is at {{}} of its peak")
    hits = metrics.get("lts__t_sector_hit_rate.pct")
    if level == "L2" and hits is not None and hits < LOW_HIT_PERCENT and not is_librarys:
        fix = "let blocks that share data run at the same time (swizzled tiles)"
        yield _advice(Topic.ROOF, fix, "lts__t_sector_hit_rate.pct", hits, "L2 hit rate {}")


def _balanced(profile: KernelProfile) -> str:
    """What lowers the use of both: a load that serves more operations, else less work."""
    owner, smaller = owner_of(profile.name), smaller_format(profile)
    if family_of(profile.name) in MEMORY_FAMILIES:
        ways = ["fuse it with its neighbours" + (" (torch.compile)" if owner is Owner.TORCH else ""), smaller]
    elif owner is Owner.LIBRARY:
        ways = [smaller and _cheaper_format(profile), "fusion with its neighbours"]
    else:
        less = ", ".join(filter(None, ("fusion", smaller)))
        fewer = "fewer loads per operation (larger tiles, more results per thread, wider accesses)"
        ways = [f"{fewer}, then less work ({less})"]
    return f"compute and memory are used equally: {', '.join(filter(None, ways))}"


def _compute(launch: Launch, pipe: BusiestPipe | None) -> Advice:
    """The advice for the busiest pipe; without one known, only where to see it."""
    profile = launch.profile
    tensor, family = tensor_percent(profile.metrics), family_of(profile.name)
    may_be_products = family not in MEMORY_FAMILIES and (pipe is None or pipe.name == "fma")
    may_be_products &= number_format(profile) not in {"fp64", INTEGERS}
    is_matrix = family in MATRIX_FAMILIES
    if tensor is not None and tensor < TENSOR_USED_PERCENT and may_be_products and (is_matrix or pipe is None):
        fix = f"put the products on tensor cores: {_cheaper_format(profile)}"
        fix = fix if is_matrix else f"if it multiplies matrices, {fix}"
        return _advice(Topic.PIPE, fix, tensor_metric(profile.metrics), tensor, "tensor cores are at {} of peak")
    if pipe is None:
        fix = "see which pipe is the busiest: ncu --section ComputeWorkloadAnalysis, or --set full"
        return _advice(Topic.PIPE, fix, SM_THROUGHPUT, 100 * launch.compute, "compute is at {} of peak")
    name, runs = PIPES[pipe.name]
    said = f"{name} ({runs}) is the busiest part, at {{}} of its peak"
    return _advice(Topic.PIPE, _PIPE_FIXES[pipe.name], pipe.metric, pipe.percent, said)


def _cheaper_format(profile: KernelProfile) -> str:
    """A format that tensor cores of this GPU take, and how to ask for it."""
    if number_format(profile) == "fp64":
        return SINGLE
    major = profile.compute_capability.partition(".")[0]
    if major.isdecimal() and int(major) < _WITH_BF16:
        return "fp16 under torch.autocast (this GPU has neither bf16 nor TF32 there)"
    return "bf16, or TF32 (torch.set_float32_matmul_precision('high'))"
