"""A probe for a terminal: the answer, the slopes, the sum that checks them, what it cost."""

from __future__ import annotations

from typing import Final

from profkit.model.documents.probe import ProbeReport, Reading
from profkit.render.terminal import layout
from profkit.render.terminal.page import PROSE_WIDTH, answer, columns_of, labelled, marked, printed
from profkit.render.words import probe as words

_MARKS: Final = {Reading.CRITICAL: "!", Reading.PARTLY: "~", Reading.HIDDEN: "o", Reading.INCONCLUSIVE: "?"}


def render(report: ProbeReport, *, width: int | None = None, color: bool | None = None, **_: object) -> str:
    """The slopes as text of at most `width` columns (the terminal's by default)."""
    columns = columns_of(width)
    prose = min(columns, PROSE_WIDTH)
    told = words.told(report)
    is_open = not any(slope.reading is Reading.CRITICAL for slope in told)
    head = answer("PROBED", "open" if is_open else "bad", words.headline(report), prose)
    table = layout.table(words.HEADERS, list(map(words.row, words.rows_of(report))), words.IS_TEXT, columns)
    said = marked(((f"   {_MARKS[slope.reading]} ", words.sentence(slope)) for slope in told), prose)
    parts = (
        ("sum check", words.total(report)),
        ("cost", words.cost(report)),
        ("untouched", words.untouched(report)),
        ("probed by", words.setting(report)),
        *(("caveat", note) for note in report.notes),
        ("command", report.command),
        ("more", "profkit explain probe.slope   -f json   -o probe.json, for profkit triage TRACE --probe probe.json"),
    )
    return printed([head, table, said, [line for part in parts for line in labelled(*part, prose)]], color)
