"""A benchmark as a page: the answer, the arms, what the machine did meanwhile."""

from __future__ import annotations

from profkit.model.documents.bench import BenchReport
from profkit.render.html import page
from profkit.render.html.parts import tables
from profkit.render.words import bench as words


def render(report: BenchReport, *, with_paths: bool = False, **_: object) -> str:
    """The benchmark as one HTML file: without folders and names of hosts, unless `with_paths`."""
    arms = map(words.arm_row, report.arms)
    return page.made(
        "bench.html.j2",
        title=f"{words.name(report)}: {words.headline(report)}",
        sources=(),
        with_paths=with_paths,
        report=report,
        words=words,
        table=tables.of_words("both commands", words.HEADERS, arms, is_sortable=False),
    )
