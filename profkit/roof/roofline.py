"""What devices can do at most, the least time that work takes on one, and which limit sets it.

Peaks are from their makers' data sheets: dense products of matrices, and memory, at the boost clock: a device that
throttles, or whose clock is set lower, cannot reach them. Rates of sparse matrices, which data sheets print beside or
instead, are halved. FP32 and FP64 are those of units for products of matrices where a device has such. Of two dies on
one card each is a device, as traces have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from profkit.model.kernel_names import Precision
from profkit.redact.later import later
from profkit.roof.formulas.work import Work


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """The most one device does: FLOP/s by number format, bytes/s of its memory, bytes of its largest cache."""

    name: str
    flop_per_s: Mapping[Precision, float]
    """Without the formats that the device has no units for."""
    bytes_per_s: float
    cache_bytes: int
    source: str


_FORMATS: Final = (
    Precision.FP64,
    Precision.FP32,
    Precision.TF32,
    Precision.FP16,
    Precision.BF16,
    Precision.FP8,
    Precision.INT8,
)
_V100: Final = "NVIDIA V100 data sheet"
_A100: Final = "NVIDIA A100 data sheet"
_H100: Final = "NVIDIA H100 data sheet"
_H200: Final = "NVIDIA H200 data sheet"
_GA102: Final = "NVIDIA Ampere GA102 whitepaper, fp32 accumulation"
_ADA: Final = "NVIDIA Ada whitepaper, fp32 accumulation"
_AMD: Final = "AMD Instinct {} data sheet"
_AMPERE: Final = (19.5, 19.5, 156, 312, 312, 0, 624)
_HOPPER: Final = (66.9, 66.9, 494.7, 989.4, 989.4, 1978.9, 1978.9)
_HOPPER_NVL: Final = (60, 60, 417.5, 835.5, 835.5, 1670.5, 1670.5)
_CDNA3: Final = (163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9, 2614.9)

# Pattern of the name in a trace, name, TFLOP/s by `_FORMATS` (0: no units for it), GB/s, MiB of the largest cache,
# source. The first whose pattern is found: names that others begin with come after these.
_TABLE: Final = (
    (r"V100S", "V100S PCIe", (8.2, 16.4, 0, 130, 0, 0, 0), 1134, 6, _V100),
    (r"V100-PCI", "V100 PCIe", (7, 14, 0, 112, 0, 0, 0), 900, 6, _V100),
    (r"V100-(?:SXM|DGXS)", "V100 SXM2", (7.8, 15.7, 0, 125, 0, 0, 0), 900, 6, _V100),
    (r"\bT4\b", "T4", (0.25, 8.1, 0, 65, 0, 0, 130), 320, 4, "NVIDIA T4 data sheet"),
    (r"\bA10G\b", "A10G", (0.49, 31.5, 35, 70, 70, 0, 140), 600, 6, "NVIDIA A10G of AWS G5 instances"),
    (r"\bA10\b", "A10", (0.49, 31.2, 62.5, 125, 125, 0, 250), 600, 6, "NVIDIA A10 data sheet"),
    (r"\bA30\b", "A30", (10.3, 10.3, 82, 165, 165, 0, 330), 933, 24, "NVIDIA A30 data sheet"),
    (r"\bA40\b", "A40", (0.58, 37.4, 74.8, 149.7, 149.7, 0, 299.3), 696, 6, "NVIDIA A40 data sheet"),
    (r"RTX A6000", "RTX A6000", (0.6, 38.7, 77.4, 154.8, 154.8, 0, 309.7), 768, 6, _GA102),
    (r"RTX 3090(?! Ti)", "GeForce RTX 3090", (0.56, 35.6, 35.6, 71, 71, 0, 284), 936, 6, _GA102),
    (r"RTX 4090(?! [DL])", "GeForce RTX 4090", (1.29, 82.6, 82.6, 165.2, 165.2, 330.3, 660.6), 1008, 72, _ADA),
    (r"\bL4\b", "L4", (0.47, 30.3, 60, 121, 121, 242.5, 242.5), 300, 48, "NVIDIA L4 data sheet"),
    (r"\bL40\b", "L40", (1.4, 90.5, 90.5, 181, 181, 362, 362), 864, 96, "NVIDIA L40 data sheet"),
    (r"\bL40S\b", "L40S", (1.4, 91.6, 183, 362, 362, 733, 733), 864, 96, "NVIDIA L40S data sheet"),
    (r"A[18]00 80GB PCI", "A100 80 GB PCIe", _AMPERE, 1935, 40, _A100),
    (r"A[18]00-SXM\d?-80", "A100 80 GB SXM", _AMPERE, 2039, 40, _A100),
    (r"A[18]00-(?:SXM\d?|PCI[Ee])-40", "A100 40 GB", _AMPERE, 1555, 40, _A100),
    (r"H100 NVL", "H100 NVL", _HOPPER_NVL, 3900, 50, _H100),
    (r"H100 PCI", "H100 PCIe", (51, 51, 378, 756.5, 756.5, 1513, 1513), 2000, 50, _H100),
    (r"H100 80GB HBM3|H100 SXM", "H100 SXM", _HOPPER, 3350, 50, _H100),
    (r"GH200 480GB", "GH200 96 GB", _HOPPER, 4000, 50, "NVIDIA GH200 data sheet"),
    (r"H200 NVL", "H200 NVL", _HOPPER_NVL, 4800, 50, _H200),
    (r"\bH200\b", "H200 SXM", _HOPPER, 4800, 50, _H200),
    (r"\bGB200\b", "GB200, each GPU", (40, 80, 1250, 2500, 2500, 5000, 5000), 8000, 126, "NVIDIA GB200 data sheet"),
    (r"\bB200\b", "B200", (37, 75, 1125, 2250, 2250, 4500, 4500), 8000, 126, "NVIDIA HGX B200 data sheet"),
    (r"MI210", "MI210", (45.3, 45.3, 0, 181, 181, 0, 181), 1638.4, 8, _AMD.format("MI210")),
    (r"MI250X", "MI250X, each die", (47.9, 47.9, 0, 191.5, 191.5, 0, 191.5), 1638.4, 8, _AMD.format("MI250X")),
    (r"MI250", "MI250, each die", (45.3, 45.3, 0, 181, 181, 0, 181), 1638.4, 8, _AMD.format("MI250")),
    (r"MI300A", "MI300A", (122.6, 122.6, 490.3, 980.6, 980.6, 1961.2, 1961.2), 5300, 256, _AMD.format("MI300A")),
    (r"MI300X", "MI300X", _CDNA3, 5300, 256, _AMD.format("MI300X")),
    (r"MI325X", "MI325X", _CDNA3, 6000, 256, _AMD.format("MI325X")),
    (r"MI350X", "MI350X", (72.1, 144.2, 0, 2309.6, 2309.6, 4614, 4614), 8000, 256, _AMD.format("MI350X")),
    (r"MI355X", "MI355X", (78.6, 157.3, 0, 2516.6, 2516.6, 5033.2, 5033.2), 8000, 256, _AMD.format("MI355X")),
)
_PEAKS: Final = tuple(
    (
        later(pattern),
        Peak(
            name=name,
            flop_per_s={made: rate * 1e12 for made, rate in zip(_FORMATS, rates, strict=True) if rate},
            bytes_per_s=giga * 1e9,
            cache_bytes=mebi * 2**20,
            source=source,
        ),
    )
    for pattern, name, rates, giga, mebi, source in _TABLE
)


def peak_of(name: str) -> Peak | None:
    """The peaks of a device by its name in a trace ("NVIDIA A100-SXM4-80GB"); None for one that is not in the table.

    None, too, where the name leaves open which of several devices it is: "A100" does not say how fast its memory is.
    """
    return next((peak for pattern, peak in _PEAKS if pattern.search(name)), None)


STREAMED: Final = 2.5
"""Times the largest cache from which on data comes from memory. Measured: in reference traces elementwise operators on
1 to 2.1 times the cache take as little as 0.7 of the time that the bandwidth allows, on more never less than 1.05."""

_IN_CACHE: Final = 2
"""Times the largest cache that never reach memory while a call runs: what it reads from the cache, and what it leaves
there. An RTX 4090 (72 MiB) so takes 131 us for 268 MB, half of what its bandwidth alone allows."""


class Limit(StrEnum):
    """What sets the least time."""

    COMPUTE = "compute"
    MEMORY = "memory"


class Roof(msgspec.Struct, frozen=True):
    """The least time of one call, ns, and what sets it.

    `sure_ns` is what even a call takes that finds the cache full of its operands and leaves it full of its result: no
    call takes less.
    """

    least_ns: float
    sure_ns: float
    limit: Limit


def roof_of(work: Work, peak: Peak, precision: Precision) -> Roof | None:
    """The roof of one call in this number format; None where neither its arithmetic nor its memory sets one.

    Only products of matrices have a roof of arithmetic. Of data that is little larger than the largest cache much may
    never reach memory: there memory sets no roof of what computes next to nothing, and none that is sure of a product.
    Where the format has no peak nothing is said of a product.
    """
    memory_ns = (work.n_bytes or 0) / peak.bytes_per_s * 1e9
    sure_ns = max((work.n_bytes or 0) - _IN_CACHE * peak.cache_bytes, 0) / peak.bytes_per_s * 1e9
    is_streamed = (work.n_bytes or 0) > STREAMED * peak.cache_bytes
    if not work.is_matrix:
        return Roof(memory_ns, sure_ns, Limit.MEMORY) if is_streamed else None
    rate = peak.flop_per_s.get(precision)
    if rate is None or not work.least_flops:
        return None
    compute_ns = work.least_flops / rate * 1e9
    least_ns = max(compute_ns, memory_ns)
    limit = Limit.COMPUTE if compute_ns >= memory_ns else Limit.MEMORY
    return Roof(least_ns, max(compute_ns, sure_ns), limit)
