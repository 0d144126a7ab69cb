"""Numbers, units and labels of ncu's pages, brought to NVIDIA's metric names and base units.

Pages print one metric in many ways: `12,319,469` or `12319469` (and `12.319.469` under a German locale), `usecond` or
`us`, `Memory [%]` or `Memory Throughput`. Base units here: ns, byte, hz, byte/s; percent stay percent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from profkit.ingest.numbers import MOST_MEASURED, finite

_TIMES_NS: Final = {
    "ns": 1.0,
    "nsecond": 1.0,
    "us": 1e3,
    "usecond": 1e3,
    "ms": 1e6,
    "msecond": 1e6,
    "s": 1e9,
    "sec": 1e9,
    "second": 1e9,
}
_PREFIXES: Final = {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_COUNTED: Final = re.compile(r"([KkMGTP]?)(byte|hz|Hz|inst|cycle|sector|request|thread|warp|block|op)s?")
_GROUPED: Final = re.compile(r"-?\d{1,3}(?:[.,]\d{3})+")
_NUMBER: Final = re.compile(r"-?\d[\d.,]*(?:[eE][+-]?\d+)?")
_BLANKS: Final = re.compile("[\u00a0\u202f\u2009'\u2019_]")

_NOT_MEASURED: Final = frozenset({"nan", "-nan", "n/a"})
_MOST_SPEEDUP: Final = 1e4  # chosen: ncu estimates percents
_MOST_OF_PEAK: Final = 1000.0
"""Percent of a peak. Chosen: passes differ, so that ncu prints some above 100; ten times a peak was not measured."""
_LONGEST_NAME: Final = 500  # chosen: twice the longest metric
METRIC_NAME: Final = re.compile(r"(?:[a-z]\w*:)?[a-z][a-z0-9]*__[\w.]+|memory_l[12]_\w+")
"""How NVIDIA writes a metric: `unit__subject.rollup.submetric`, or `memory_l2_...` for what instructions ask for."""
OWN_WORDS: Final = re.compile(r"==[A-Z]+== ")
"""How a line begins that ncu prints about itself, wherever it comes among those of a page."""

Cell = tuple[str, str, str]
"""NVIDIA's name of a metric ("" for one that is not used), its unit and its value, as printed."""

SM_THROUGHPUT: Final = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY_THROUGHPUT: Final = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
_SPEED_OF_LIGHT: Final = "Speed Of Light"
_DRAM_BYTES: Final = "dram__bytes.sum.per_second"

_LABELS: Final = {
    "duration": "gpu__time_duration.sum",
    "elapsed cycles": "gpc__cycles_elapsed.max",
    "sm active cycles": "sm__cycles_active.avg",
    "sm frequency": "gpc__cycles_elapsed.avg.per_second",
    "dram frequency": "dram__cycles_elapsed.avg.per_second",
    "compute (sm) throughput": SM_THROUGHPUT,
    "compute (sm) [%]": SM_THROUGHPUT,
    "sm [%]": SM_THROUGHPUT,
    "sol sm": SM_THROUGHPUT,
    "memory [%]": MEMORY_THROUGHPUT,
    "sol memory": MEMORY_THROUGHPUT,
    "dram throughput": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "sol fb": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "l1/tex cache throughput": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "sol l1/tex cache": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "sol tex": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "l2 cache throughput": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "sol l2 cache": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "sol l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1/tex hit rate": "l1tex__t_sector_hit_rate.pct",
    "l2 hit rate": "lts__t_sector_hit_rate.pct",
    "block size": "launch__block_size",
    "grid size": "launch__grid_size",
    "registers per thread": "launch__registers_per_thread",
    "static shared memory per block": "launch__shared_mem_per_block_static",
    "dynamic shared memory per block": "launch__shared_mem_per_block_dynamic",
    "threads": "launch__thread_count",
    "waves per sm": "launch__waves_per_multiprocessor",
    "# sms": "launch__sm_count",
    "block limit sm": "launch__occupancy_limit_blocks",
    "block limit registers": "launch__occupancy_limit_registers",
    "block limit shared mem": "launch__occupancy_limit_shared_mem",
    "block limit warps": "launch__occupancy_limit_warps",
    "block limit barriers": "launch__occupancy_limit_barriers",
    "theoretical occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "achieved occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "warp cycles per issued instruction": "smsp__average_warp_latency_per_inst_issued.ratio",
    "no eligible": "smsp__issue_inst0.avg.pct_of_peak_sustained_active",
    "one or more eligible": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "eligible warps per scheduler": "smsp__warps_eligible.avg.per_cycle_active",
    "active warps per scheduler": "smsp__warps_active.avg.per_cycle_active",
}
"""Labels of the details and text pages, lower case, of 2019 to 2026. "Memory Throughput" stands for two metrics."""


