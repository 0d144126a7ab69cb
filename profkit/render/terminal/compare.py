"""A comparison for a terminal: the answer is the first line, why it is so comes next, the accounts after that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from profkit.model.documents.comparison import Account, Comparison
from profkit.render.terminal import layout, page
from profkit.render.terminal.layout import MARGIN, Line
from profkit.render.terminal.page import PARTS, PROSE_WIDTH, Block
from profkit.render.words import compare as words
from profkit.shell import clean

_MAX_READINGS: Final = 3
_MIN_WORK: Final = 0.01  # of the step; chosen: smaller changes of a kernel wait for -v
_SIDES: Final = ("baseline", "candidate")
_BAR_ROOM: Final = 24
_WIDE: Final = 120
_NARROW_COLUMNS: Final = 5  # name, change, by count, by duration, calls


def render(
    comparison: Comparison, *, width: int | None = None, color: bool | None = None, verbose: bool = False, **_: object
) -> str:
    """The comparison as text of at most `width` columns (the terminal's by default).

    Colour follows the terminal and `NO_COLOR` unless it is said. `verbose` adds every reading, kernel and collective.
    """
    columns = page.columns_of(width)
    rooms = (_FULL,) if verbose else _ROOMS
    return page.printed(page.fitting(rooms, lambda room: _blocks(comparison, columns, room)), color)


class _Room(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison has room for: all there is (`is_full`), or what helps most, in less and less of it."""

    is_full: bool = False
    n_works: int = 6
    """Rows of each table of work; the others share one."""
    n_evidence: int | None = None
    """Reasons for each reading after the first."""
    n_sides: int | None = None
    """Rows of what each side is and did."""


_FULL: Final = _Room(is_full=True)
_ROOMS: Final = (
    _Room(),
    _Room(n_works=3),
    _Room(n_works=3, n_sides=2),
    _Room(n_works=3, n_sides=2, n_evidence=1),
    _Room(n_works=1, n_sides=2, n_evidence=1),
    _Room(n_works=0, n_sides=2, n_evidence=1),
)
"""From the most to the least: what is left out first is needed least. The rest is under `-v` and in JSON."""


def _blocks(comparison: Comparison, width: int, room: _Room) -> Iterable[Block]:
    prose, is_full = min(width, PROSE_WIDTH), room.is_full
    yield page.answer(words.answer_name(comparison), words.tone(comparison), words.answer_sentence(comparison), prose)
    if comparison.configurations:
        rows = words.configuration_rows(comparison)
        yield layout.table(words.CONFIGURATION_HEADERS, rows, [True, True, False, False, False], width)
    yield _next(comparison, prose)
    yield _why(comparison, prose, room)
    yield _waterfall(comparison, width)
    yield _sides(comparison, width, room)
    for title, account in words.accounts(comparison, is_full=True):
        yield _works(comparison, title, account, width, room)
    yield _notes(comparison, prose)
    yield _read(comparison, prose, is_full=is_full)


def _next(comparison: Comparison, width: int) -> Block:
    """What to run where one run each leaves the answer open."""
    command = words.next_command(comparison)
    return [((layout.label("next"), "label"), (command, "command"))] if command else []


def _why(comparison: Comparison, width: int, room: _Room) -> Block:
    readings = comparison.readings if room.is_full else comparison.readings[:_MAX_READINGS]
    if not readings:
        return []
    block = page.titled("why" if comparison.waterfall is not None else "what we saw", width)
    for number, reading in enumerate(readings, 1):
        block += layout.wrapped(f"   {number}  ", words.reading_line(reading), width, first_style="dim", style="strong")
        for item in words.reasons(reading)[: None if number == 1 else room.n_evidence]:
            block += layout.wrapped("      - ", clean(item.statement), width, first_style="dim")
        if room.is_full or number == 1:
            block += layout.wrapped("      -> ", clean(reading.fix), width, first_style="dim")
    return block + page.hidden(len(comparison.readings) - len(readings))


def _waterfall(comparison: Comparison, width: int) -> Block:
    waterfall = comparison.waterfall
    if waterfall is None:
        return []
    rows = words.waterfall_rows(comparison)
    lines = layout.table(words.WATERFALL_HEADERS, rows, [True, False, False, False], width)
    bars = [bar for bar in waterfall.bars if bar.baseline_ns or bar.candidate_ns]
    used = max(layout.cell_width("".join(content for content, _ in line)) for line in lines)
    room = min(width - used - 2 * len(MARGIN), _BAR_ROOM)
    if room >= 8:
        largest = max((abs(bar.delta_ns) for bar in bars), default=0)
        drawn = [_drawn(bar.delta_ns, largest, room, *PARTS[bar.name]) for bar in bars]
        lines = [lines[0], *((*line, *extra) for line, extra in zip(lines[1:-1], drawn, strict=True)), lines[-1]]
    block: Block = [*page.titled(words.captures_title(comparison), width), *lines[:-1]]
    return [*block, tuple((content, "strong") for content, _ in lines[-1])]


def _drawn(change_ns: int, largest_ns: int, room: int, glyph: str, style: str) -> Line:
    """A bar from the middle: to the left what was saved, to the right what was added."""
    half = room // 2
    length = round(half * abs(change_ns) / largest_ns) if largest_ns else 0
    left, right = (length, 0) if change_ns < 0 else (0, length)
    return (MARGIN + " " * (half - left) + glyph * left, style), ("|", "dim"), (glyph * right, style)


def _sides(comparison: Comparison, width: int, room: _Room) -> Block:
    rows = words.side_rows(comparison)[: room.n_sides]
    if not rows or comparison.waterfall is None:
        return []
    return layout.table(("", "baseline", "candidate"), rows, [True, True, True], width)


def _works(comparison: Comparison, title: str, account: Account, width: int, room: _Room) -> Block:
    """The works that moved the step by a percent or more; the sum closes on the change of busy time."""
    step = comparison.waterfall.baseline_ns if comparison.waterfall is not None else 0
    n_rows = sum(abs(row.delta_ns) >= _MIN_WORK * step and row.delta_ns != 0 for row in account.rows)
    n_rows = len(account.rows) if room.is_full else min(n_rows, room.n_works)
    if n_rows == 0:
        return []
    shown = len(words.WORK_HEADERS) + 1 if width >= _WIDE else _NARROW_COLUMNS
    headers = (f"{title} that changed", *words.WORK_HEADERS)[:shown]
    rows = [row[:shown] for row in words.work_rows(account, n_rows)]
    return layout.table(headers, rows, [True, *[False] * (shown - 1)], width)


def _notes(comparison: Comparison, width: int) -> Block:
    found = "; ".join(words.finding_sentences(comparison.findings))
    return [*page.labelled("findings", found, width), *page.listed("caveats", words.limits(comparison), width)]


def _read(comparison: Comparison, width: int, *, is_full: bool) -> Block:
    block: Block = []
    sides = comparison.baseline, comparison.candidate
    for side, names in zip(sides, words.read_names(comparison), strict=True):
        read = ", ".join(filter(None, (names, clean(side.device))))
        name = clean(side.name)
        said = f"{name}: {read}" if read and name not in (read, *_SIDES) else read
        block += page.labelled(name if name in _SIDES else "read", said, width, style="dim")
    entries = [(f"profkit explain {comparison.readings[0].id}", layout.WHOLE)] if comparison.readings else []
    entries += [] if is_full else [("-v", "")]
    entries += [("-f json", ""), ("-o report.html", "")]
    return block + page.more(entries, width)
