"""A scaling report for a terminal: for each series its standing first, then sizes, case and sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profkit.model.documents.scaling import ScalingReport, Series, Standing
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
from profkit.render.words import scaling as words
from profkit.shell import clean

_STYLES: Final = {Standing.SOUND: "good", Standing.DOUBTFUL: "open", Standing.ACCUSED: "bad"}


def render(report: ScalingReport, *, width: int | None = None, color: bool | None = None, **_: object) -> str:
    """The report as text of at most `width` columns (the terminal's by default); commands are never broken."""
    columns = columns_of(width)
    blocks = [block for series in report.series for block in _blocks(series, columns)]
    return printed([*blocks, _notes(report, min(columns, PROSE_WIDTH))], color)


def _blocks(series: Series, width: int) -> Iterable[Block]:
    prose = min(width, PROSE_WIDTH)
    head = answer(words.name(series), _STYLES[series.standing], words.headline(series), prose)
    yield [*head, *_dim([words.series_name(series)], prose)]
    lines = layout.table(words.headers(series), words.rows(series), [False] * len(words.headers(series)), width)
    yield [*lines, *_dim(words.notes(series), prose)]
    if series.clues:
        clues = ((f"   {words.MARKS[clue.bearing.value]} ", clue.statement) for clue in series.clues)
        title = titled("why the base is looked at", prose)
        yield [*title, *marked(clues, prose), *_dim([words.MARKS_TOLD], prose)]
    if rows := words.decomposition_rows(series.decompositions):
        yield layout.table(words.PART_HEADERS, rows, [True, True, False], width)
    block = listed("honest base", series.honest, prose, style="")
    block += labelled("publish", words.publishable(series), prose, style="strong")
    if series.next_command:
        block += [((layout.label("prove it"), "label"), (clean(series.next_command), "command"))]
    yield block


def _dim(lines: Iterable[str], width: int) -> Block:
    return marked(((MARGIN, line) for line in lines), width, style="dim")


def _notes(report: ScalingReport, width: int) -> Block:
    caveats = listed("caveats", report.warnings, width)
    return [*caveats, *labelled("read", ", ".join(report.sources), width, style="dim")]
