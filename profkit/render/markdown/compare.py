"""A comparison as markdown, for a pull request: the answer on top, the accounts folded below."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profkit.model.documents.comparison import Account, Comparison
from profkit.render.markdown.parts import bullets, escaped, folded, page, table
from profkit.render.words import compare as words
from profkit.shell import clean

_MAX_WORKS: Final = 10


def render(comparison: Comparison, **_: object) -> str:
    """The comparison as GitHub-flavoured markdown."""
    paragraphs = [
        f"## profkit compare: {words.answer_name(comparison).lower()}",
        f"**{escaped(words.answer_sentence(comparison))}**",
        _next(comparison),
        _numbers(comparison),
        *_readings(comparison),
        _waterfall(comparison),
        *_folded(comparison),
        _notes(comparison),
    ]
    return page(paragraphs)


def _next(comparison: Comparison) -> str:
    command = words.next_command(comparison)
    return f"next: `{command}`" if command else ""


def _numbers(comparison: Comparison) -> str:
    """The judged values, of each configuration where there are several."""
    named = comparison.configurations or (("", comparison.judgement),)
    rows = [(escaped(name or judged.metric), *words.judged_cells(judged)) for name, judged in named]
    return table(("", "answer", "change", "95 % interval", "n", "sees changes of"), rows, n_left=2)


def _readings(comparison: Comparison) -> Iterable[str]:
    for reading in comparison.readings:
        yield f"**{escaped(words.reading_line(reading))}** (`{reading.id}`)"
        yield bullets(item.statement for item in words.reasons(reading))


def _waterfall(comparison: Comparison) -> str:
    rows = words.waterfall_rows(comparison)
    if not rows:
        return ""
    *parts, (name, *times) = rows
    total = (f"**{name}**", *(f"**{time}**" for time in times))
    return (
        f"{escaped(words.captures_title(comparison))}:\n\n{table(words.WATERFALL_HEADERS, [*parts, total], n_left=1)}"
    )


def _folded(comparison: Comparison) -> Iterable[str]:
    sides = words.side_rows(comparison) if comparison.waterfall is not None else []
    if sides:
        yield folded("both sides", table(("", "baseline", "candidate"), sides, n_left=3))
    for title, account in words.accounts(comparison):
        yield folded(f"{title} that changed", _works(title, account))


def _works(title: str, account: Account) -> str:
    rows = [(escaped(name), *cells) for name, *cells in words.work_rows(account, _MAX_WORKS)]
    return table((title, *words.WORK_HEADERS), rows, n_left=1)


def _notes(comparison: Comparison) -> str:
    notes = [*words.finding_sentences(comparison.findings), *words.limits(comparison)]
    both = comparison.baseline, comparison.candidate
    sides = [
        f"{clean(side.name)}: {names}"
        for side, names in zip(both, words.read_names(comparison), strict=True)
        if side.sources
    ]
    return bullets((*notes, *sides))
