"""The tables of the accuracy page: scores as words, for a terminal and for Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from analyses.accuracy import score
from analyses.accuracy.cell import CellResult
from analyses.accuracy.score import Judged, Tally
from analyses.accuracy.shares import Share
from analyses.accuracy.truth import AT_WORK, LARGE, SMALL, removes_nothing, truth

_KINDS: Final = (("fault", "faults"), ("decoy", "decoys"), ("healthy", "healthy"))
_FOLDERS: Final = re.compile(r"(?<![\w.:/])/(?:[\w.@+-]+/)+")
_LONGEST: Final = 110
"""Characters of a sentence in a table."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of words under a title; `note` says how to read them."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def every(cells: Sequence[CellResult], tools: Sequence[str]) -> list[Table]:
    """All tables, those of each tool behind those that set the tools side by side."""
    parts = [cells_counted(cells), scores(cells, tools), gain_table(cells, tools), slope_table(cells)]
    for tool in tools:
        of = score.judged(cells, tool)
        parts += [
            by_word(of, f"{tool}: by family", lambda cell: cell.family),
            by_word(of, f"{tool}: by pathology", lambda cell: cell.pathology),
            by_word(of, f"{tool}: by dose", lambda cell: cell.dose),
            reliability_table(of, tool),
            confusion_table(of, tool),
            wrong(of, tool),
            abstained(of, tool),
            too_low(of, tool),
        ]
    return [*parts, failed(cells)]


def printed(tables: Sequence[Table]) -> str:
    """Tables as aligned text, those without rows left out."""
    return "\n\n".join(_aligned(table) for table in tables if table.rows)


def markdown(table: Table) -> str:
    """One table as Markdown, without its title."""
    lines = [table.head, tuple("---" for _ in table.head), *table.rows]
    return "\n".join(f"| {' | '.join(word.replace('|', '&#124;') for word in line)} |" for line in lines)


def cells_counted(cells: Sequence[CellResult]) -> Table:
    """How many cells there are of each kind, and what became of them."""
    rows = []
    for kind, name in _KINDS:
        of = [cell for cell in cells if cell.kind == kind]
        labels = [truth(cell) for cell in of]
        known = [label for label in labels if label is not None]
        rows.append(
            (
                name,
                str(len(of)),
                str(sum(not label.is_quiet and bool(label.name) for label in known)),
                str(sum(not label.name and not label.is_quiet for label in known)),
                str(sum(label.is_quiet for label in known)),
                str(sum(not label.is_sharp for label in known)),
                str(sum(label is None and not cell.error for label, cell in zip(labels, of, strict=True))),
                str(sum(bool(cell.error) for cell in of)),
            )
        )
    total = tuple(str(sum(int(row[column]) for row in rows)) for column in range(1, 8))
    small, large = f"{100 * SMALL:.0f} %", f"{100 * LARGE:.0f} %"
    head = ("kind", "cells", f"gain ≥ {large}", f"{small} to {large}", f"below {small}", "label uncertain")
    return Table(title="Cells", head=(*head, "no label", "failed"), rows=(*rows, ("all", *total)) if cells else ())


def scores(cells: Sequence[CellResult], tools: Sequence[str]) -> Table:
    """The scores of each tool over all cells."""
    rows = []
    for tool in tools:
        of = score.tally(score.judged(cells, tool))
        alarms = (of.alarms_on_controls, of.alarms)
        shares = (of.top1, of.sharp, of.costly, of.top3, of.abstained, *alarms, of.named, of.rank)
        is_silent = of.n == of.abstained.k
        rows.append((tool, str(of.n), *("–" if is_silent else share_words(share) for share in shares)))
    head = ("tool", "cells", "right where it answers", "the same, sharp labels")
    more = (
        "the same, what costs 10 % is not the work",
        "right among its first three",
        "no answer",
        "false alarms, healthy and decoys",
        "false alarms, all of no gain",
        "names the cause itself",
        "right rank",
    )
    return Table(title="Scores", head=(*head, *more), rows=tuple(rows))


def by_word(of: Sequence[Judged], title: str, by: Callable[[CellResult], str]) -> Table:
    """The scores of one tool by a word of the cell."""
    head = (title.rsplit(" ", 1)[-1], "cells", "right where it answers", "among its first three", "no answer")
    rows = tuple((name, *_few(score.tally(group))) for name, group in score.grouped(of, by).items())
    return Table(title=title, head=(*head, "false alarms"), rows=rows)


def gain_table(cells: Sequence[CellResult], tools: Sequence[str]) -> Table:
    """Predicted ceilings beside measured gains."""
    rows = []
    for tool in tools:
        of = score.gains(score.judged(cells, tool))
        if of.with_number.k:
            shares = (of.with_number, of.held_interval, of.held)
            gaps = (points(of.median_gap), f"{points(of.low_gap)} to {points(of.high_gap)}")
            rows.append((tool, *(share_words(share) for share in shares), *gaps))
    head = ("tool", "gives the cause a number", "not below the interval of the gain", "not below the gain itself")
    return Table(title="Ceilings", head=(*head, "median gap", "5th to 95th percentile"), rows=tuple(rows))


