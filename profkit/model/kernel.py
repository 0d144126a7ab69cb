"""What a kernel profiler (Nsight Compute) says of single launches, and what follows from it.

Metrics go by NVIDIA's own names (`sm__throughput.avg.pct_of_peak_sustained_elapsed`), whatever page they were read
from, in base units: ns, byte, hz, byte/s, counts. Percentages stay percent (0-100), as everybody knows them from ncu.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from profkit.model.finding import Evidence


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What one of ncu's own rules printed; `speedup_fraction` is its estimate, of the kernel ("global") or less."""

    id: str
    kind: str
    message: str
    speedup_fraction: float | None = None
    speedup_scope: str = ""


class KernelProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One profiled launch (or, from a summary page, the mean of `n_launches` of one kernel).

    `grid` and `block` are None where the page does not tell; `metrics` holds finite numbers only.
    """

    source: str
    number: int
    name: str
    function: str
    """The name without return type, namespaces, template arguments and parameters: how ncu, nsys and torch agree."""
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    process_id: int | None = None
    device: int | None = None
    device_name: str = ""
    compute_capability: str = ""
    n_launches: int = 1
    metrics: Mapping[str, float] = msgspec.field(default_factory=dict)
    unmeasured: tuple[str, ...] = ()
    """Metrics that ncu asked for and could not measure: NaN, where a pass failed."""
    rules: tuple[Rule, ...] = ()


class KernelClass(StrEnum):
    """What limits a kernel."""

    COMPUTE = "compute-bound"
    MEMORY = "memory-bound"
    BALANCED = "balanced"
    LATENCY = "latency-bound"
    SMALL = "launch-too-small"
    NO_DATA = "no-data"


class Topic(StrEnum):
    """What a piece of advice is about."""

    ACCESS = "access"
    """Sectors of L1/TEX, L2 and DRAM that hold bytes nobody asked for."""
    SPILLS = "spills"
    """The same of a thread's own memory: values that registers did not hold, arrays with computed indices."""
    BANKS = "banks"
    """Accesses to shared memory that one bank serves in turn."""
    GRID = "grid"
    TAIL = "tail"
    BLOCK = "block"
    """Threads of a warp that the size of a block leaves out."""
    STALL = "stall"
    OCCUPANCY = "occupancy"
    """What limits the blocks on an SM."""
    ACHIEVED = "achieved"
    """Fewer warps than fit, in spite of enough blocks."""
    IMBALANCE = "imbalance"
    """SMs that work longer than others."""
    SLICES = "slices"
    """Slices of L2 or channels of DRAM that work longer than others."""
    READY = "ready"
    """Warps that could issue while another one does."""
    DIVERGENCE = "divergence"
    FUSING = "fusing"
    """Multiplications and additions apart from each other."""
    PRECISION = "precision"
    """fp64, and other slow pipes."""
    PLACE = "place"
    """Data in the memory of the host or of another device."""
    COMPRESSION = "compression"
    ALIGNMENT = "alignment"
    ROOF = "roof"
    """The busiest level of memory, or both roofs at once."""
    PIPE = "pipe"
    """The busiest part of the SM."""
    OTHER = "other"
    """What a rule of ncu says that profkit does not know."""


class SpeedOfLight(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of NVIDIA's rule SOLBottleneck, with its inputs: percent of peak and waves per SM.

    Where a level of memory is near its peak and the rule looks past it, the class is memory-bound all the same.
    """

    kernel_class: KernelClass
    title: str
    """The rule's own words: `High Throughput`, `Small Grid`, `Latency Issue`, ...; "" without data."""
    is_near_roof: bool
    compute_percent: float | None
    memory_percent: float | None
    waves: float | None
    agrees_with_ncu: bool | None = None
    """Whether ncu's own rule in the file says the same; None where the file holds none."""

    @property
    def is_by_level(self) -> bool:
        """Whether a full level of memory decided against the rule."""
        return self.is_near_roof and self.title != "High Throughput"


class Occupancy(msgspec.Struct, frozen=True, kw_only=True):
    """Warps on an SM in percent of what it can hold, and which resource keeps more blocks from it."""

    theoretical_percent: float | None
    achieved_percent: float | None
    limiters: tuple[str, ...]
    blocks_per_sm: int | None


class Waves(msgspec.Struct, frozen=True, kw_only=True):
    """How often the grid fills the device; `tail_fraction` is the share of the time that its last wave can waste."""

    waves: float
    tail_fraction: float
    n_blocks: int | None
    n_sms: int | None


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """Where the kernel stands under its roofs; FLOP/s are of one number format, bytes of DRAM."""

    precision: str
    flop_per_s: float
    peak_flop_per_s: float | None
    bytes_per_s: float | None
    peak_bytes_per_s: float | None

    @property
    def intensity(self) -> float | None:
        """FLOP per byte of DRAM traffic."""
        return self.flop_per_s / self.bytes_per_s if self.bytes_per_s else None

    @property
    def ridge(self) -> float | None:
        """The intensity at which the two roofs meet, FLOP per byte."""
        if not self.peak_flop_per_s or not self.peak_bytes_per_s:
            return None
        return self.peak_flop_per_s / self.peak_bytes_per_s

    @property
    def roof_fraction(self) -> float | None:
        """FLOP/s as a share of what the lower roof allows at this intensity."""
        if self.intensity is None or not self.peak_flop_per_s or not self.peak_bytes_per_s:
            return None
        roof = min(self.peak_flop_per_s, self.intensity * self.peak_bytes_per_s)
        return self.flop_per_s / roof if roof else None


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why warps do not issue: cycles per issued instruction, and its share of all (0-1)."""

    reason: str
    cycles: float
    fraction: float


class BusiestPipe(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an SM that is used most: a pipe (`alu`, `fma`, `tensor`, ...), `issue` or `mio`, percent of peak."""

    name: str
    metric: str
    percent: float


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What one of ncu's rules says that its advice gives at most, as a share (0-1).

    `scope` is `global`: of the kernel's time, or `local`: of the use of one part of the device.
    """

    rule: str
    fraction: float
    scope: str


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to change, the measured number it stands on, and what ncu's own rule on it estimates.

    `at_most` is the share (0-1) of the kernel's time that it can save; None where that is not known.
    """

    topic: Topic
    fix: str
    because: Evidence
    at_most: float | None = None
    estimate: Estimate | None = None


class KernelAssessment(msgspec.Struct, frozen=True, kw_only=True):
    """One profile with everything that follows from it; None where its metrics do not tell."""

    profile: KernelProfile
    speed: SpeedOfLight
    duration_ns: float | None
    occupancy: Occupancy
    waves: Waves | None
    roofline: Roofline | None
    stalls: tuple[Stall, ...]
    busiest_pipe: BusiestPipe | None
    evidence: tuple[Evidence, ...]
    advice: tuple[Advice, ...]


class KernelReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `profkit kernels` knows, the longest kernel first."""

    sources: tuple[str, ...]
    kernels: tuple[KernelAssessment, ...]
    warnings: tuple[str, ...]
