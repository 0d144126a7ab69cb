"""What to change about a kernel, each sentence with the metric it stands on; at most a handful, the weightiest first.

Conditions after NVIDIA's rules of the same names (Occupancy, LaunchConfiguration, MemoryCacheAccessPattern); limits
that are not theirs are marked "chosen". Where the file holds ncu's own estimates, they rank the advice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from profkit.kernels.estimates import GLOBAL, estimates
from profkit.kernels.occupancy import ACHIEVED, THEORETICAL, WAVES
from profkit.kernels.pipes import PIPES
from profkit.kernels.roofline import TENSOR_USED_PERCENT, tensor_metric, tensor_percent
from profkit.kernels.speed import MEMORY_THROUGHPUT, SM_THROUGHPUT, memory_unit
from profkit.kernels.stalls import MEANINGS, issues_often
from profkit.model.finding import Evidence
from profkit.model.kernel import (
    Advice,
    BusiestPipe,
    Estimate,
    KernelClass,
    KernelProfile,
    Occupancy,
    SpeedOfLight,
    Stall,
    Waves,
)
from profkit.model.names import MEMORY_FAMILIES, family_of
from profkit.units import format_fraction

LOW_OCCUPANCY_PERCENT: Final = 50.0  # chosen: above, latency is mostly hidden (as in the CUDA Best Practices Guide)
GAP_PERCENT: Final = 20.0  # chosen: achieved this far below theoretical is imbalance or a tail
BIG_TAIL: Final = 0.15  # chosen: as "high" in severity_of
LOW_HIT_PERCENT: Final = 30.0  # chosen: streaming kernels stay below, so it is asked only where L2 is the busiest
BIG_STALL: Final = 0.3  # chosen: as NVIDIA's rule CPIStall, which speaks from 30 % on
BIG_ESTIMATE: Final = 0.1  # chosen: below a tenth of the time, an estimate does not change what comes first
MOST_ADVICE: Final = 5  # chosen: a handful
MATRIX_FAMILIES: Final = frozenset({"matmul", "convolution", "attention"})

_FILES: Final = {
    "registers": "fewer registers per thread (maxregs, num_warps in Triton, smaller tiles)",
    "shared memory": "less shared memory per block (smaller tiles, fewer pipeline stages)",
    "warps": "another block size: this one does not divide the warps an SM holds",
    "blocks": "larger blocks: an SM holds only so many small ones",
    "barriers": "fewer barriers per block",
}
_PIPE_FIXES: Final = {
    "tensor": "tensor cores are the limit: a format with twice the rate (bf16, fp8), or fewer products",
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
_TENSOR_CORES: Final = "put the products on tensor cores: bf16, or TF32 (torch.set_float32_matmul_precision('high'))"
_COALESCE: Final = "coalesce: neighbouring threads should read neighbouring addresses (.contiguous(), channels_last)"
_EVEN: Final = "give blocks and warps equal work; use longer-lived blocks"
_FILL: Final = "fill the last wave: other tile or block sizes, or a persistent (stream-k) kernel"
_RULE_FIXES: Final = {
    "access": _COALESCE,
    "banks": "no bank conflicts in shared memory: pad or swizzle the tile",
    "imbalance": _EVEN,
    "achieved": _EVEN,
    "tail": _FILL,
    "divergence": "let the threads of a warp take the same branch (sort or group the work)",
}
"""Topic of ncu's rules to what to change, where no metric on the page has said it already."""
_SAME_WORK: Final = ("tail", "imbalance", "achieved", "occupancy", "stall")
"""Topics whose advice leaves instructions and bytes as they are, so that it cannot pass the busier roof."""


