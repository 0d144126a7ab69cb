"""The words of a comparison of kernels that its renderers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.model.documents.kernel_comparison import (
    KernelAnswer,
    KernelChange,
    KernelComparison,
    KernelSide,
    MetricChange,
)
from profkit.model.names import function_name
from profkit.render.words.kernels import SHORT, known_name, size_of
from profkit.shell import clean
from profkit.units import format_bytes, format_change, format_count, format_ns, format_quantity

HEADERS: Final = ("kernel", "answer", "change", "before", "after", "limited by", "grid x block")
METRIC_HEADERS: Final = ("what moved", "before", "after", "change")
ALL_METRIC_HEADERS: Final = ("metric", "before", "after", "change")
MAX_TOLD: Final = 3
_ANSWERS: Final = {
    KernelAnswer.FASTER: "faster",
    KernelAnswer.SLOWER: "slower",
    KernelAnswer.SAME: "same",
    KernelAnswer.UNCLEAR: "unclear",
    KernelAnswer.NOT_COMPARABLE: "not compared",
}
_DECIDED: Final = (KernelAnswer.FASTER, KernelAnswer.SLOWER)


def verdict_name(report: KernelComparison) -> str:
    """The answer in capitals: that of all kernels where they agree, else `MIXED`."""
    answers = {one.answer for one in report.kernels if one.answer is not KernelAnswer.NOT_COMPARABLE}
    if not report.kernels:
        return "NO KERNEL IN COMMON"
    if not answers:
        return "NOT COMPARED"
    decided = [answer for answer in _DECIDED if answer in answers]
    if len(decided) == len(_DECIDED):
        return "MIXED"
    if decided:
        return decided[0].value.upper()
    return "UNCLEAR" if KernelAnswer.UNCLEAR in answers else "NO CHANGE"


def headline(report: KernelComparison) -> str:
    """How many kernels have which answer, and what one launch of each takes."""
    if not report.kernels:
        return "no kernel of one side is on the other: nothing is compared"
    if len(report.kernels) == 1:
        return sentence(report.kernels[0])
    counts = [
        f"{n} {name}" for answer, name in _ANSWERS.items() if (n := sum(one.answer is answer for one in report.kernels))
    ]
    told = f"{len(report.kernels)} kernels: {counts[0].partition(' ')[2] if len(counts) == 1 else ', '.join(counts)}"
    timed = [one for one in report.kernels if one.measure == "duration" and one.change is not None]
    if len(timed) < len(report.kernels):
        return told
    before = sum(one.before.duration_ns or 0.0 for one in timed)
    after = sum(one.after.duration_ns or 0.0 for one in timed)
    of = f"{format_ns(before)} before, {format_ns(after)} after ({format_change(after / before - 1)})"
    return f"{told}; one launch of each takes {of}" if before else told


def sentence(one: KernelChange) -> str:
    """One kernel in a line: `softmax: 12.1 us before, 8.00 us after (-33.9 %): faster`."""
    times = f"{_time(one.before)} before, {_time(one.after)} after"
    if one.change is None:
        return f"{name_of(one)}: {times}: {_ANSWERS[one.answer]}"
    by = " of cycles" if one.measure == "cycles" else ""
    return f"{name_of(one)}: {times} ({format_change(one.change)}{by}): {_ANSWERS[one.answer]}"


def name_of(one: KernelChange) -> str:
    """The kernel's name as people know it."""
    return _short(one.before.name) or clean(one.function)


def _short(name: str) -> str:
    return known_name(name, function_name(name))


def _time(side: KernelSide) -> str:
    return "-" if side.duration_ns is None else format_ns(side.duration_ns)


def rows(report: KernelComparison) -> list[tuple[str, ...]]:
    """A line for each kernel that both sides have, as `HEADERS` says."""
    return [
        (
            name_of(one),
            _ANSWERS[one.answer],
            "-" if one.change is None else format_change(one.change),
            _time(one.before),
            _time(one.after),
            _both(SHORT[one.before.kernel_class], SHORT[one.after.kernel_class]),
            _both(size_of(one.before), size_of(one.after)),
        )
        for one in report.kernels
    ]


def _both(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"


def metric_rows(one: KernelChange, *, is_full: bool) -> list[tuple[str, ...]]:
    """A line for each metric that moved, or for each that both sides have."""
    shown = [item for item in one.metrics if is_full or item.has_moved]
    return [(item.label, _value(item, item.before), _value(item, item.after), _moved(item)) for item in shown]


def _value(item: MetricChange, value: float) -> str:
    if item.unit == "%":
        return f"{value:.1f} %"
    if item.unit == "byte":
        return format_bytes(value)
    if item.unit == "byte/s":
        return f"{format_bytes(value)}/s"
    if item.unit == "Hz":
        return f"{value / 1e9:.3g} GHz"
    if item.unit == "cycle":
        return f"{format_count(round(value)) if value >= 1000 else format_quantity(value, '')}"
    return format_count(value) if float(value).is_integer() else format_quantity(value, "")


def _moved(item: MetricChange) -> str:
    if item.unit == "%":
        return f"{item.after - item.before:+.1f} points"
    return "-" if item.change is None else format_change(item.change)


def spread(one: KernelChange) -> str:
    """The shortest and the longest launch of each side; "" where there is one of each."""
    if one.before.n_launches == one.after.n_launches == 1:
        return ""
    return f"before, {_launches(one.before)}; after, {_launches(one.after)}"


def _launches(side: KernelSide) -> str:
    count = f"{format_count(side.n_launches)} launch{'es' * (side.n_launches != 1)}"
    if side.least_ns is None or side.longest_ns is None or side.least_ns == side.longest_ns:
        return count
    return f"{count} of {format_ns(side.least_ns)} to {format_ns(side.longest_ns)}"


def told(report: KernelComparison, *, is_full: bool) -> Sequence[KernelChange]:
    """The kernels that are told at length: those that changed most, or all."""
    if is_full:
        return report.kernels
    return [one for one in report.kernels if one.answer is not KernelAnswer.SAME][:MAX_TOLD]


def alone(sides: Sequence[KernelSide]) -> list[str]:
    """The kernels of one side without a partner: name, launches, time of one."""
    return [f"{_short(side.name)} ({_time(side)}, {size_of(side)}, {format_count(side.n_launches)}x)" for side in sides]


LIMIT: Final = (
    "ncu replays one launch alone: whether the job is faster, three runs a side say (profkit compare with captures)"
)
