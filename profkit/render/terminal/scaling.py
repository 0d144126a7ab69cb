"""A scaling report for a terminal: for each series its standing first, then sizes, case and sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profkit.model.documents.scaling import ScalingReport, Series, Standing
from profkit.render.terminal import layout
from profkit.render.terminal.layout import MARGIN
from profkit.render.terminal.page import PROSE_WIDTH, Block, columns_of, is_colored, printed, titled
from profkit.render.words import scaling as words
from profkit.shell import clean

_STYLES: Final = {Standing.SOUND: "good", Standing.DOUBTFUL: "open", Standing.ACCUSED: "bad"}


def render(report: ScalingReport, *, width: int | None = None, color: bool | None = None, **_: object) -> str:
    """The report as text of at most `width` columns (the terminal's by default); commands are never broken."""
    columns = columns_of(width)
    blocks = [block for series in report.series for block in _blocks(series, columns)]
    return printed([*blocks, _notes(report, min(columns, PROSE_WIDTH))], is_colored=is_colored(color))


def _blocks(series: Series, width: int) -> Iterable[Block]:
    prose = min(width, PROSE_WIDTH)
    head = [((MARGIN, ""), (f" {words.name(series)} ", _STYLES[series.standing]))]
    yield [
        *head,
        *layout.wrapped(MARGIN, words.headline(series), prose, style="strong"),
        *layout.wrapped(MARGIN, words.series_name(series), prose, style="dim"),
    ]
    lines = layout.table(words.headers(series), words.rows(series), [False] * len(words.headers(series)), width)
    yield [*lines, *(line for note in words.notes(series) for line in layout.wrapped(MARGIN, note, prose, style="dim"))]
    yield _case(series, prose)
    yield _decompositions(series, width)
    yield _instead(series, prose)


def _case(series: Series, width: int) -> Block:
    if not series.clues:
        return []
    block = titled("why the base is looked at", width)
    for clue in series.clues:
        block += layout.wrapped(f"   {words.MARKS[clue.bearing.value]} ", clean(clue.statement), width)
    return [*block, *layout.wrapped(MARGIN, words.MARKS_TOLD, width, style="dim")]


def _decompositions(series: Series, width: int) -> Block:
    rows = words.decomposition_rows(series.decompositions)
    if not rows:
        return []
    return layout.table(words.PART_HEADERS, rows, [True, True, False], width)


def _instead(series: Series, width: int) -> Block:
    block: Block = []
    for place, sentence in enumerate(series.honest):
        head = layout.label("honest base") if place == 0 else " " * layout.LABEL_WIDTH
        block += layout.wrapped(f"{head}- ", clean(sentence), width)
    block += layout.wrapped(layout.label("publish"), clean(words.publishable(series)), width, style="strong")
    if series.next_command:
        block += [((layout.label("prove it"), "label"), (clean(series.next_command), "command"))]
    return block


def _notes(report: ScalingReport, width: int) -> Block:
    block: Block = []
    for place, warning in enumerate(report.warnings):
        head = layout.label("caveats") if place == 0 else " " * layout.LABEL_WIDTH
        block += layout.wrapped(f"{head}- ", clean(warning), width, style="dim")
    return [*block, *layout.wrapped(layout.label("read"), clean(", ".join(report.sources)), width, style="dim")]
