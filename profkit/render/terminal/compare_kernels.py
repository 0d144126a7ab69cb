"""A comparison of kernels for a terminal: the answer, a line for each kernel, then what moved with it."""

from __future__ import annotations

from typing import Final

from profkit.model.documents.kernel_comparison import KernelChange, KernelComparison
from profkit.render.terminal import layout
from profkit.render.terminal.layout import MARGIN
from profkit.render.terminal.page import PROSE_WIDTH, Block, columns_of, is_colored, printed, titled
from profkit.render.words import compare_kernels as words
from profkit.shell import clean

_STYLES: Final = {"FASTER": "good", "SLOWER": "bad"}
_MAX_ROWS: Final = 20
_MAX_ALONE: Final = 5


def render(
    report: KernelComparison, *, width: int | None = None, color: bool | None = None, verbose: bool = False, **_: object
) -> str:
    """The comparison as text of at most `width` columns (the terminal's by default); `verbose` tells every kernel."""
    columns = columns_of(width)
    prose = min(columns, PROSE_WIDTH)
    name = words.verdict_name(report)
    head: Block = [
        ((MARGIN, ""), (f" {name} ", _STYLES.get(name, "open"))),
        *layout.wrapped(MARGIN, words.headline(report), prose, style="strong"),
    ]
    blocks = [head, *([_table(report, columns, is_full=verbose)] if len(report.kernels) > 1 else [])]
    for one in words.told(report, is_full=verbose):
        # Of one kernel alone the head has said it.
        said = layout.wrapped(MARGIN, words.sentence(one), prose, style="strong") if len(report.kernels) > 1 else []
        blocks.append([*said, *_kernel(one, columns, is_full=verbose)])
    return printed([*blocks, _notes(report, prose, is_full=verbose)], is_colored=is_colored(color))


def _table(report: KernelComparison, width: int, *, is_full: bool) -> Block:
    rows = words.rows(report)
    shown = rows if is_full else rows[:_MAX_ROWS]
    lines = layout.table(words.HEADERS, shown, [True, True, *([False] * (len(words.HEADERS) - 2))], width)
    more = len(rows) - len(shown)
    tail: Block = [((f"{MARGIN}and {more} more: -v", "dim"),)] if more else []
    return [*titled("the same kernels, by how much their time changed", width), *lines, *tail]


def _kernel(one: KernelChange, width: int, *, is_full: bool) -> Block:
    prose = min(width, PROSE_WIDTH)
    block: Block = []
    for text in filter(None, (words.spread(one), *one.caveats)):
        block += layout.wrapped(f"{MARGIN}- ", clean(text), prose, style="dim")
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
        more = [f"and {len(names) - len(shown)} more: -v"] if len(shown) < len(names) else []
        for place, text in enumerate([*shown, *more]):
            head = layout.label(label) if place == 0 else " " * layout.LABEL_WIDTH
            block += layout.wrapped(head, text, width, style="dim")
    for place, warning in enumerate((*report.warnings, words.LIMIT)):
        head = layout.label("caveats") if place == 0 else " " * layout.LABEL_WIDTH
        block += layout.wrapped(f"{head}- ", clean(warning), width, style="dim")
    read = f"{', '.join(report.before)} (before); {', '.join(report.after)} (after)"
    block += layout.wrapped(layout.label("read"), clean(read), width, style="dim")
    entries = [("-v (every kernel and metric)", ""), ("-f json", ""), ("-o report.html", "")]
    return block + layout.flowed((layout.label("more"), "label"), entries, width)
