"""A comparison of kernels as markdown, for a pull request or an issue."""

from __future__ import annotations

from collections.abc import Iterable

from profkit.model.documents.kernel_comparison import KernelChange, KernelComparison
from profkit.render.markdown.parts import bullets, escaped, page, table_of_texts, titled
from profkit.render.words import compare_kernels as words


def render(report: KernelComparison, *, verbose: bool = False, **_: object) -> str:
    """The comparison as GitHub-flavoured markdown: the answer, a line for each kernel, what moved with it."""
    paragraphs = [
        f"## profkit: kernels, {words.verdict_name(report).lower()}",
        f"**{escaped(words.headline(report))}**",
    ]
    if report.kernels:
        paragraphs.append(table_of_texts(words.HEADERS, words.rows(report), n_left=1))
    paragraphs += [text for one in words.told(report, is_full=verbose) for text in _kernel(one, is_full=verbose)]
    for label, sides in (("Only before", report.only_before), ("Only after", report.only_after)):
        paragraphs.append(titled(label, words.alone(sides)))
    paragraphs.append(titled("Caveats", (*report.warnings, words.LIMIT)))
    paragraphs.append(f"_{escaped(', '.join(report.before))} (before); {escaped(', '.join(report.after))} (after)_")
    return page(paragraphs)


def _kernel(one: KernelChange, *, is_full: bool) -> Iterable[str]:
    yield f"### {escaped(words.sentence(one))}"
    yield bullets(filter(None, (words.spread(one), *one.caveats)))
    rows = words.metric_rows(one, is_full=is_full)
    if rows:
        yield table_of_texts(words.ALL_METRIC_HEADERS if is_full else words.METRIC_HEADERS, rows, n_left=1)
