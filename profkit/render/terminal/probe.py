"""A probe for a terminal: the answer, the slopes, the sum that checks them, what it cost."""

from __future__ import annotations

from typing import Final

from profkit.model.documents.probe import ProbeReport, Reading
from profkit.render.terminal import layout
from profkit.render.terminal.layout import MARGIN
from profkit.render.terminal.page import PROSE_WIDTH, Block, columns_of, is_colored, printed
from profkit.render.words import probe as words
from profkit.shell import clean

_MARKS: Final = {Reading.CRITICAL: "!", Reading.PARTLY: "~", Reading.HIDDEN: "o", Reading.INCONCLUSIVE: "?"}


def render(report: ProbeReport, *, width: int | None = None, color: bool | None = None, **_: object) -> str:
    """The slopes as text of at most `width` columns (the terminal's by default)."""
    columns = columns_of(width)
    prose = min(columns, PROSE_WIDTH)
    is_open = not any(slope.reading is Reading.CRITICAL for slope in words.told(report))
    head: Block = [((MARGIN, ""), (" PROBED ", "open" if is_open else "bad"))]
    head += layout.wrapped(MARGIN, clean(words.headline(report)), prose, style="strong")
    rows = [words.row(slope) for slope in words.rows_of(report)]
    said = [
        line
        for slope in words.told(report)
        for line in layout.wrapped(f"   {_MARKS[slope.reading]} ", clean(words.sentence(slope)), prose)
    ]
    table = layout.table(words.HEADERS, rows, words.IS_TEXT, columns)
    return printed([head, table, said, _around(report, prose)], is_colored=is_colored(color))


def _around(report: ProbeReport, width: int) -> Block:
    parts = (
        ("sum check", words.total(report)),
        ("cost", words.cost(report)),
        ("untouched", words.untouched(report)),
        ("probed by", words.setting(report)),
        *(("caveat", note) for note in report.notes),
        ("command", report.command),
        ("more", "profkit explain probe.slope   -f json   -o probe.json, for profkit triage TRACE --probe probe.json"),
    )
    return [line for name, text in parts if text for line in layout.wrapped(layout.label(name), clean(text), width)]
