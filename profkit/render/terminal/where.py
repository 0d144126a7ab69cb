"""Places in the user's code for a terminal."""

from __future__ import annotations

from profkit.model.code import OF_THREAD, OF_WORKERS
from profkit.model.documents.where import PlacesOf, Where
from profkit.render.terminal import layout
from profkit.render.terminal.layout import MARGIN
from profkit.render.terminal.page import PROSE_WIDTH, Block, columns_of, labelled, marked, more, printed, titled
from profkit.render.words import places
from profkit.render.words import triage as text
from profkit.shell import clean
from profkit.units import format_count, format_ns

_NUMBER_TEXTS = ("ns", "fraction", "count", "bytes")


def render(where: Where, *, width: int | None = None, color: bool | None = None, **_: object) -> str:
    """The places as text of at most `width` columns (the terminal's by default)."""
    columns = columns_of(width)
    blocks = [_subject(one, columns) for one in where.subjects]
    return printed([_rank(where, columns), *blocks, *_tree(where, columns), _more(where, columns)], color)


def _rank(where: Where, width: int) -> Block:
    return labelled("of", places.rank_line(where), min(width, PROSE_WIDTH))


def _subject(one: PlacesOf, width: int) -> Block:
    prose = min(width, PROSE_WIDTH)
    block = titled(places.title(one), prose)
    if not one.places:
        return block + layout.wrapped("    ", places.no_places(one), prose, style="dim")
    for share in one.places:
        block += layout.wrapped("    ", places.place_line(share), width, first_style="")
        what = "look" if share.of in (OF_WORKERS, OF_THREAD) else "row"
        counted = f"{format_ns(share.ns)} in {format_count(share.count)} {what}{'' if share.count == 1 else 's'}"
        modules = f", {share.n_modules} modules" if share.n_modules > 1 else ""
        block += layout.wrapped("             ", counted + modules, width, style="dim")
    rest = places.unplaced(one)
    return block + (layout.wrapped("    ", rest, prose, style="dim") if rest else [])


def _tree(where: Where, width: int) -> list[Block]:
    blocks: list[Block] = []
    for table in where.tables:
        is_text = [unit not in _NUMBER_TEXTS for unit in table.units]
        rows = [
            [
                _indented(str(value)) if flag else text.cell(value, unit)
                for value, unit, flag in zip(row, table.units, is_text, strict=True)
            ]
            for row in table.rows
        ]
        block = [*titled(table.title, width), *layout.table(list(table.headers), rows, is_text, width)]
        notes = filter(None, (places.phases(where), table.note))
        blocks.append([*block, *marked(((MARGIN, note) for note in notes), width, style="dim")])
    return blocks


def _indented(name: str) -> str:
    """A name with the indent that shows how deep it lies."""
    bare = name.lstrip(" ")
    return " " * (len(name) - len(bare)) + clean(bare)


def _more(where: Where, width: int) -> Block:
    prose = min(width, PROSE_WIDTH)
    read = labelled("read", where.source, prose, style="dim")
    return read + more([("-f json", ""), ("-o x.speedscope.json (flame graph)", "")], prose)
