"""A comparison of kernels for a terminal: the answer, a line for each kernel, then what moved with it."""

from __future__ import annotations

from typing import Final

from profkit.model.documents.kernel_comparison import KernelChange, KernelComparison
from profkit.render.terminal import layout, page
from profkit.render.terminal.layout import MARGIN
from profkit.render.terminal.page import PROSE_WIDTH, Block
from profkit.render.words import compare_kernels as words

_STYLES: Final = {"FASTER": "good", "SLOWER": "bad"}
_MAX_ROWS: Final = 20
_MAX_ALONE: Final = 5


def render(
    report: KernelComparison, *, width: int | None = None, color: bool | None = None, verbose: bool = False, **_: object
) -> str:
    """The comparison as text of at most `width` columns (the terminal's by default); `verbose` tells every kernel."""
    columns = page.columns_of(width)
    prose = min(columns, PROSE_WIDTH)
    name = words.verdict_name(report)
    head = page.answer(name, _STYLES.get(name, "open"), words.headline(report), prose)
    blocks = [head, *([_table(report, columns, is_full=verbose)] if len(report.kernels) > 1 else [])]
    for one in words.told(report, is_full=verbose):
        # Of one kernel alone the head has said it.
        said = layout.wrapped(MARGIN, words.sentence(one), prose, style="strong") if len(report.kernels) > 1 else []
        blocks.append([*said, *_kernel(one, columns, is_full=verbose)])
    return page.printed([*blocks, _notes(report, prose, is_full=verbose)], color)


def _table(report: KernelComparison, width: int, *, is_full: bool) -> Block:
    rows = words.rows(report)
    shown = rows if is_full else rows[:_MAX_ROWS]
    lines = layout.table(words.HEADERS, shown, [True, True, *([False] * (len(words.HEADERS) - 2))], width)
    title = page.titled("the same kernels, by how much their time changed", width)
    return [*title, *lines, *page.hidden(len(rows) - len(shown))]


def _kernel(one: KernelChange, width: int, *, is_full: bool) -> Block:
    prose = min(width, PROSE_WIDTH)
    notes = filter(None, (words.spread(one), *one.caveats))
    block = page.marked(((f"{MARGIN}- ", note) for note in notes), prose, style="dim")
    rows = words.metric_rows(one, is_full=is_full)
    if not rows:
        return [*block, *layout.wrapped(MARGIN, "no metric of both sides moved", prose, style="dim")]
    headers = words.ALL_METRIC_HEADERS if is_full else words.METRIC_HEADERS
    return [*block, *layout.table(headers, rows, [True, False, False, False], width)]


def _notes(report: KernelComparison, width: int, *, is_full: bool) -> Block:
    block: Block = []
    for label, sides in (("only before", report.only_before), ("only after", report.only_after)):
        names = words.alone(sides)
        shown = names if is_full else names[:_MAX_ALONE]
        others = [f"and {len(names) - len(shown)} more: -v"] if len(shown) < len(names) else []
        block += page.listed(label, [*shown, *others], width, mark="")
    block += page.listed("caveats", (*report.warnings, words.LIMIT), width)
    read = f"{', '.join(report.before)} (before); {', '.join(report.after)} (after)"
    block += page.labelled("read", read, width, style="dim")
    return block + page.more([("-v (every kernel and metric)", ""), ("-f json", ""), ("-o report.html", "")], width)
