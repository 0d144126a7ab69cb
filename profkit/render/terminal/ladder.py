"""A ladder report for a terminal: for each series its total, then its rungs; then gains that turn to losses."""

from __future__ import annotations

from collections.abc import Iterable

from profkit.model.documents.ladder import Ladder, LadderReport
from profkit.render.terminal import layout
from profkit.render.terminal.layout import MARGIN
from profkit.render.terminal.page import PROSE_WIDTH, Block, columns_of, is_colored, printed, titled
from profkit.render.words import ladder as words
from profkit.shell import clean


def render(
    report: LadderReport, *, width: int | None = None, color: bool | None = None, verbose: bool = False, **_: object
) -> str:
    """The report as text of at most `width` columns (the terminal's by default)."""
    columns = columns_of(width)
    blocks = [block for ladder in report.ladders for block in _blocks(report, ladder, columns, verbose=verbose)]
    prose = min(columns, PROSE_WIDTH)
    ends = [_effects(report, prose, verbose=verbose), _notes(report, prose)]
    return printed([*blocks, *ends], is_colored=is_colored(color))


def _blocks(report: LadderReport, ladder: Ladder, width: int, *, verbose: bool) -> Iterable[Block]:
    prose = min(width, PROSE_WIDTH)
    headers, rows = words.headers(report, ladder), words.rows(report, ladder)
    yield [
        ((MARGIN, ""), (f" {words.name(ladder)} ", words.tone(ladder)), (f"   {clean(ladder.name)}", "")),
        *layout.wrapped(MARGIN, words.headline(ladder), prose, style="strong"),
    ]
    lines = layout.table(headers, rows, [place < words.n_left(report) for place in range(len(headers))], width)
    yield [*lines, *_listed("", words.notes(report, ladder, verbose=verbose), prose)]
    if verbose and ladder.spots:
        spots = words.spot_rows(report, ladder)
        is_text = [*[True] * (words.n_left(report) + 1), False, False]
        yield [*titled("speed and memory", prose), *layout.table(words.spot_headers(report), spots, is_text, width)]
    else:
        yield _listed("memory", [said] if (said := words.front(report, ladder)) else [], prose)
    yield layout.wrapped(layout.label("publish"), clean(ladder.sentence), prose, style="strong")


def _effects(report: LadderReport, width: int, *, verbose: bool) -> Block:
    said = words.effects(report, verbose=verbose)
    return [*titled(words.EFFECTS_TITLE, width), *_listed("", said, width)] if said else []


def _notes(report: LadderReport, width: int) -> Block:
    block = _listed("caveats", [*words.shared_notes(report), *report.warnings], width)
    return [*block, *layout.wrapped(layout.label("read"), clean(report.source), width, style="dim")]


def _listed(label: str, said: Iterable[str], width: int) -> Block:
    """Sentences, one a dash, behind a label of the first."""
    block: Block = []
    for place, one in enumerate(said):
        head = (layout.label(label) if place == 0 else " " * layout.LABEL_WIDTH) if label else MARGIN
        block += layout.wrapped(f"{head}- ", clean(one), width, style="dim")
    return block