def slope_table(cells: Sequence[CellResult]) -> Table:
    """Slopes of `profkit probe` beside what removal gives."""
    rows = tuple(
        (
            name,
            str(of.n),
            "–" if of.median is None else f"{of.median:.2f}",
            share_words(of.on_path),
            share_words(of.hidden),
        )
        for name, of in score.slopes(cells).items()
    )
    head = ("cells", "n", "median slope", f"above {score.ON_PATH} for certain", f"below {score.ON_PATH} for certain")
    return Table(title="Slopes", head=head, rows=rows)


def reliability_table(of: Sequence[Judged], tool: str) -> Table:
    """Share of right answers by confidence."""
    rows = tuple(
        (f"{one.low:.1f} to {one.high:.1f}", f"{one.confidence:.2f}", share_words(one.right))
        for one in score.reliability(of)
    )
    return Table(title=f"{tool}: confidence", head=("confidence", "mean of it", "right"), rows=rows)


def confusion_table(of: Sequence[Judged], tool: str) -> Table:
    """Truths as rows, verdicts as columns."""
    truths, verdicts, counts = matrix(of)
    rows = tuple((name, *(str(counts[name, word] or "") for word in verdicts)) for name in truths)
    return Table(title=f"{tool}: truth and verdict", head=("truth", *verdicts), rows=rows)


def matrix(of: Sequence[Judged]) -> tuple[list[str], list[str], dict[tuple[str, str], int]]:
    """The rows, columns and counts of the confusion matrix, the work itself first."""
    counts = score.confusion(of)
    truths = sorted({row for row, _ in counts}, key=lambda name: (name != AT_WORK, name))
    order = ["healthy", "kernel-bound"]
    last = ["inconclusive", score.NO_ANSWER]
    said = {word for _, word in counts}
    middle = sorted(said - {*order, *last})
    verdicts = [word for word in (*order, *middle, *last) if word in said]
    return truths, verdicts, {(row, word): counts[row, word] for row in truths for word in verdicts}


def wrong(of: Sequence[Judged], tool: str) -> Table:
    """Every cell of which something wrong is said."""
    rows = tuple(_case(one) for one in of if one.is_wrong)
    return Table(title=f"{tool}: wrong", head=("cell", "measured gain", "right", "said", "its words"), rows=rows)


def abstained(of: Sequence[Judged], tool: str) -> Table:
    """Every cell of which nothing is said, where a bottleneck is to be named."""
    rows = tuple(_case(one) for one in of if one.abstains and one.said.bottleneck)
    head = ("cell", "measured gain", "right", "said", "its words")
    return Table(title=f"{tool}: inconclusive", head=head, rows=rows)


def too_low(of: Sequence[Judged], tool: str) -> Table:
    """Every cell whose ceiling is below the interval of the measured gain."""
    rows = tuple((one.cell.key, gain_words(one.cell), percent(one.ceiling)) for one in score.too_low(of))
    return Table(title=f"{tool}: ceiling too low", head=("cell", "measured gain", "ceiling"), rows=rows)


def failed(cells: Sequence[CellResult]) -> Table:
    """Every cell that failed."""
    rows = tuple((cell.key, short(cell.error)) for cell in cells if cell.error)
    return Table(title="Failed cells", head=("cell", "error"), rows=rows)


def share_words(share: Share) -> str:
    """A share with its counts and its interval, in percent."""
    if share.value is None:
        return "–"
    low, high = share.interval
    return f"{100 * share.value:.0f} % ({share.k} of {share.n}; {100 * low:.0f} to {100 * high:.0f})"


def percent(value: float | None) -> str:
    """A share of the step."""
    return "–" if value is None else f"{_signed(100 * value)} %"


def points(value: float | None) -> str:
    """A difference of two shares, in points."""
    return "–" if value is None else f"{_signed(100 * value, plus='+')} points"


def gain_words(cell: CellResult) -> str:
    """The measured gain with its interval."""
    if cell.gain is None:
        return "nothing to remove" if removes_nothing(cell) else "–"
    if cell.gain_interval is None:
        return percent(cell.gain)
    low, high = cell.gain_interval
    return f"{percent(cell.gain)} ({_signed(100 * low)} to {_signed(100 * high)})"


def short(text: str) -> str:
    """Text as one line of a table, without the folders of the machine that it was written on."""
    line = _FOLDERS.sub("", " ".join(text.split()))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _signed(value: float, *, plus: str = "") -> str:
    text = f"{abs(value):.1f}"
    return text if float(text) == 0 else ("−" if value < 0 else plus) + text


def _case(one: Judged) -> tuple[str, ...]:
    right = " or ".join(sorted(one.truth.right))
    sure = "" if one.said.confidence is None else f" ({one.said.confidence:.2f})"
    return one.cell.key, gain_words(one.cell), right, f"{one.word}{sure}", short(one.said.headline)


def _few(of: Tally) -> tuple[str, ...]:
    return str(of.n), *(share_words(share) for share in (of.top1, of.top3, of.abstained, of.alarms))


def _aligned(table: Table) -> str:
    widths = [max(map(len, column)) for column in zip(table.head, *table.rows, strict=True)]
    lines = [
        "  ".join(f"{word:{width}}" for word, width in zip(line, widths, strict=True)).rstrip()
        for line in (table.head, *table.rows)
    ]
    return "\n".join([table.title, "-" * len(table.title), *lines, *([table.note] if table.note else [])])