def advice(
    profile: KernelProfile,
    speed: SpeedOfLight,
    held: Occupancy,
    filled: Waves | None,
    reasons: Sequence[Stall],
    pipe: BusiestPipe | None,
) -> tuple[Advice, ...]:
    """What to change, by what limits the launch, ranked by ncu's estimates where there are any; () without data."""
    kind = speed.kernel_class
    if kind is KernelClass.NO_DATA:
        return ()
    given: list[tuple[str, Advice]] = []
    if kind is KernelClass.SMALL and filled is not None:
        given += _small(profile, filled)
    if kind is KernelClass.MEMORY:
        given += _memory(profile, speed)
    if kind is KernelClass.COMPUTE:
        given += _compute(profile, speed, pipe)
    if kind is KernelClass.BALANCED and speed.compute_percent is not None:
        given.append(("limit", _advice(_balanced(profile), SM_THROUGHPUT, speed.compute_percent, "%", _BALANCED)))
    if not speed.is_near_roof and kind is not KernelClass.SMALL:
        given += _latency(profile, held, filled, reasons)
    return _ranked(given, _Estimates(known=estimates(profile), most=_most(speed, filled), speed=speed))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Estimates:
    """What ncu's rules estimate, by topic, and the most that some topics can give, as shares of the kernel's time."""

    known: Mapping[str, Estimate]
    most: Mapping[str, float]
    speed: SpeedOfLight

    def share(self, topic: str) -> float:
        """The most that advice on a topic gives of the kernel's time; 0 where ncu does not say or cannot be right."""
        estimate = self.known.get(topic)
        if estimate is None or estimate.scope != GLOBAL:
            return 0.0
        # What a small grid leaves idle shows in occupancy, imbalance and stalls as well; near a roof nothing helps but
        # other work.
        is_follower = self.speed.is_near_roof or self.speed.kernel_class is KernelClass.SMALL
        return 0.0 if is_follower and topic in _SAME_WORK else min(estimate.fraction, self.most.get(topic, 1.0))

    def is_big(self, topic: str) -> bool:
        """Whether advice on a topic comes before what the metrics alone say."""
        return self.share(topic) >= BIG_ESTIMATE

    def told(self, topic: str) -> str:
        """The estimate in words; one for a part of the device is none of the kernel's time."""
        estimate = self.known[topic]
        said = format_fraction(estimate.fraction)
        if estimate.scope != GLOBAL:
            return f"ncu's rule estimates at most {said} for one part of the device"
        if 0 < self.share(topic) < estimate.fraction:
            return f"at most {format_fraction(self.share(topic))} of the kernel's time, though ncu's rule says {said}"
        return f"ncu's rule estimates at most {said} of the kernel's time"


def _most(speed: SpeedOfLight, filled: Waves | None) -> dict[str, float]:
    """What advice that leaves the work as it is can give at most: the busier roof stays, and so do the full waves.

    ncu's rule counts the whole last wave, profkit the part of it that is idle.
    """
    left = 1 - max(speed.compute_percent or 0.0, speed.memory_percent or 0.0) / 100
    most = dict.fromkeys(_SAME_WORK, max(left, 0.0))
    if filled is not None:
        most["tail"] = min(left, filled.tail_fraction)
    return most


def _ranked(given: Iterable[tuple[str, Advice]], ncu: _Estimates) -> tuple[Advice, ...]:
    """The advice with ncu's estimate of its topic; what gives at least a tenth of the kernel's time first."""
    told = [(topic, replace(item, estimate=ncu.known.get(topic))) for topic, item in given]
    for topic, estimate in ncu.known.items():
        fix = _RULE_FIXES.get(topic)
        if fix is not None and ncu.is_big(topic) and fix not in {item.fix for _, item in told}:
            because = Evidence(statement="", metric=f"rule:{estimate.rule}", value=100 * estimate.fraction, unit="%")
            told.append((topic, Advice(fix=fix, because=because, estimate=estimate)))
    told = sorted(told, key=lambda one: -ncu.share(one[0]) if ncu.is_big(one[0]) else 0.0)
    return tuple(_with_estimate(topic, item, ncu) for topic, item in told[:MOST_ADVICE])


def _with_estimate(topic: str, item: Advice, ncu: _Estimates) -> Advice:
    if item.estimate is None:
        return item
    said = "; ".join(filter(None, (item.because.statement, ncu.told(topic))))
    return replace(item, because=replace(item.because, statement=said))


def _advice(fix: str, metric: str, value: float, unit: str, said: str) -> Advice:
    shown = f"{value:.1f} %" if unit == "%" else f"{value:.3g}"
    return Advice(fix=fix, because=Evidence(statement=said.format(shown), metric=metric, value=value, unit=unit))


def _small(profile: KernelProfile, filled: Waves) -> Iterable[tuple[str, Advice]]:
    family = family_of(profile.name)
    said = "the grid fills only {} of a wave"
    if family in MATRIX_FAMILIES:
        fix = "more blocks for this product: smaller tiles, or its inner dimension split over blocks (split-K)"
        yield "grid", _advice(fix, WAVES, filled.waves, "waves", said)
    elif family == "reduction":
        fix = "split the reduction over more blocks, in two passes"
        yield "grid", _advice(fix, WAVES, filled.waves, "waves", said)
    fix = (
        "more work per launch (a larger batch, several tensors at once: foreach, batched or grouped products),"
        " or run it at the same time as others (streams)"
    )
    yield "grid", _advice(fix, WAVES, filled.waves, "waves", said)


