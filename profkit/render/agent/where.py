"""Places in the user's code for an agent: each thing's places with their shares and ids, then the modules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profkit.model.code import PlaceShare
from profkit.model.documents.where import PlacesOf, Where
from profkit.render.agent.page import LONGEST_PLACE, Entry, Need, fact, line, page, pairs, plain, quoted
from profkit.render.words import places as words
from profkit.render.words.keys import keyed
from profkit.render.words.places import place_words, share_of
from profkit.units import format_fraction, format_ns

_MOST_PLACES: Final = 5
_MOST_MODULES: Final = 12


def render(where: Where, **_: object) -> str:
    """The places as text of at most `page.MOST_CHARS` characters."""
    return page("where", "where", (*_window(where), *_subjects(where), *_modules(where)))


def _window(where: Where) -> Iterable[Entry]:
    yield line(fact("window", where.window_ns, "window_ns", unit="ns", says=f"{where.n_steps} steps"), Need.ANSWER)
    if rank := words.rank_line(where):
        yield line(f"of {plain(rank)}", Need.ANSWER)
    if phases := words.phases(where):
        yield line(f"{phases} [phase_ns]", Need.LIMIT)


def _subjects(where: Where) -> Iterable[Entry]:
    for number, one in enumerate(where.subjects):
        need = Need.MAIN if number == 0 else Need.FINDING
        at = f"subjects[{number}]"
        yield line(fact(one.kind, one.share, f"{at}.share", says=_title(one)), need)
        for place, share in enumerate(one.places[:_MOST_PLACES]):
            yield line(_place(share, f"{at}.places[{place}]"), need if place == 0 else max(need, Need.LIMIT))
        if not one.places:
            yield line(f"  {words.no_places(one)}", need)
        elif rest := _rest(one):
            yield line(f"  {rest}", Need.LIMIT)


def _title(one: PlacesOf) -> str:
    if one.kind in ("finding", "work"):
        return words.title(one)
    return f"{quoted(one.name)}: {format_ns(one.ns)}, {format_fraction(one.share)} of the window"


def _place(share: PlaceShare, path: str) -> str:
    place = quoted(place_words(share), most=LONGEST_PLACE)
    said = f"{format_ns(share.ns)} in {share.count:,} rows; {share_of(share)}: {place}"
    return f"  {fact('where', share.share, f'{path}.share', says=said)}"


def _rest(one: PlacesOf) -> str:
    if len(one.places) > _MOST_PLACES:
        return f"{len(one.places) - _MOST_PLACES} more places in the JSON"
    return words.unplaced(one)


def _modules(where: Where) -> Iterable[Entry]:
    for number, use in enumerate(where.modules[:_MOST_MODULES]):
        values = keyed(use, "work_ns forward_ns backward_ns n_rows")
        yield line(f"module [modules[{number}]]: {pairs(values)} {quoted(use.name)}", Need.RANK)
    if len(where.modules) > _MOST_MODULES:
        yield line(f"more modules [modules]: {len(where.modules) - _MOST_MODULES:,}", Need.RANK)
