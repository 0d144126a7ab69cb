"""Lines with numbers and ids, and how many of them there is room for."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

import msgspec

from profkit.model.finding import Evidence, Finding, confidence_label
from profkit.render.words.places import place_words, share_of
from profkit.render.words.triage import statement
from profkit.shell import clean
from profkit.units import format_fraction

MOST_CHARS: Final = 8_000
"""2,000 tokens at four characters each: what fits beside a conversation. Chosen."""
_LONGEST_LINE: Final = 400
_LONGEST_COMMAND: Final = 1_000
_ROOM_FOR_NOTE: Final = 120
_SHOWN_PLACES: Final = 3
LONGEST_PLACE: Final = 240
"""Characters of a place: file, function, line, what stands there, module."""
_LIKE_ID: Final = re.compile(r"\[([A-Za-z_]\w*(?:\.\w+|\[\w+\])*)\]", re.ASCII)


class Need(IntEnum):
    """How much a line is needed: where there is no room for all, the highest number goes first, from the end."""

    ANSWER = 0
    MAIN = 1
    FINDING = 2
    LIMIT = 3
    RANK = 4
    OTHER = 5


class Entry(msgspec.Struct, frozen=True):
    """A line and how much it is needed."""

    text: str
    need: Need = Need.MAIN


def page(title: str, document: str, entries: Iterable[Entry]) -> str:
    """The title, how to read the ids, and as many lines as there is room for; what is left out is counted."""
    head = (
        f"profkit {title}. [ID]: the path of a number in `profkit {document} ... -f json` (jq '.ID');"
        " times in ns, fractions of 1. `profkit explain NAME`: what a finding or verdict means."
    )
    kept = list(entries)
    n_chars = len(head) + 1 + sum(len(entry.text) + 1 for entry in kept)
    room = MOST_CHARS if n_chars <= MOST_CHARS else MOST_CHARS - _ROOM_FOR_NOTE
    n_left = 0
    while n_chars > room:
        place = max(range(len(kept)), key=lambda number: (kept[number].need, number))
        n_chars -= len(kept.pop(place).text) + 1
        n_left += 1
    note = [f"left out for room: {n_left:,} lines; `profkit {document} ... -f json` has them"] if n_left else []
    return "\n".join((head, *(entry.text for entry in kept), *note)) + "\n"


def line(text: str, need: Need = Need.MAIN) -> Entry:
    """A line of words, cut where it is too long."""
    said = clean(text)
    return Entry(said if len(said) <= _LONGEST_LINE else f"{said[: _LONGEST_LINE - 3]}...", need)


def plain(text: str) -> str:
    """Words in which nothing passes for an id: what looks like one in a name of the trace gets round brackets."""
    return _LIKE_ID.sub(r"(\1)", text)


def quoted(name: str, *, most: int = 120) -> str:
    """A name of the trace on its own, in quotes and cut, with nothing in it that passes for a fact of the page."""
    said = plain(name).replace('"', "'").replace(" = ", "=")
    return f'"{said if len(said) <= most else f"{said[: most - 3]}..."}"'


def fact(label: str, value: float | str | None, path: str, *, unit: str = "", says: str = "") -> str:
    """`step = 37823307 ns [verdict.step_ns] Step 37.8 ms (5 steps)`."""
    shown = "none" if value is None else plain(value) if isinstance(value, str) else number(value)
    of = f" {plain(unit)}" if unit and value is not None else ""
    return f"{label} = {shown}{of} [{path}]{f' {plain(says)}' if says else ''}"


def number(value: float) -> str:
    """Whole numbers whole, others with six digits."""
    if not math.isfinite(value):
        return "none"
    return str(int(value)) if float(value).is_integer() else f"{value:.6g}"


def pairs(values: Mapping[str, float | None]) -> str:
    """`step_ns=68600000 data_ns=12500000`, without what is absent."""
    return " ".join(f"{name}={number(value)}" for name, value in values.items() if value is not None)


def command(label: str, text: str, need: Need = Need.ANSWER) -> Entry:
    """A command to paste, whole, or a word on where to find it."""
    said = clean(text)
    return Entry(
        f"{label}: {said if len(said) <= _LONGEST_COMMAND else 'too long for this page: -f json has it'}", need
    )


def finding_lines(finding: Finding, path: str, *, says: str, need: Need, is_full: bool = True) -> Iterable[Entry]:
    """A finding with its evidence, places and fix; not `is_full`: with the number that it is judged by alone."""
    of_rank = f" of rank {finding.rank}" if finding.rank is not None else ""
    sure = f"confidence {confidence_label(finding.confidence)}"
    head = f"finding {finding.id}{of_rank} = {number(finding.fraction)} [{path}.fraction] {plain(finding.title)}"
    yield line(f"{head}; severity {finding.severity}, {sure}{f'; {says}' if says else ''}", need)
    for place, item in enumerate(finding.evidence if is_full else finding.evidence[:1]):
        yield _evidence(item, f"{path}.evidence[{place}]", need if place < 2 else max(need, Need.LIMIT))
    if not is_full:
        return
    for place, share in enumerate(finding.places[:_SHOWN_PLACES]):
        says = f"{format_fraction(share.share)} {share_of(share)}: {quoted(place_words(share), most=LONGEST_PLACE)}"
        yield line(f"  {fact('where', share.share, f'{path}.places[{place}].share', says=says)}", need)
    if finding.recoverable_ns:
        most = finding.most_recoverable_ns
        bound = "at most" if most is None else f"about; at most {most} ns [{path}.most_recoverable_ns]"
        saved = fact("  saves", finding.recoverable_ns, f"{path}.recoverable_ns", unit="ns", says=f"per step, {bound}")
        yield line(saved, need)
    if finding.fix:
        yield line(f"  fix: {plain(finding.fix)}", need)


def _evidence(item: Evidence, path: str, need: Need) -> Entry:
    says = statement(item, is_full=True)
    percent = f" ({format_fraction(item.value)})" if item.unit == "fraction" and math.isfinite(item.value) else ""
    return line(f"  {fact(f'evidence {item.metric}', item.value, path, unit=f'{item.unit}{percent}', says=says)}", need)
