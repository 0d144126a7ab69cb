"""Where a kernel stands under its roofs, as far as the collected metrics allow.

FLOP = added + multiplied + 2 x fused; per cycle, times the clock. Names as in ncu's section SpeedOfLight_RooflineChart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from profkit.kernels.speed import DRAM_THROUGHPUT
from profkit.model.kernel import KernelProfile, Roofline
from profkit.model.kernel_names import Precision, told
from profkit.model.names import MEMORY_FAMILIES, family_of

DRAM_BYTES: Final = "dram__bytes.sum.per_second"
_CYCLES: Final = "smsp__cycles_elapsed.avg.per_second"
_SM_CYCLES: Final = "sm__cycles_elapsed.avg.per_second"
_FORMATS: Final = {"fp32": ("f", 1), "fp64": ("d", 1), "fp16": ("h", 2)}
"""Letter of the instructions (fadd, dadd, hadd), and lanes of one: half precision works on pairs."""
_SAID: Final = re.compile(r"achieved (?:close to )?(\d{1,9})% of this device's (fp\d\d) peak performance")
_ALSO_SAID: Final = re.compile(r"and (?:close to )?(\d{1,9})% of its (fp\d\d) peak performance")
RULE: Final = "SOLFPRoofline"
TENSOR_USED_PERCENT: Final = 5.0
"""Percent of peak from which on tensor cores count as used. The counters of A100 and H100 read 0.06 to 3 % under plain
fp32 kernels; products on tensor cores that are worth a profile read tens. Chosen between the two."""
TENSOR_RATE: Final = 16
"""FLOP/s of tensor cores in half precision over those of fp32 outside them: 16 on A100, 15 on H100 (data sheets)."""
_OUTSIDE_TENSOR_CORES: Final = (Precision.FP32, Precision.FP64)
"""Of kernels whose names do not tell what they multiply with."""


def roofline(profile: KernelProfile) -> Roofline | None:
    """The position for the number format that did most of the work; None without counted instructions.

    Work of tensor cores is not in these counters: where it may be more than what they count, None, since the position
    would be wrong.
    """
    metrics = profile.metrics
    done = {name: flop for name in _FORMATS if (flop := flop_per_s(metrics, name)) is not None}
    precision = max(done, key=lambda name: done[name], default=None)
    if precision is None or not done[precision]:
        return None
    peak = _peak_flop_per_s(metrics, precision)
    if _may_hide_work(profile, done[precision], peak):
        return None
    return Roofline(
        precision=precision,
        flop_per_s=done[precision],
        peak_flop_per_s=peak,
        bytes_per_s=metrics.get(DRAM_BYTES),
        peak_bytes_per_s=peak_bytes_per_s(metrics),
    )


def _may_hide_work(profile: KernelProfile, flop_per_s: float, peak_flop_per_s: float | None) -> bool:
    """Whether tensor cores may have done more than was counted outside them.

    A few percent prove nothing (`TENSOR_USED_PERCENT`). Then kernels that are known to compute outside count as such,
    and others where even the rate of half precision on tensor cores would come to less.
    """
    tensor = tensor_percent(profile.metrics) or 0.0
    if tensor == 0 or tensor >= TENSOR_USED_PERCENT:
        return tensor > 0
    if family_of(profile.name) in MEMORY_FAMILIES or _is_outside_tensor_cores(profile.name):
        return False
    return not peak_flop_per_s or tensor / 100 * TENSOR_RATE > flop_per_s / peak_flop_per_s


def _is_outside_tensor_cores(kernel: str) -> bool:
    name = told(kernel)
    return not name.on_matrix_units if name.on_matrix_units is not None else name.precision in _OUTSIDE_TENSOR_CORES


def said_percents(profile: KernelProfile) -> dict[str, float]:
    """What ncu's roofline rule says of each number format, percent of its peak; {} where no page holds it."""
    messages = [rule.message for rule in profile.rules if "peak performance" in rule.message]
    found = [match for text in messages for pattern in (_SAID, _ALSO_SAID) for match in pattern.finditer(text)]
    return {match[2]: float(match[1]) for match in found}


def tensor_percent(metrics: Mapping[str, float]) -> float | None:
    """How busy the tensor cores were, in percent of peak; None where it was not collected."""
    return max((metrics[name] for name in _tensor_metrics(metrics)), default=None)


def tensor_metric(metrics: Mapping[str, float]) -> str:
    """The metric that `tensor_percent` is; "" where none was collected."""
    return max(_tensor_metrics(metrics), key=lambda name: metrics[name], default="")


def _tensor_metrics(metrics: Mapping[str, float]) -> list[str]:
    """The name changes with the architecture (`_op_hmma`, `_type_hmma_hgmma`), its beginning does not.

    `hfma2` is half-precision arithmetic that some chips run on the same pipe, and no product.
    """
    return [
        name
        for name in metrics
        if name.startswith(("sm__pipe_tensor", "sm__inst_executed_pipe_tensor"))
        and ".avg.pct_of_peak_sustained" in name
        and "hfma2" not in name
    ]


def peak_bytes_per_s(metrics: Mapping[str, float]) -> float | None:
    """The DRAM roof in byte/s: bytes per cycle times clock, else what was reached over its percentage."""
    per_cycle, clock = metrics.get("dram__bytes.sum.peak_sustained"), metrics.get("dram__cycles_elapsed.avg.per_second")
    if per_cycle and clock:
        return per_cycle * clock
    reached, percent = metrics.get(DRAM_BYTES), metrics.get(DRAM_THROUGHPUT)
    # Below a few percent the printed two decimals are no base for a division (chosen).
    return 100 * reached / percent if reached and percent and percent >= 5 else None


def flop_per_s(metrics: Mapping[str, float], precision: str) -> float | None:
    """What was counted of a number format outside tensor cores; None where it was not."""
    letter, lanes = _FORMATS[precision]
    clock = metrics.get(_CYCLES)
    counted = "smsp__sass_thread_inst_executed_op_{}{}_pred_on.sum.per_cycle_elapsed"
    added, multiplied = (metrics.get(counted.format(letter, op)) for op in ("add", "mul"))
    fused = metrics.get(f"derived__smsp__sass_thread_inst_executed_op_{letter}fma_pred_on_x{2 * lanes}")
    if clock is None or added is None or multiplied is None or fused is None:
        return None
    return ((added + multiplied) * lanes + fused) * clock


def _peak_flop_per_s(metrics: Mapping[str, float], precision: str) -> float | None:
    letter, lanes = _FORMATS[precision]
    peak = metrics.get(f"derived__sm__sass_thread_inst_executed_op_{letter}fma_pred_on_x{2 * lanes}")
    clock = metrics.get(_SM_CYCLES)
    return peak * clock if peak and clock else None
