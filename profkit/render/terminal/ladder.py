"""A ladder report for a terminal: for each series its total, then its rungs; then gains that turn to losses."""

from __future__ import annotations

from collections.abc import Iterable

from profkit.model.documents.ladder import Ladder, LadderReport
from profkit.render.terminal import layout
from profkit.render.terminal.layout import MARGIN
from profkit.render.terminal.page import (
    PROSE_WIDTH,
    Block,
    answer,
    columns_of,
    labelled,
    listed,
    marked,
    printed,
    titled,
)
from profkit.render.words import ladder as words


def render(
    report: LadderReport, *, width: int | None = None, color: bool | None = None, verbose: bool = False, **_: object
) -> str:
    """The report as text of at most `width` columns (the terminal's by default)."""
    columns = columns_of(width)
    blocks = [block for ladder in report.ladders for block in _blocks(report, ladder, columns, verbose=verbose)]
    return printed([*blocks, *_ends(report, min(columns, PROSE_WIDTH), verbose=verbose)], color)


def _blocks(report: LadderReport, ladder: Ladder, width: int, *, verbose: bool) -> Iterable[Block]:
    prose = min(width, PROSE_WIDTH)
    headers, rows = words.table(report, ladder)
    yield answer(words.name(ladder), words.tone(ladder), words.headline(ladder), prose, beside=ladder.name)
    lines = layout.table(headers, rows, [place < words.n_left(report) for place in range(len(headers))], width)
    yield [*lines, *_dashes(words.notes(report, ladder, verbose=verbose), prose)]
    if verbose and ladder.spots:
        is_text = [*[True] * (words.n_left(report) + 1), False, False]
        yield [*titled("speed and memory", prose), *layout.table(*words.spots(report, ladder), is_text, width)]
    else:
        yield listed("memory", filter(None, [words.front(report, ladder)]), prose)
    yield labelled("publish", ladder.sentence, prose, style="strong")


def _ends(report: LadderReport, width: int, *, verbose: bool) -> Iterable[Block]:
    if effects := words.effects(report, verbose=verbose):
        yield [*titled(words.EFFECTS_TITLE, width), *_dashes(effects, width)]
    caveats = listed("caveats", [*words.shared_notes(report), *report.warnings], width)
    yield [*caveats, *labelled("read", report.source, width, style="dim")]


def _dashes(items: Iterable[str], width: int) -> Block:
    return marked(((f"{MARGIN}- ", item) for item in items), width, style="dim")