def metric_for(label: str, unit: str, section: str = "") -> str:
    """NVIDIA's name of what a page prints under a label in a section, "" for what profkit does not use.

    A name, or a label with the name beside it (`--print-metric-name`), is taken as it is.
    """
    if len(label) > _LONGEST_NAME:
        return ""
    named = METRIC_NAME.search(label)
    if named is not None:
        return named[0]
    key = label.strip().lower()
    if key == "memory throughput":  # in Speed of Light a percentage, in Memory Workload Analysis the rate of DRAM
        # An ncu older than the report prints no units.
        is_share = unit.strip() == "%" or (not unit.strip() and _SPEED_OF_LIGHT in section)
        return MEMORY_THROUGHPUT if is_share else _DRAM_BYTES
    return _LABELS.get(key, "")


def scale_of(unit: str) -> float:
    """The factor that brings a unit to its base: 1000 for `usecond` (ns), 1e9 for `cycle/nsecond` (hz)."""
    above, slash, below = unit.strip().partition("/")
    if slash:
        per = _TIMES_NS.get(below.strip())
        return _counted(above) if per is None else _counted(above) * 1e9 / per
    return _TIMES_NS[above] if above in _TIMES_NS else _counted(above)


def _counted(unit: str) -> float:
    match = _COUNTED.fullmatch(unit.strip())
    return _PREFIXES[match[1]] if match else 1.0


def uses_decimal_comma(texts: Iterable[str]) -> bool:
    """Whether numbers are written with a decimal comma, by those that can be read in one way only."""
    for text in texts:
        bare = _BLANKS.sub("", text.strip())
        if not _NUMBER.fullmatch(bare):
            continue
        comma, point = bare.rfind(","), bare.rfind(".")
        if comma >= 0 and point >= 0:
            return comma > point
        mark = "," if comma >= 0 else "."
        if bare.count(mark) > 1:
            return mark == "."
        if mark in bare and not _GROUPED.fullmatch(bare):
            return mark == ","
    return False


def share_of(percent: float | None) -> float | None:
    """An estimated speed-up in percent as a share; None for none, and for one that no kernel can have."""
    return None if percent is None else finite(percent / 100, 0, _MOST_SPEEDUP)


def capability_of(metrics: Mapping[str, float]) -> str:
    """The device's compute capability (`9.0`), "" where it is not told."""
    major = metrics.get("device__attribute_compute_capability_major")
    minor = metrics.get("device__attribute_compute_capability_minor")
    return "" if major is None or minor is None else f"{major:.0f}.{minor:.0f}"


def measured_in(text: str, unit: str, name: str, *, has_decimal_comma: bool = False) -> float | None:
    """A metric's value from its cell, in base units; None for none, and for one that no device can have."""
    value = number_in(text, has_decimal_comma=has_decimal_comma)
    return None if value is None else value_of(name, value * scale_of(unit))


def value_of(name: str, value: object) -> float | None:
    """A metric's value in base units; None for none, and for one that no device can have."""
    is_of_peak = "pct_of_peak" in name or name.endswith("_pct")
    return finite(value, 0, _MOST_OF_PEAK) if is_of_peak else finite(value, -MOST_MEASURED, MOST_MEASURED)


def is_nan(value: object) -> bool:
    """Whether a value stands for one that could not be measured: NaN, as a number or as a page prints it."""
    if isinstance(value, str):
        return value.strip().removeprefix("(!)").strip().lower() in _NOT_MEASURED
    return isinstance(value, float) and math.isnan(value)


class Measured(msgspec.Struct):
    """What the cells of a launch give: numbers in base units, those that could not be measured, words."""

    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    unmeasured: list[str] = msgspec.field(default_factory=list)
    texts: dict[str, str] = msgspec.field(default_factory=dict)


def measured(cells: Iterable[Cell], *, has_decimal_comma: bool) -> Measured:
    """The metrics of a launch from its cells; of two of one metric the first."""
    found = Measured()
    for name, unit, text in cells:
        value = measured_in(text, unit, name, has_decimal_comma=has_decimal_comma)
        if name and value is not None:
            found.metrics.setdefault(name, value)
        elif name and is_nan(text):
            found.unmeasured.append(name)
        elif name:
            found.texts[name] = text
    return found


def number_in(text: str, *, has_decimal_comma: bool = False) -> float | None:
    """The number of a cell; of one with instances (`240 (1; 2)`) the total; None for `n/a`, words and NaN."""
    bare = _BLANKS.sub("", text.strip()).split(";")[0].split("(")[0].strip()
    if not _NUMBER.fullmatch(bare):
        return None
    bare = bare.replace(".", "").replace(",", ".") if has_decimal_comma else bare.replace(",", "")
    try:
        value = float(bare)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
