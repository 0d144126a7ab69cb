"""A probe as a page: the answer, slopes with intervals, what each says, the sum that checks them, what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.model.documents.probe import ProbeReport, Reading, Slope
from profkit.render.html import page
from profkit.render.html.parts import tables
from profkit.render.html.parts.intervals import Measured, Picture, picture
from profkit.render.words import probe as words

_LEAST, _MOST = -0.5, 1.5
"""What is always in the picture; an interval that goes beyond widens it."""
_WIDEST: Final = 3.0
"""Chosen: an interval beyond -3 or 4 tells no more than one that ends there."""


def render(report: ProbeReport, *, with_paths: bool = False, **_: object) -> str:
    """The report as one HTML file: without folders and names of hosts, unless `with_paths`."""
    shown = words.rows_of(report)
    is_open = not any(one.reading is Reading.CRITICAL for one in report.slopes)
    around = (
        ("Sum check", words.total(report)),
        ("Cost", words.cost(report)),
        ("Untouched steps", words.untouched(report)),
        ("Probed by", words.setting(report)),
    )
    return page.made(
        "probe.html.j2",
        title=f"probe: {words.headline(report)}",
        sources=(),
        with_paths=with_paths,
        tone="open" if is_open else "bad",
        headline=words.headline(report),
        picture=slopes(shown),
        table=tables.of_words("slopes", words.HEADERS, map(words.row, shown), is_sortable=len(shown) > 2),
        said=[words.sentence(one) for one in report.slopes],
        around=[(label, text) for label, text in around if text],
        notes=report.notes,
        command=report.command,
    )


def slopes(given: Sequence[Slope]) -> Picture | None:
    """The picture of these places, from hidden to critical; None without any."""
    rows = [
        Measured(
            label=one.place,
            said=f"{one.place}: {words.number(one.slope)} ({words.interval(one.interval)})",
            kind=one.reading,
            value=one.slope,
            interval=one.interval,
        )
        for one in given
    ]
    low = max(min([_LEAST, *(one.interval[0] for one in given)]), -_WIDEST)
    high = min(max([_MOST, *(one.interval[1] for one in given)]), 1 + _WIDEST)
    return picture(rows, (low, high), {0.0: "0", 0.5: "0.5", 1.0: "1"}, left=110)
