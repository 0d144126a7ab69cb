"""A comparison of kernels as markdown, for a pull request or an issue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from profkit.model.documents.kernel_comparison import KernelChange, KernelComparison
from profkit.render.markdown.triage import escaped
from profkit.render.words import compare_kernels as words


def render(
    report: KernelComparison, *, width: int | None = None, color: bool | None = None, verbose: bool = False
) -> str:
    """The comparison as GitHub-flavoured markdown: the answer, a line for each kernel, what moved with it."""
    paragraphs = [
        f"## profkit: kernels, {words.verdict_name(report).lower()}",
        f"**{escaped(words.headline(report))}**",
    ]
    if report.kernels:
        paragraphs.append(_table(words.HEADERS, words.rows(report)))
    paragraphs += [text for one in words.told(report, is_full=verbose) for text in _kernel(one, is_full=verbose)]
    for label, sides in (("Only before", report.only_before), ("Only after", report.only_after)):
        if sides:
            paragraphs += [f"**{label}**", _list(words.alone(sides))]
    paragraphs += ["**Caveats**", _list((*report.warnings, words.LIMIT))]
    paragraphs.append(f"_{escaped(', '.join(report.before))} (before); {escaped(', '.join(report.after))} (after)_")
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def _kernel(one: KernelChange, *, is_full: bool) -> Iterable[str]:
    yield f"### {escaped(words.sentence(one))}"
    yield _list(filter(None, (words.spread(one), *one.caveats)))
    rows = words.metric_rows(one, is_full=is_full)
    if rows:
        yield _table(words.ALL_METRIC_HEADERS if is_full else words.METRIC_HEADERS, rows)


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(escaped(cell) for cell in cells) + " |" for cells in (headers, *rows)]
    rule = "|".join(["---", *(["---:"] * (len(headers) - 1))])
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {escaped(item)}" for item in items)
