"""What the contenders took, as plain text: one row each, then their ratios against what is wanted."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from bench.contest import FLOOR, GUNZIP, HTA, Runs
from bench.measure import Usage

PACKAGES = ("traceinsight", "pandas", "numpy", "msgspec", "isal")
SMALL_TRACE_CPU_S = 0.15
"""The CPU time wanted for a whole triage of a 1 MB trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number of a run; `of` takes the contender's name and its run."""

    label: str
    of: Callable[[str, Usage], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """What `over` takes divided by what `under` takes; wanted at least `least`, or at most `most`."""

    over: str
    under: str
    quantity: Quantity
    least: float | None = None
    most: float | None = None


def child_result(usage: Usage) -> dict[str, Any]:
    """Give the JSON that bench.floor or bench.hta_calls printed as its last line; times in s."""
    result: dict[str, Any] = json.loads(usage.stdout.strip().splitlines()[-1])
    return result


def _hta_work_s(usage: Usage) -> float:
    result = child_result(usage)
    return float(result["load_s"] + sum(result["calls_s"].values()))


WALL_OF_GUNZIP = Quantity(
    label="wall, gunzip without start",
    of=lambda name, usage: float(child_result(usage)["gunzip_s"]) if name == GUNZIP else usage.wall_s,
)
WALL = Quantity(label="wall", of=lambda _, usage: usage.wall_s)
WALL_WITHOUT_HTA_IMPORTS = Quantity(
    label="wall, HTA without start and imports",
    of=lambda name, usage: _hta_work_s(usage) if name == HTA else usage.wall_s,
)
CPU = Quantity(label="CPU", of=lambda _, usage: usage.cpu_s)
PEAK = Quantity(label="peak memory", of=lambda _, usage: usage.peak_bytes)


def format_setting(trace: Path, runs: Runs) -> str:
    """Give the size of the trace, the machine and the versions."""
    size = f"{trace.stat().st_size / 1e6:.1f} MB on disk"
    if runs[FLOOR]:
        result = child_result(runs[FLOOR][0])
        size = f"{result['n_bytes'] / 1e6:.0f} MB of text, {size}, {result['n_events']:,} events"
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {load}"
    versions = ", ".join(f"{package} {_version(package)}" for package in PACKAGES)
    return f"{trace.name}: {size}\n{machine}; Python {platform.python_version()}, {versions}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def format_runs(runs: Runs) -> str:
    """Give one row per contender: medians, and the range of wall time."""
    head = ("contender", "runs", "wall s", "(least - most)", "CPU s", "peak MB")
    lines = ["{:<20} {:>4} {:>8} {:>17} {:>8} {:>8}  of it".format(*head)]
    for name, usages in runs.items():
        if not usages:
            lines.append(f"{name:<20} {'-':>4}  failed")
            continue
        wall_s = [usage.wall_s for usage in usages]
        extent = f"({min(wall_s):.2f} - {max(wall_s):.2f})"
        cpu_s = median(usage.cpu_s for usage in usages)
        peak_mb = median(usage.peak_bytes for usage in usages) / 1e6
        row = f"{name:<20} {len(usages):>4} {median(wall_s):>8.2f} {extent:>17} {cpu_s:>8.2f} {peak_mb:>8.0f}"
        lines.append(f"{row}  {_parts(name, usages)}".rstrip())
    return "\n".join(lines)


def _parts(name: str, usages: Iterable[Usage]) -> str:
    """Give the parts that a child of bench/ timed itself, as medians."""
    if name == GUNZIP:
        parts = [_pick(child_result(usage), "gunzip_s") for usage in usages]
    elif name == FLOOR:
        parts = [_pick(child_result(usage), "gunzip_s", "decode_s") for usage in usages]
    elif name == HTA:
        results = [child_result(usage) for usage in usages]
        parts = [
            _pick(result, "import_s", "load_s") | {"four calls": sum(result["calls_s"].values())} for result in results
        ]
    else:
        return ""
    return "  ".join(f"{part} {median(each[part] for each in parts):.2f}" for part in parts[0])


def _pick(result: dict[str, Any], *keys: str) -> dict[str, float]:
    return {key.removesuffix("_s"): result[key] for key in keys}


def format_ratios(ratios: Sequence[Ratio], runs: Runs) -> str:
    """Give one line per ratio, medians over medians, with what is wanted and whether it is reached."""
    lines = []
    for ratio in ratios:
        label = f"{ratio.over} / {ratio.under}, {ratio.quantity.label}"
        if runs[ratio.over] and runs[ratio.under]:
            over, under = (
                median(ratio.quantity.of(name, usage) for usage in runs[name]) for name in (ratio.over, ratio.under)
            )
            wanted = format_wanted(over / under, least=ratio.least, most=ratio.most)
            lines.append(f"{label:<58} {over / under:>7.2f}{wanted}")
        else:
            lines.append(f"{label:<58} {'-':>7}")
    return "\n".join(lines)


def format_wanted(value: float, *, least: float | None = None, most: float | None = None) -> str:
    """Give what is wanted of `value` and whether it is reached; empty where nothing is."""
    if least is not None:
        return f"   wanted >= {least:g}: {'reached' if value >= least else 'MISSED'}"
    if most is not None:
        return f"   wanted <= {most:g}: {'reached' if value <= most else 'MISSED'}"
    return ""


def format_starts(runs: Runs) -> str:
    """Give the CPU time of Python's own start, and of what a triage imports: the floor of a small trace."""
    told = [f"{name} {median(usage.cpu_s for usage in usages):.3f} s" for name, usages in runs.items() if usages]
    return f"CPU of a start alone: {'; '.join(told)} (a triage starts numpy with one thread)"


def format_small(trace: Path, size_bytes: int, usages: Sequence[Usage]) -> str:
    """Give the CPU and wall time of a whole triage of a small trace, where start-up shows."""
    label = f"{size_bytes / 1e6:.1f} MB trace ({trace.name})"
    if not usages:
        return f"{label}: failed"
    cpu_s = median(usage.cpu_s for usage in usages)
    wall_s = median(usage.wall_s for usage in usages)
    wanted = format_wanted(cpu_s, most=SMALL_TRACE_CPU_S)
    return f"{label}: wall {wall_s:.2f} s, CPU with imports {cpu_s:.2f} s{wanted}"
