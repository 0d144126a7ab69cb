"""What the second tool says of the first, as lines and tables that the text renderers share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profkit.model.documents.handover import Handover, KernelHandover, TimelineHandover
from profkit.render.words.triage import part_labels, source_names
from profkit.shell import clean
from profkit.units import format_count, format_fraction, format_ns, format_speedup

_MAX_EVIDENCE: Final = 4
_MAX_EXPLAINED: Final = 3
_MAX_FUNCTIONS: Final = 12
PART_HEADERS: Final = ("part of the step", "first", "second", "points", "allowed", "agrees")
FUNCTION_HEADERS: Final = ("kernel", "family", "n first", "n second", "first", "second", "ratio")


def sentence(told: Handover) -> str:
    """The one sentence."""
    return clean(told.sentence)


def evidence(told: Handover, *, is_full: bool = False) -> list[str]:
    """The statements under it: of the timeline, then of the profiles."""
    lines: list[str] = []
    for timeline in told.timelines if is_full else told.timelines[:1]:
        if timeline is not told.timelines[0] or timeline.sentence not in told.sentence:
            lines.append(f"{_rank(timeline.rank)}{timeline.sentence}")
        given = timeline.evidence if is_full else timeline.evidence[:_MAX_EVIDENCE]
        lines += [item.statement for item in given]
        lines += [item.statement for item in (timeline.explained if is_full else timeline.explained[:_MAX_EXPLAINED])]
        if timeline.confidence_why:
            lines.append(f"confidence {timeline.confidence_why}")
    if told.kernels is not None:
        kernels = told.kernels
        if kernels.sentence not in told.sentence:
            lines.append(kernels.sentence)
        lines += [item.statement for item in (kernels.evidence if is_full else kernels.evidence[: _MAX_EVIDENCE + 2])]
        if kernels.unmatched and is_full:
            lines.append(f"profiled, but not launched in this form in the trace: {', '.join(kernels.unmatched)}")
    return [clean(line) for line in (*lines, *told.unpaired)]


def _rank(rank: int | None) -> str:
    return "" if rank is None else f"rank {rank}: "


def part_rows(timeline: TimelineHandover) -> list[tuple[str, ...]]:
    """The budget in both tools, in percent of the step and points."""
    labels = part_labels(is_cpu=False)
    words = {True: "yes", False: "no", None: "one step"}
    return [
        (
            labels[part.part],
            format_fraction(part.first),
            format_fraction(part.second),
            f"{100 * part.difference:+.1f}",
            "-" if part.allowed is None else f"{100 * part.allowed:.1f}",
            words[part.agrees],
        )
        for part in timeline.parts
        if part.first or part.second
    ]


def function_rows(timeline: TimelineHandover) -> list[tuple[str, ...]]:
    """The kernels that take most time in either tool: launches and time per step, and the median ratio."""
    return [
        (
            clean(row.function),
            row.family,
            format_count(round(row.first_count, 1)),
            format_count(round(row.second_count, 1)),
            format_ns(row.first_ns),
            format_ns(row.second_ns),
            "-" if row.ratio is None else format_speedup(row.ratio),
        )
        for row in timeline.functions[:_MAX_FUNCTIONS]
    ]


def title(timeline: TimelineHandover) -> str:
    """What a timeline's tables are of."""
    pairs = f"{timeline.n_pairs} steps paired by {timeline.paired_by}"
    rank = _rank(timeline.rank)
    return clean(f"{rank}{timeline.first_tool} (first) and {timeline.second_tool} (second), {pairs}")


KERNEL_HEADERS: Final = ("kernel", "grid", "limited by", "per step", "share", "busier roof", "saves at most")


def kernel_rows(kernels: KernelHandover) -> list[tuple[str, ...]]:
    """The profiled kernels of the trace: what limits each, its share of the step, what its roof leaves."""
    return [
        (
            clean(kernel.function),
            "-" if kernel.grid is None else "x".join(map(str, kernel.grid)),
            kernel.kernel_class,
            format_ns(kernel.kernel_ns),
            format_fraction(kernels.share(kernel.kernel_ns)) if kernels.step_ns else "-",
            "-" if kernel.roof_percent is None else f"{kernel.roof_percent:.1f} %",
            "-" if kernel.recoverable_ns is None else format_ns(kernel.recoverable_ns),
        )
        for kernel in kernels.kernels
    ]


def sources(told: Handover) -> Iterable[str]:
    """The files that were set beside the trace."""
    timelines = dict.fromkeys(timeline.source for timeline in told.timelines)
    kernels = told.kernels.sources if told.kernels is not None else ()
    yield from source_names([*timelines, *kernels])
