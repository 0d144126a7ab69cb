"""Bars of parts: where they begin and end in percent of a width, with their words; they add up to the whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from profkit.model.budget import IDLE_PARTS, WORK_PARTS
from profkit.model.documents.comparison import Bar, Comparison
from profkit.model.documents.rank_report import DeviceReport, RankReport
from profkit.render.html.parts.tables import See
from profkit.render.words import triage as text
from profkit.units import format_ns, format_signed_ns


def percent(part: float, whole: float) -> str:
    """A position or a length as SVG takes it: `12.345%`."""
    return f"{100 * part / whole if whole else 0:.3f}%"


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a bar."""

    category: str
    x: str
    width: str
    label: str = ""
    share: str = ""
    """In percent, as every format prints it; "" where the part is too small for its tenth."""
    time: str = ""
    raw_ns: int = 0
    href: str = ""


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """What several parts have together: `busy 53.9 %`."""

    label: str
    share: str
    segments: tuple[Segment, ...]


class BudgetBar(msgspec.Struct, frozen=True, kw_only=True):
    """Where the step goes; `sums` holds the segments by busy and idle, those of 0.0 % left out."""

    title: str
    of: str
    segments: tuple[Segment, ...]
    sums: tuple[Sum, ...]
    unit: str
    whole: str


def budget_bar(
    rank: RankReport, device: DeviceReport, *, title: str, of: str, labels: Mapping[str, str], see: See
) -> BudgetBar:
    """The bar of one device, its legend in the order of the terminal's: work, then idle time by size."""
    budget, shares = device.budget, device.budget.tenths
    whole_ns = rank.steps.mean_ns or budget.window_ns
    per_step = budget.window_ns / whole_ns
    order = [*WORK_PARTS, *sorted(IDLE_PARTS, key=lambda name: -shares[name])]
    segments, at = {}, 0
    for name in order:
        part = budget.parts[name]
        segments[name] = Segment(
            category=name,
            label=labels[name],
            x=percent(at, budget.window_ns),
            width=percent(part, budget.window_ns),
            share=text.percent(shares[name]) if shares[name] else "",
            time=format_ns(part / per_step),
            raw_ns=part,
            href=see(f"part:{name}") if part else "",
        )
        at += part
    idle = "rest" if device.kind == "cpu" else "idle"
    sums = tuple(
        Sum(
            label=label,
            share=text.percent(sum(shares[name] for name in names)),
            segments=tuple(segments[name] for name in order if name in names and shares[name]),
        )
        for label, names in (("busy", WORK_PARTS), (idle, IDLE_PARTS))
    )
    return BudgetBar(
        title=title,
        of=of,
        segments=tuple(segment for segment in segments.values() if segment.raw_ns),
        sums=sums,
        unit="per step" if rank.steps.n else "in the window",
        whole=format_ns(whole_ns),
    )


class StackedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One of several bars on the same scale."""

    label: str
    time: str
    segments: tuple[Segment, ...]
    kind: str = ""
    width: str = "100.000%"


def stacked(label: str, parts: Iterable[tuple[str, str, int]], longest_ns: int, *, kind: str = "") -> StackedRow:
    """A bar of (category, label, ns) whose full width is `longest_ns`."""
    segments, at = [], 0
    for category, name, part in parts:
        if part > 0:
            segments.append(
                Segment(
                    category=category,
                    label=name,
                    x=percent(at, longest_ns),
                    width=percent(part, longest_ns),
                    time=format_ns(part),
                    raw_ns=part,
                )
            )
            at += part
    return StackedRow(
        label=label, time=format_ns(at), segments=tuple(segments), kind=kind, width=percent(at, longest_ns)
    )


class Fall(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a waterfall: from where to where the bar reaches, and the numbers beside it."""

    label: str
    category: str
    x: str
    width: str
    at: str
    """Where the next row begins: a thin line leads there."""
    baseline: str
    candidate: str
    change: str
    raw_ns: int
    is_more: bool = False
    is_sum: bool = False


class Waterfall(msgspec.Struct, frozen=True, kw_only=True):
    """The rows, and the times at both ends of their width; the left one is not 0 where changes are small."""

    rows: tuple[Fall, ...]
    low: str
    high: str


_ROOM: Final = 0.25
"""Chosen: of the span of the changes, what is shown below the lowest end."""


def waterfall(comparison: Comparison, labels: Mapping[str, str]) -> Waterfall | None:
    """The rows from the baseline's step to the candidate's: each part begins where the one above ends."""
    account = comparison.waterfall
    if account is None:
        return None
    bars = [bar for bar in account.bars if bar.baseline_ns or bar.candidate_ns]
    ends = [account.baseline_ns]
    for bar in bars:
        ends.append(ends[-1] + bar.delta_ns)
    high, span = max(ends), max(ends) - min(ends)
    low = max(min(ends) - round(_ROOM * span) - 1, 0) if span else 0
    place = _Place(low=low, width=high - low)
    whole = "step" if comparison.baseline.n_steps else "window"
    rows = [place.total(f"baseline: {whole}", account.baseline_ns)]
    for bar, before, after in zip(bars, ends, ends[1:], strict=False):
        rows.append(place.change(labels[bar.name], bar, before, after))
    rows.append(place.total(f"candidate: {whole}", account.candidate_ns, change=account.delta_ns))
    return Waterfall(rows=tuple(rows), low=format_ns(low) if low else "0", high=format_ns(high))


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """The stretch of time that the width of a waterfall stands for, ns."""

    low: int
    width: int

    def change(self, label: str, bar: Bar, before: int, after: int) -> Fall:
        """The row of one part."""
        return Fall(
            label=label,
            category=bar.name,
            x=percent(min(before, after) - self.low, self.width),
            width=percent(abs(bar.delta_ns), self.width),
            at=percent(after - self.low, self.width),
            baseline=format_ns(bar.baseline_ns),
            candidate=format_ns(bar.candidate_ns),
            change=format_signed_ns(bar.delta_ns),
            raw_ns=bar.delta_ns,
            is_more=bar.delta_ns > 0,
        )

    def total(self, label: str, size_ns: int, *, change: int | None = None) -> Fall:
        """The row of one side's step."""
        time, at = format_ns(size_ns), percent(size_ns - self.low, self.width)
        return Fall(
            label=label,
            category="step",
            x="0%",
            width=at,
            at=at,
            baseline=time if change is None else "",
            candidate="" if change is None else time,
            change="" if change is None else format_signed_ns(change),
            raw_ns=0 if change is None else change,
            is_sum=True,
        )
