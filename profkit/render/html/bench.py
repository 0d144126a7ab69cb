"""A benchmark as a page: the answer, the arms, what the machine did meanwhile."""

from __future__ import annotations

from profkit.model.documents.bench import BenchReport
from profkit.render.html import page
from profkit.render.html.parts import tables
from profkit.render.words import bench as words


def render(report: BenchReport, *, with_paths: bool = False, **_: object) -> str:
    """The benchmark as one HTML file: without folders and names of hosts, unless `with_paths`."""
    around = (
        ("judged by", report.judged_by),
        ("drift", words.drift(report)),
        ("ended early", words.ended_early(report)),
    )
    arms = [words.arm_row(arm) for arm in report.arms]
    return page.made(
        "bench.html.j2",
        title=f"{words.name(report)}: {words.headline(report)}",
        sources=(),
        with_paths=with_paths,
        tone=words.tone(report),
        name=words.name(report),
        headline=words.headline(report),
        notes=list(filter(None, (words.blocks_needed(report), words.alarm(report)))),
        table=tables.of_words("both commands", words.HEADERS, arms, is_sortable=False),
        around=[(label, line) for label, line in around if line],
    )