def _memory(profile: KernelProfile, speed: SpeedOfLight) -> Iterable[tuple[str, Advice]]:
    metrics = profile.metrics
    busiest = memory_unit(metrics)
    level, metric, percent = busiest or ("memory", MEMORY_THROUGHPUT, speed.memory_percent or 0.0)
    said = f"{level} is at {{}} of its peak"
    if level in {"DRAM", "memory"}:
        at_roof = "it is at its roof: " if speed.is_near_roof else ""
        fused = "fuse it with its neighbours (torch.compile)" if _is_elementwise(profile) else "reuse what it loads"
        fix = f"{at_roof}move fewer bytes: {fused}, a half-precision format"
    elif _is_elementwise(profile):
        fix = f"fewer requests to {level}: coalesced and wider accesses (float4)"
    else:
        fix = f"fewer requests to {level}: larger tiles with more results per thread, coalesced and wider accesses"
    yield "limit", _advice(fix, metric, percent, "%", said)
    hits = metrics.get("lts__t_sector_hit_rate.pct")
    if level == "L2" and hits is not None and hits < LOW_HIT_PERCENT:
        fix = "let blocks that share data run at the same time (swizzled tiles)"
        yield "hits", _advice(fix, "lts__t_sector_hit_rate.pct", hits, "%", "L2 hit rate {}")


_BALANCED: Final = "compute is at {} of peak, and memory at nearly as much"


def _balanced(profile: KernelProfile) -> str:
    """What lowers the use of both: a load that serves more operations, else less work."""
    if _is_elementwise(profile):
        return "compute and memory are used equally: fuse it with its neighbours (torch.compile), a smaller format"
    return (
        "compute and memory are used equally: fewer loads per operation (larger tiles, more results per thread, wider"
        " accesses), then less work (fusion, a smaller format)"
    )


def _compute(profile: KernelProfile, speed: SpeedOfLight, pipe: BusiestPipe | None) -> Iterable[tuple[str, Advice]]:
    """The advice for the busiest pipe; without one known, only where to see it."""
    tensor = tensor_percent(profile.metrics)
    may_be_products = family_of(profile.name) not in MEMORY_FAMILIES and (pipe is None or pipe.name == "fma")
    is_matrix = family_of(profile.name) in MATRIX_FAMILIES
    if tensor is not None and tensor < TENSOR_USED_PERCENT and may_be_products and (is_matrix or pipe is None):
        fix = _TENSOR_CORES if is_matrix else f"if it multiplies matrices, {_TENSOR_CORES}"
        yield "pipe", _advice(fix, tensor_metric(profile.metrics), tensor, "%", "tensor cores are at {} of peak")
        return
    if pipe is None:
        fix = "see which pipe is the busiest: ncu --section ComputeWorkloadAnalysis, or --set full"
        yield "pipe", _advice(fix, SM_THROUGHPUT, speed.compute_percent or 0.0, "%", "compute is at {} of peak")
        return
    name, runs = PIPES[pipe.name]
    said = f"{name} ({runs}) is the busiest part, at {{}} of its peak"
    yield "pipe", _advice(_PIPE_FIXES[pipe.name], pipe.metric, pipe.percent, "%", said)


def _latency(
    profile: KernelProfile, held: Occupancy, filled: Waves | None, reasons: Sequence[Stall]
) -> Iterable[tuple[str, Advice]]:
    top = reasons[0] if reasons and not issues_often(profile) else None
    if top is not None and top.fraction >= BIG_STALL and top.reason in MEANINGS:
        meaning, fix = MEANINGS[top.reason]
        name = f"smsp__average_warps_issue_stalled_{top.reason}_per_issue_active.ratio"
        said = f"{format_fraction(top.fraction)} of a warp's time goes into {meaning}"
        because = Evidence(statement=said, metric=name, value=top.cycles, unit="cycle/inst")
        yield "stall", Advice(fix=fix, because=because)
    theory, achieved = held.theoretical_percent, held.achieved_percent
    if theory is not None and theory < LOW_OCCUPANCY_PERCENT:
        fix = "; ".join(_FILES[name] for name in held.limiters) or "another block size"
        yield "occupancy", _advice(fix, THEORETICAL, theory, "%", "theoretical occupancy is only {}")
    elif theory is not None and achieved is not None and theory - achieved >= GAP_PERCENT:
        said = f"achieved occupancy is {{}}, theoretical {theory:.0f} %"
        yield "achieved", _advice(_EVEN, ACHIEVED, achieved, "%", said)
    if filled is not None and filled.waves >= 1 and filled.tail_fraction >= BIG_TAIL:
        said = f"{{}} waves: the last one can waste {format_fraction(filled.tail_fraction)}"
        yield "tail", _advice(_FILL, WAVES, filled.waves, "waves", said)


def _is_elementwise(profile: KernelProfile) -> bool:
    return family_of(profile.name) in MEMORY_FAMILIES
