"""A benchmark for a terminal: the answer, the arms, what the machine did meanwhile."""

from __future__ import annotations

from profkit.model.documents.bench import BenchReport
from profkit.render.terminal import layout
from profkit.render.terminal.layout import MARGIN
from profkit.render.terminal.page import PROSE_WIDTH, Block, answer, columns_of, labelled, marked, printed
from profkit.render.words import bench as words


def render(report: BenchReport, *, width: int | None = None, color: bool | None = None, **_: object) -> str:
    """The benchmark as text of at most `width` columns (the terminal's by default)."""
    prose = min(columns_of(width), PROSE_WIDTH)
    rows = [words.arm_row(arm) for arm in report.arms]
    arms = layout.table(words.HEADERS, rows, [True, False, False, True], prose)
    return printed([_head(report, prose), arms, _around(report, prose)], color)


def _head(report: BenchReport, width: int) -> Block:
    """The answer; of one command against itself the spread, and what it lets this many blocks see."""
    block = answer(words.name(report), words.tone(report), words.headline(report), width)
    block += marked([(MARGIN, needed)] if (needed := words.blocks_needed(report)) else [], width)
    return block + marked([(MARGIN, alarm)] if (alarm := words.alarm(report)) else [], width, style="dim")


def _around(report: BenchReport, width: int) -> Block:
    is_drifting = report.drift is not None and report.drift.is_seen
    return [
        *labelled("judged by", report.judged_by, width),
        *labelled("drift", words.drift(report), width, style="" if is_drifting else "dim"),
        *labelled("ended early", words.ended_early(report), width),
    ]
