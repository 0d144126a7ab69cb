"""A benchmark for a terminal: the answer, the arms, what the machine did meanwhile."""

from __future__ import annotations

from typing import Final

from profkit.model.documents.bench import BenchReport
from profkit.render.terminal import layout
from profkit.render.terminal.layout import MARGIN
from profkit.render.terminal.page import PROSE_WIDTH, Block, columns_of, is_colored, printed
from profkit.render.words import bench as words
from profkit.shell import clean

_STYLES: Final = {"improved": "good", "regressed": "bad", "equivalent": "good", "inconclusive": "open"}


def render(report: BenchReport, *, width: int | None = None, color: bool | None = None, **_: object) -> str:
    """The benchmark as text of at most `width` columns (the terminal's by default)."""
    prose = min(columns_of(width), PROSE_WIDTH)
    rows = [words.arm_row(arm) for arm in report.arms]
    arms = layout.table(words.HEADERS, rows, [True, False, False, True], prose)
    return printed([_head(report, prose), arms, _around(report, prose)], is_colored=is_colored(color))


def _head(report: BenchReport, width: int) -> Block:
    """The answer; of one command against itself the spread, and what it lets this many blocks see."""
    style = "open" if report.is_same else _STYLES[report.answer]
    block: Block = [((MARGIN, ""), (f" {words.name(report)} ", style))]
    block += layout.wrapped(MARGIN, words.headline(report), width, style="strong")
    if needed := words.blocks_needed(report):
        block += layout.wrapped(MARGIN, needed, width)
    if alarm := words.alarm(report):
        block += layout.wrapped(MARGIN, alarm, width, style="dim")
    return block


def _around(report: BenchReport, width: int) -> Block:
    block: Block = layout.wrapped(layout.label("judged by"), clean(report.judged_by), width) if report.judged_by else []
    if drift := words.drift(report):
        is_seen = report.drift is not None and report.drift.is_seen
        block += layout.wrapped(layout.label("drift"), drift, width, style="" if is_seen else "dim")
    if early := words.ended_early(report):
        block += layout.wrapped(layout.label("ended early"), early, width)
    return block
