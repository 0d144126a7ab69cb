"""A probe as a page: the answer, slopes with intervals, what each says, the sum that checks them, what it cost."""

from __future__ import annotations

from profkit.model.documents.probe import ProbeReport, Reading
from profkit.render.html import page
from profkit.render.html.parts import tables
from profkit.render.html.parts.slopes import slopes
from profkit.render.words import probe as words


def render(report: ProbeReport, *, with_paths: bool = False, **_: object) -> str:
    """The report as one HTML file: without folders and names of hosts, unless `with_paths`."""
    shown = words.rows_of(report)
    is_open = not any(one.reading is Reading.CRITICAL for one in report.slopes)
    rows = [words.row(one) for one in shown]
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
        table=tables.of_words("slopes", words.HEADERS, rows, n_left=1, is_sortable=len(rows) > 2),
        said=[words.sentence(one) for one in report.slopes],
        around=[(label, text) for label, text in around if text],
        notes=report.notes,
        command=report.command,
    )
