"""A kernel report as a page: the table of launches, then what limits each of the longest ones and what to do."""

from __future__ import annotations

from profkit.model.kernel import KernelReport
from profkit.render.html import page
from profkit.render.html.parts import tables
from profkit.render.words import kernels as words


def render(report: KernelReport, *, with_paths: bool = False, **_: object) -> str:
    """The report as one HTML file: without folders and names of hosts, unless `with_paths`."""
    headers, rows = words.table(report)
    told = words.told(report, is_full=False)
    name = words.verdict_name(told[0]) if told else ""
    return page.made(
        "kernels.html.j2",
        title=f"{name}: {words.name_of(told[0])}" if told else "kernels",
        sources=report.sources,
        with_paths=with_paths,
        report=report,
        words=words,
        name=name,
        headline=f"{words.name_of(told[0])}: {words.headline(told[0])}" if told else "no launch was profiled",
        table=tables.of_words("launches", headers, rows, n_left=2) if rows else None,
        kernels=told,
    )
