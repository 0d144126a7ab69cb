"""A kernel report for a terminal: the table of launches, then the longest ones with evidence and advice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profkit.model.kernel import KernelAssessment, KernelClass, KernelReport
from profkit.render.terminal import layout, page
from profkit.render.terminal.layout import MARGIN
from profkit.render.terminal.page import PROSE_WIDTH, Block
from profkit.render.words import kernels as words
from profkit.shell import clean
from profkit.units import format_ns

_STYLES: Final = {KernelClass.NO_DATA: "open"}
_MAX_ROWS: Final = 20


def render(
    report: KernelReport, *, width: int | None = None, color: bool | None = None, verbose: bool = False, **_: object
) -> str:
    """The report as text of at most `width` columns (the terminal's by default); `verbose` tells every kernel."""
    columns = page.columns_of(width)
    prose = min(columns, PROSE_WIDTH)
    chosen = words.told(report, is_full=verbose)
    blocks = [_table(report, columns, is_full=verbose)] if len(report.kernels) > 1 else []
    blocks += [_kernel(one, prose) for one in chosen]
    return page.printed([*blocks, _notes(report, prose, n_told=len(chosen))], color)


def _table(report: KernelReport, width: int, *, is_full: bool) -> Block:
    headers, rows = words.table(report)
    shown = rows if is_full else rows[:_MAX_ROWS]
    lines = layout.table(headers, shown, [True, *([False] * (len(headers) - 1))], width)
    return [
        *page.titled(f"{len(rows)} launches, the longest first", width),
        *lines,
        *page.hidden(len(rows) - len(shown)),
    ]


def _kernel(one: KernelAssessment, width: int) -> Block:
    style = _STYLES.get(one.speed.kernel_class, "good" if one.speed.is_near_roof else "bad")
    time = "" if one.duration_ns is None else f"   {format_ns(one.duration_ns)}"
    block: Block = [((MARGIN, ""), (f" {words.verdict_name(one)} ", style), (time, "dim"))]
    block += layout.wrapped(MARGIN, words.name_of(one), width, style="strong")
    block += layout.wrapped(MARGIN, words.headline(one), width)
    facts = filter(None, (words.rule_sentence(one), words.device_of(one)))
    block += page.marked(((MARGIN, fact) for fact in facts), width, style="dim")
    numbered = ((f"   {number}  ", item.statement) for number, item in enumerate(one.evidence, start=1))
    block += page.marked(numbered, width, first_style="dim")
    return block + list(_advice(one, width))


def _advice(one: KernelAssessment, width: int) -> Iterable[layout.Line]:
    for place, item in enumerate(one.advice):
        head = layout.label("what to do") if place == 0 else "then".rjust(layout.LABEL_WIDTH - 2) + "  "
        said = f"{item.fix} ({item.because.statement})"
        yield from layout.wrapped(head, clean(said), width, first_style="label" if place == 0 else "dim")


def _notes(report: KernelReport, width: int, *, n_told: int) -> Block:
    entries = [("-v (every launch)", "")] if n_told < len(report.kernels) else []
    return [
        *page.listed("caveats", report.warnings, width),
        *page.labelled("read", ", ".join(report.sources), width, style="dim"),
        *page.more([*entries, ("-f json", ""), ("-o report.html", "")], width),
    ]
