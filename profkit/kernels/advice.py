"""What to change about a kernel, each sentence with the metric it stands on; at most a handful, the main one first.

Conditions after NVIDIA's rules of the same names (Occupancy, LaunchConfiguration, MemoryCacheAccessPattern); limits
that are not theirs are marked "chosen".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from profkit.kernels.occupancy import ACHIEVED, THEORETICAL, WAVES
from profkit.kernels.roofline import tensor_percent
from profkit.kernels.speed import MEMORY_THROUGHPUT, SM_THROUGHPUT, memory_unit
from profkit.kernels.stalls import MEANINGS
from profkit.model.finding import Evidence
from profkit.model.kernel import Advice, KernelClass, KernelProfile, Occupancy, SpeedOfLight, Stall, Waves
from profkit.model.names import MEMORY_FAMILIES, family_of
from profkit.units import format_fraction

LOW_OCCUPANCY_PERCENT: Final = 50.0  # chosen: above, latency is mostly hidden (as in the CUDA Best Practices Guide)
GAP_PERCENT: Final = 20.0  # chosen: achieved this far below theoretical is imbalance or a tail
BIG_TAIL: Final = 0.15  # chosen: as "high" in severity_of
LOW_HIT_PERCENT: Final = 30.0  # chosen: streaming kernels stay below, so it is asked only where L2 is the busiest
BIG_STALL: Final = 0.3  # chosen: as NVIDIA's rule CPIStall, which speaks from 30 % on
IDLE_TENSOR_PERCENT: Final = 1.0

_FILES: Final = {
    "registers": "fewer registers per thread (maxregs, num_warps in Triton, smaller tiles)",
    "shared memory": "less shared memory per block (smaller tiles, fewer pipeline stages)",
    "warps": "another block size: this one does not divide the warps an SM holds",
    "blocks": "larger blocks: an SM holds only so many small ones",
    "barriers": "fewer barriers per block",
}


def advice(
    profile: KernelProfile, speed: SpeedOfLight, held: Occupancy, filled: Waves | None, reasons: Sequence[Stall]
) -> tuple[Advice, ...]:
    """What to change, by what limits the launch; () without data."""
    kind = speed.kernel_class
    if kind is KernelClass.NO_DATA:
        return ()
    given: list[Advice] = []
    if kind is KernelClass.SMALL and filled is not None:
        given += _small(filled)
    if kind is KernelClass.MEMORY:
        given += _memory(profile, speed)
    if kind is KernelClass.COMPUTE:
        given += _compute(profile, speed)
    if kind is KernelClass.BALANCED and speed.compute_percent is not None:
        said = "compute and memory are used equally: only less work of both makes it faster (fusion, a smaller format)"
        given.append(_advice(said, SM_THROUGHPUT, speed.compute_percent, "%", "compute is at {} of peak"))
    if not speed.is_near_roof and kind is not KernelClass.SMALL:
        given += _latency(held, filled, reasons)
    return tuple(given)


def _advice(fix: str, metric: str, value: float, unit: str, said: str) -> Advice:
    shown = f"{value:.1f} %" if unit == "%" else f"{value:.3g}"
    return Advice(fix=fix, because=Evidence(statement=said.format(shown), metric=metric, value=value, unit=unit))


def _small(filled: Waves) -> Iterable[Advice]:
    yield _advice(
        "give it more work per launch (a larger batch, several tensors at once: foreach, batched or grouped products),"
        " or run it at the same time as others (streams, CUDA graphs): the kernel itself is not the problem",
        WAVES,
        filled.waves,
        "waves",
        "the grid fills only {} of a wave",
    )


def _memory(profile: KernelProfile, speed: SpeedOfLight) -> Iterable[Advice]:
    metrics = profile.metrics
    busiest = memory_unit(metrics)
    level, metric, percent = busiest or ("memory", MEMORY_THROUGHPUT, speed.memory_percent or 0.0)
    said = f"{level} is at {{}} of its peak"
    if level in {"DRAM", "memory"}:
        at_roof = "it is at its roof: " if speed.is_near_roof else ""
        fused = "fuse it with its neighbours (torch.compile)" if _is_elementwise(profile) else "reuse what it loads"
        yield _advice(f"{at_roof}move fewer bytes: {fused}, a half-precision format", metric, percent, "%", said)
    else:
        yield _advice(f"fewer requests to {level}: coalesced and wider accesses, tiles", metric, percent, "%", said)
    hits = metrics.get("lts__t_sector_hit_rate.pct")
    if level == "L2" and hits is not None and hits < LOW_HIT_PERCENT:
        fix = "let blocks that share data run at the same time (swizzled tiles)"
        yield _advice(fix, "lts__t_sector_hit_rate.pct", hits, "%", "L2 hit rate {}")
    for rule in profile.rules:
        if rule.id in {"UncoalescedGlobalAccess", "MemoryCacheAccessPattern"} and rule.speedup_fraction:
            percent = 100 * rule.speedup_fraction
            fix = "coalesce: neighbouring threads should read neighbouring addresses (.contiguous(), channels_last)"
            yield _advice(fix, f"rule:{rule.id}", percent, "%", "ncu's rule on access patterns expects {} from it")
            return


def _compute(profile: KernelProfile, speed: SpeedOfLight) -> Iterable[Advice]:
    tensor = tensor_percent(profile.metrics)
    if tensor is not None and tensor < IDLE_TENSOR_PERCENT and family_of(profile.name) not in MEMORY_FAMILIES:
        name = _tensor_metric(profile.metrics)
        fix = "put the products on tensor cores: bf16 autocast, or TF32 (torch.set_float32_matmul_precision('high'))"
        yield _advice(fix, name, tensor, "%", "tensor cores are at {} of peak")
        return
    at_roof = "at its roof: " if speed.is_near_roof else ""
    fix = f"{at_roof}less arithmetic (a cheaper algorithm), or a format with twice the rate (bf16, fp8)"
    yield _advice(fix, SM_THROUGHPUT, speed.compute_percent or 0.0, "%", "compute is at {} of peak")


def _latency(held: Occupancy, filled: Waves | None, reasons: Sequence[Stall]) -> Iterable[Advice]:
    top = reasons[0] if reasons else None
    if top is not None and top.fraction >= BIG_STALL and top.reason in MEANINGS:
        meaning, fix = MEANINGS[top.reason]
        name = f"smsp__average_warps_issue_stalled_{top.reason}_per_issue_active.ratio"
        said = f"{format_fraction(top.fraction)} of a warp's time goes into {meaning}"
        because = Evidence(statement=said, metric=name, value=top.cycles, unit="cycle/inst")
        yield Advice(fix=fix, because=because)
    theory, achieved = held.theoretical_percent, held.achieved_percent
    if theory is not None and theory < LOW_OCCUPANCY_PERCENT:
        fix = "; ".join(_FILES[name] for name in held.limiters) or "another block size"
        yield _advice(fix, THEORETICAL, theory, "%", "theoretical occupancy is only {}")
    elif theory is not None and achieved is not None and theory - achieved >= GAP_PERCENT:
        fix = "give blocks and warps equal work; use longer-lived blocks"
        yield _advice(fix, ACHIEVED, achieved, "%", f"achieved occupancy is {{}}, theoretical {theory:.0f} %")
    if filled is not None and filled.waves >= 1 and filled.tail_fraction >= BIG_TAIL:
        fix = "fill the last wave: other tile or block sizes, or a persistent (stream-k) kernel"
        said = f"{{}} waves: the last one can waste {format_fraction(filled.tail_fraction)}"
        yield _advice(fix, WAVES, filled.waves, "waves", said)


def _is_elementwise(profile: KernelProfile) -> bool:
    return family_of(profile.name) in MEMORY_FAMILIES


def _tensor_metric(metrics: Mapping[str, float]) -> str:
    return next(name for name in metrics if name.startswith(("sm__pipe_tensor", "sm__inst_executed_pipe_tensor")))
