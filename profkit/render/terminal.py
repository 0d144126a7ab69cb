"""The report for a terminal: the verdict is the first line; who stops after three lines has been told the truth."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from typing import Final

from profkit.model.finding import confidence_label
from profkit.model.report import Bottleneck, RankReport, Report, TableView
from profkit.render.text import (
    LABELS,
    cell,
    clean,
    evidence_lines,
    gain_sentence,
    kernel_cell,
    main_budget,
    shares_of,
    shown_rank,
    source_name,
    step_sentence,
)
from profkit.units import format_fraction, format_ns

_STYLES: Final = {
    "compute": ("█", "green"),
    "comm_exposed": ("▓", "magenta"),
    "copy_exposed": ("▒", "cyan"),
    "idle_data": ("d", "yellow"),
    "idle_sync": ("s", "red"),
    "idle_launch": ("l", "bright_red"),
    "idle_host": ("h", "blue"),
    "idle_dependency": ("w", "white"),
    "idle_unknown": ("?", "bright_black"),
}
_UNIT: Final = re.compile(r"(?<=\d) (%|ns|us|ms|s\b|[kMGT]?B\b)")
_MAX_EVIDENCE: Final = 5
_MAX_WIDTH: Final = 110
_MIN_WIDTH: Final = 50


def render(report: Report, *, width: int | None = None, color: bool | None = None, verbose: bool = False) -> str:
    """Give the report as text of at most `width` columns (the terminal's by default); commands are never broken."""
    page = _Page(width or _terminal_width(), _is_colored(color))
    _headline(page, report)
    rank = shown_rank(report)
    if rank is not None:
        _budget(page, rank)
    _why(page, report)
    _advice(page, report)
    if rank is not None:
        _streams(page, rank)
    if len(report.ranks) > 1 or report.failures:
        _ranks(page, report)
    _caveats(page, report, verbose=verbose)
    if verbose and rank is not None:
        _details(page, rank)
    return page.text()


def _terminal_width() -> int:
    return max(_MIN_WIDTH, min(shutil.get_terminal_size((80, 24)).columns, _MAX_WIDTH))


def _is_colored(color: bool | None) -> bool:
    if color is not None:
        return color
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class _Page:
    """Lines of styled text; everything is literal, nothing is read as markup."""

    def __init__(self, width: int, is_colored: bool) -> None:
        from rich.console import Console

        self.width = width
        self._out = io.StringIO()
        self._console = Console(
            file=self._out,
            width=width,
            force_terminal=is_colored,
            color_system="standard" if is_colored else None,
            no_color=not is_colored,
            markup=False,
            highlight=False,
            emoji=False,
            legacy_windows=False,
        )
        self.blank()

    def blank(self) -> None:
        """Add an empty line."""
        self._console.print()

    def line(self, *parts: tuple[str, str], keep: bool = False) -> None:
        """Add a line of (text, style) parts; `keep` forbids to break it."""
        from rich.text import Text

        text = Text()
        for content, style in parts:
            text.append(content, style=style or None)
        self._console.print(text, soft_wrap=keep, no_wrap=keep, crop=False)

    def wrapped(self, first: str, text: str, *, style: str = "", label_style: str = "bold") -> None:
        """Add a label and text that wraps under itself."""
        import textwrap

        indent = " " * len(first)
        bound = _UNIT.sub("\u00a0\\1", text)  # a number stays with its unit
        lines = textwrap.wrap(bound, max(self.width - len(first), 20), break_long_words=True, break_on_hyphens=False)
        for index, line in enumerate(lines or [""]):
            piece = line.replace("\u00a0", " ")
            self.line((first if index == 0 else indent, label_style if index == 0 else ""), (piece, style), keep=True)

    def text(self) -> str:
        """Give the page."""
        lines = [line.rstrip() for line in self._out.getvalue().split("\n")]
        return "\n".join(lines).rstrip("\n") + "\n"


def _headline(page: _Page, report: Report) -> None:
    verdict = report.verdict
    is_open = verdict.bottleneck is Bottleneck.INCONCLUSIVE
    name = "HEALTHY" if verdict.is_healthy else verdict.bottleneck.value.upper()
    style = (
        "bold black on yellow" if is_open else ("bold white on green" if verdict.is_healthy else "bold white on red")
    )
    sure = "" if is_open else f"confidence {confidence_label(verdict.confidence)}"
    rank = f", rank {verdict.rank}" if len(report.ranks) > 1 and verdict.rank is not None else ""
    page.line(("  ", ""), (f" {name} ", style), (f"  {sure}{rank}", "dim"), keep=True)
    page.wrapped("  ", clean(verdict.headline), style="bold")
    page.wrapped("  ", ". ".join(filter(None, (step_sentence(report), gain_sentence(verdict)))))


def _budget(page: _Page, rank: RankReport) -> None:
    budget = main_budget(rank)
    if budget is None or budget.window_ns == 0:
        return
    page.blank()
    is_cpu = rank.devices[0].kind == "cpu"
    label = "where the step goes" if rank.steps.n else "where the window goes"
    page.line(("  " + label, "bold"), ("  (CPU, dispatch estimated)" if is_cpu else "", "dim"))
    shares = shares_of(budget)
    cells = page.width - 4
    bar: list[tuple[str, str]] = [("  ", "")]
    taken = 0
    position = 0.0
    for name, share in shares.items():
        position += share
        until = round(position / 100 * cells)
        glyph, style = _STYLES[name]
        bar.append((glyph * (until - taken), style))
        taken = until
    page.line(*bar, keep=True)
    legend = [(name, f"{_STYLES[name][0]} {LABELS[name]} {share:.1f} %") for name, share in shares.items() if share]
    row: list[tuple[str, str]] = [("  ", "")]
    used = 2
    for name, entry in legend:
        if used + len(entry) + 3 > page.width and len(row) > 1:
            page.line(*row, keep=True)
            row, used = [("  ", "")], 2
        row += [(entry, _STYLES[name][1]), ("   ", "")]
        used += len(entry) + 3
    page.line(*row, keep=True)


def _why(page: _Page, report: Report) -> None:
    lines = evidence_lines(report.verdict.findings, _MAX_EVIDENCE)
    if not lines:
        return
    page.blank()
    page.line(
        ("  why we think so" if report.verdict.bottleneck is not Bottleneck.INCONCLUSIVE else "  what we saw", "bold")
    )
    for number, statement in enumerate(lines, 1):
        page.wrapped(f"  {number:2} ", statement, label_style="dim")


def _advice(page: _Page, report: Report) -> None:
    verdict = report.verdict
    page.blank()
    for index, fix in enumerate(verdict.fixes[:3]):
        page.wrapped("  what to do   " if index == 0 else "          then ", clean(fix))
    tool = verdict.next_tool
    page.wrapped("  next tool    ", f"{tool.name}: {clean(tool.purpose)}")
    page.line(("    ", ""), (clean(tool.command), "bold cyan"), keep=True)
    page.wrapped("    look for   ", clean(tool.look_for), label_style="dim")
    if verdict.ruled_out:
        page.wrapped("  not this     ", ", ".join(verdict.ruled_out))


def _streams(page: _Page, rank: RankReport) -> None:
    if not any(device.streams for device in rank.devices):
        return
    page.blank()
    for device in rank.devices:
        hidden = device.comm_hidden_fraction
        note = f"   comm hidden under compute {format_fraction(hidden)}" if hidden is not None else ""
        uses = ", ".join(
            f"{use.stream} {use.label} {format_fraction(use.occupancy)}" for use in device.streams[:6] if use.busy_ns
        )
        more = f" and {len(device.streams) - 6} more" if len(device.streams) > 6 else ""
        name = f"device {device.device}" if len(rank.devices) > 1 else "streams"
        page.wrapped(f"  {name:<11}  ", f"{uses}{more}{note}")


def _ranks(page: _Page, report: Report) -> None:
    page.blank()
    page.line((f"  {'rank':>6}  {'step':>9}  {'compute':>8}  {'comm':>8}  {'copies':>8}  {'idle':>8}  source", "bold"))
    for rank in report.ranks:
        budget = main_budget(rank)
        if budget is None:
            continue
        step = format_ns(rank.steps.mean_ns) if rank.steps.mean_ns is not None else "-"
        shares = [budget.fraction(part) for part in ("compute", "comm_exposed", "copy_exposed")]
        idle = budget.idle_ns / budget.window_ns if budget.window_ns else 0.0
        columns = "  ".join(f"{format_fraction(share):>8}" for share in (*shares, idle))
        name = source_name(rank.source)[: max(8, page.width - 60)]
        page.line((f"  {'-' if rank.rank is None else rank.rank:>6}  {step:>9}  {columns}  {name}", ""), keep=True)
    for failure in report.failures:
        page.wrapped("  failed  ", clean(failure.message), style="red")


def _caveats(page: _Page, report: Report, *, verbose: bool) -> None:
    page.blank()
    rank = shown_rank(report)
    warnings = [clean(message) for message in rank.warnings] if rank is not None else []
    for index, caveat in enumerate((*report.verdict.caveats, *warnings)):
        page.wrapped("  caveats      " if index == 0 else " " * 15, clean(caveat), style="dim")
    top = report.verdict.findings[0].id if report.verdict.findings else "capture.quality"
    more = f"profkit explain {top}" + ("" if verbose else "    -v for all tables    -f json")
    page.line(("  more         ", "bold"), (more, ""), keep=True)


def _details(page: _Page, rank: RankReport) -> None:
    for section in rank.sections:
        for table in section.tables:
            if table.rows:
                page.blank()
                _table(page, table)
    if rank.skipped:
        page.blank()
        page.line(("  not analysed", "bold"))
        for skip in rank.skipped:
            page.wrapped(f"    {skip.analyzer:<10} ", skip.reason, label_style="")


def _table(page: _Page, table: TableView) -> None:
    page.line((f"  {clean(table.title)}", "bold"))
    rows = [[cell(value, unit) for value, unit in zip(row, table.units, strict=True)] for row in table.rows]
    headers = list(table.headers)
    widths = [max(len(headers[i]), *(len(row[i]) for row in rows)) for i in range(len(headers))]
    texts = [i for i, unit in enumerate(table.units) if unit == "text"]
    spare = page.width - 4 - 2 * (len(headers) - 1) - sum(w for i, w in enumerate(widths) if i not in texts)
    for place, i in enumerate(texts):  # the first text column shrinks last: it is the name
        others = sum(min(widths[j], 16) for j in texts[place + 1 :])
        room = spare - others if place == 0 else spare
        widths[i] = max(min(8, widths[i]), min(widths[i], room))
        spare -= widths[i]
    for number, row in enumerate([headers, *rows]):
        cells = []
        for i, value in enumerate(row):
            if i in texts:
                shown = value if len(value) <= widths[i] else kernel_cell(value, widths[i])[: widths[i]]
                cells.append(f"{shown:<{widths[i]}}")
            else:
                cells.append(f"{value:>{widths[i]}}")
        page.line(("    " + "  ".join(cells), "dim" if number == 0 else ""), keep=True)
    if table.note:
        page.wrapped("    ", clean(table.note), style="dim")
