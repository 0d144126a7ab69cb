"""What a scaling study found, as plain values. Renderers know nothing else.

Throughput is work per second of all GPUs together, in the unit the series names. Efficiency E is throughput per GPU
over that of the base, the smallest size of the series, so it means the same for strong and weak scaling.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from profkit.model.documents.shown import Shown
from profkit.plain import clean


class Held(StrEnum):
    """What a series holds constant while GPUs are added."""

    STRONG = "strong"
    """The work of one step, of all GPUs together."""
    WEAK = "weak"
    """The work of one step per GPU."""
    UNKNOWN = "unknown"
    """The table does not tell."""


class Standing(StrEnum):
    """Whether a series' base deserves to be one."""

    SOUND = "sound"
    DOUBTFUL = "doubtful"
    """The largest size is not superlinear, but one between is: a later loss hides the excess."""
    ACCUSED = "accused"
    """The largest size is superlinear: its efficiency is not to be published until the base is explained."""


class Bearing(StrEnum):
    """What a clue says of the base of a superlinear series."""

    ACCUSES = "accuses"
    SUGGESTS = "suggests"
    CLEARS = "clears"
    UNKNOWN = "unknown"


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One size. `cv` (sample standard deviation over mean) is None of one run.

    `efficiency` and its 95 % `interval` are against the base, None for the base itself; `is_pilot` says that the
    interval stands on two runs. `serial_fraction` is Karp and Flatt's (1/S - 1/p) / (1 - 1/p) of speed-up S by p times
    the GPUs.
    """

    gpus: int
    runs: tuple[float, ...]
    mean: float
    cv: float | None
    speedup: float
    efficiency: float | None
    interval: tuple[float, float] | None
    is_pilot: bool
    serial_fraction: float | None
    memory_bytes: float | None
    capacity_bytes: float | None
    work_per_step: float | None
    micro_batch: float | None
    accumulation: float | None

    @property
    def n(self) -> int:
        """Number of runs."""
        return len(self.runs)

    @property
    def per_gpu(self) -> float:
        """Mean throughput of one GPU."""
        return self.mean / self.gpus


class UslFit(msgspec.Struct, frozen=True, kw_only=True):
    """X(N) = gamma N / (1 + alpha (N - 1) + beta N (N - 1)), Gunther's universal scalability law.

    `alpha` is contention, `beta` coherency; a negative one is superlinear. `df` degrees of freedom remain: with 0 the
    curve passes through every point and says nothing of its error. `residual` is the relative root mean square misfit,
    None at df 0. `peak_gpus` is where the law says that more GPUs give less, None where it never does.
    """

    gamma: float
    alpha: float
    beta: float
    df: int
    residual: float | None
    peak_gpus: float | None


class Clue(msgspec.Struct, frozen=True, kw_only=True):
    """One look at why a base may be slow: what was asked, what was seen, and what that says."""

    id: str
    bearing: Bearing
    statement: str


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """One signed part of log E: negative costs efficiency."""

    name: str
    log_efficiency: float


class Decomposition(msgspec.Struct, frozen=True, kw_only=True):
    """log E between the base and one size, from their traces; the parts sum to it."""

    base_gpus: int
    gpus: int
    efficiency: float
    parts: tuple[Share, ...]
    is_cpu: bool = False
    """Whether the ranks are processes on CPUs, whose parts have words of their own."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of one configuration. `points` are in order of GPUs; the first is the base.

    Of a base that is in doubt or accused, `clues` say why and `honest` what to compare against instead. `sentence` is
    what one may publish, "" where that is nothing.
    """

    name: str
    held: Held
    unit: str
    points: tuple[Point, ...]
    usl: UslFit | None
    standing: Standing
    clues: tuple[Clue, ...]
    honest: tuple[str, ...]
    next_command: str
    decompositions: tuple[Decomposition, ...]
    sentence: str

    @property
    def base(self) -> Point:
        """The smallest size."""
        return self.points[0]

    @property
    def largest(self) -> Point:
        """The largest size."""
        return self.points[-1]


class ScalingReport(Shown, frozen=True, kw_only=True):
    """Everything `profkit scaling` knows."""

    sources: tuple[str, ...]
    series: tuple[Series, ...]
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        """One line: the largest size of each series with its efficiency."""
        told = "; ".join(
            f"{one.name}: E = {one.largest.efficiency or 1:.2f} on {one.largest.gpus} GPUs" for one in self.series
        )
        return clean(f"<ScalingReport: {told}>")
