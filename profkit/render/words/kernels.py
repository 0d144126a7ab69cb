"""The words of a kernel report that its renderers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.model.documents.kernel_comparison import KernelSide
from profkit.model.kernel import KernelAssessment, KernelClass, KernelProfile, KernelReport
from profkit.model.names import short_name
from profkit.shell import clean
from profkit.units import format_ns

_HEADERS: Final = ("kernel", "limited by", "time", "compute", "memory", "waves", "occupancy", "grid x block")
MAX_TOLD: Final = 3
SHORT: Final = {
    KernelClass.COMPUTE: "compute",
    KernelClass.MEMORY: "memory",
    KernelClass.BALANCED: "both",
    KernelClass.LATENCY: "latency",
    KernelClass.SMALL: "small grid",
    KernelClass.NO_DATA: "no data",
}
"""What limits a kernel, for a cell of a table."""
_MEANINGS: Final = {
    KernelClass.COMPUTE: "arithmetic is the limit",
    KernelClass.MEMORY: "memory is the limit",
    KernelClass.BALANCED: "compute and memory are used equally",
    KernelClass.LATENCY: "neither compute nor memory is busy: it waits",
    KernelClass.SMALL: "the grid does not fill the device",
    KernelClass.NO_DATA: "the throughputs were not collected",
}


def name_of(one: KernelAssessment) -> str:
    """The kernel's name as people know it."""
    return known_name(one.profile.name, one.profile.function)


def known_name(name: str, function: str) -> str:
    """A kernel's name as people know it, by its whole name and that of its function."""
    shown = short_name(name.replace("<unnamed>::", "").partition("[v")[0])  # [v1,...]: Numba's mangling
    return clean(shown if function in shown else function or shown)


def size_of(one: KernelProfile | KernelSide) -> str:
    """Grid and block: `864 x 256`, `1x174x1 x 512`; "-" where the page does not tell."""
    if one.grid is None or one.block is None:
        return "-"
    return " x ".join(
        str(size[0]) if size[1:] == (1, 1) else "x".join(map(str, size)) for size in (one.grid, one.block)
    )


def verdict_name(one: KernelAssessment) -> str:
    """The class in capitals: `MEMORY-BOUND`."""
    return one.speed.kernel_class.value.upper()


def headline(one: KernelAssessment) -> str:
    """The one line of meaning of a kernel."""
    meaning = _MEANINGS[one.speed.kernel_class]
    if one.speed.kernel_class is KernelClass.NO_DATA and one.profile.unmeasured:
        return "the throughputs could not be measured (NaN): a pass of ncu failed"
    return f"{meaning}, and near its peak" if one.speed.is_near_roof else meaning


def rule_sentence(one: KernelAssessment) -> str:
    """How the verdict stands to NVIDIA's rule; "" without one."""
    speed = one.speed
    if not speed.title:
        return ""
    if speed.is_by_level:
        return f"a level of memory is full, which NVIDIA's Speed of Light rule looks past: {speed.title}"
    own = ""
    if speed.agrees_with_ncu is not None:
        own = f"; ncu's own rule in the file {'agrees' if speed.agrees_with_ncu else 'says otherwise'}"
    return f"by NVIDIA's Speed of Light rule: {speed.title}{own}"


def table(report: KernelReport) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings, the first one that of text, and a line for each kernel; columns that nothing is known for go."""
    rows = [_row(one) for one in report.kernels]
    shown = [place for place in range(len(_HEADERS)) if any(row[place] != "-" for row in rows)]
    return tuple(_HEADERS[place] for place in shown), [tuple(row[place] for place in shown) for row in rows]


def _row(one: KernelAssessment) -> tuple[str, ...]:
    return (
        name_of(one),
        SHORT[one.speed.kernel_class],
        "-" if one.duration_ns is None else format_ns(one.duration_ns),
        _percent(one.speed.compute_percent),
        _percent(one.speed.memory_percent),
        "-" if one.waves is None else f"{one.waves.waves:.3g}",
        _percent(one.occupancy.achieved_percent),
        size_of(one.profile),
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} %"


def device_of(one: KernelAssessment) -> str:
    """Size and place: `864 x 256 threads, NVIDIA H100, compute capability 9.0`, as far as the page tells."""
    capability = one.profile.compute_capability
    size = size_of(one.profile)
    parts = [
        "" if size == "-" else f"{size} threads",
        one.profile.device_name,
        f"compute capability {capability}" if capability else "",
    ]
    return clean(", ".join(filter(None, parts)))


def told(report: KernelReport, *, is_full: bool) -> Sequence[KernelAssessment]:
    """The kernels that are told at length: the longest few, each kernel and size once, or all."""
    if is_full:
        return report.kernels
    seen: dict[str, KernelAssessment] = {}
    for one in report.kernels:
        seen.setdefault(f"{one.profile.name} {size_of(one.profile)}", one)
    return list(seen.values())[:MAX_TOLD]
