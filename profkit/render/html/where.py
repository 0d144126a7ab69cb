"""Places in the user's code as a page: for each thing asked for the lines that cause it, then the modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profkit.model.documents.where import PlacesOf, Where
from profkit.render.html import page
from profkit.render.html.parts import tables
from profkit.render.html.parts.tables import Cell, Column, Row, Table, exact
from profkit.render.words import places as words
from profkit.render.words.places import place_words
from profkit.render.words.triage import source_name
from profkit.units import format_count, format_fraction, format_ns


def render(where: Where, *, with_paths: bool = False, **_: object) -> str:
    """The places as one HTML file: without folders and names of hosts, unless `with_paths`."""
    return page.made(
        "where.html.j2",
        title=f"places in {source_name(where.source)}",
        sources=(where.source, *(share.place.file for one in where.subjects for share in one.places)),
        with_paths=with_paths,
        name=source_name(where.source),
        phases=words.phases(where),
        subjects=[_subject(one) for one in where.subjects],
        tables=[tables.of_view(table) for table in where.tables if table.rows],
    )


def _subject(one: PlacesOf) -> Mapping[str, Any]:
    rows = tuple(
        Row(
            cells=(
                exact(format_fraction(share.share), share.share),
                exact(format_ns(share.ns), share.ns),
                exact(format_count(share.count), share.count),
                Cell(text=place_words(share)),
            )
        )
        for share in one.places
    )
    columns = tuple(Column(text=header, is_number=place < 3) for place, header in enumerate(words.HEADERS))
    return {
        "title": words.title(one),
        "table": Table(title="", columns=columns, rows=rows) if rows else None,
        "note": words.unplaced(one) if rows else words.no_places(one),
    }
