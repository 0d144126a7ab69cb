"""The plan of a ladder: the order of its rungs, the layers that each holds, and which settings belong to a rung."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

import msgspec

from profkit.compare.ladder.cells import Columns, Tried, words_of
from profkit.compare.tables.result_tables import Cells, is_number
from profkit.errors import UsageError
from profkit.model.documents.ladder import Changed, OrderSource, Settings
from profkit.model.grouped import grouped
from profkit.model.switches import says_off, says_on

Groups = tuple[tuple[str, ...], ...]
_NO_LAYER: Final = frozenset({"", "none", "base", "baseline", "vanilla", "-"})
_BASES: Final = frozenset({"base", "baseline", "vanilla", "reference", "none", "default", "eager", "naive"})
"""Rungs that come first, wherever their rows stand."""
_APART: Final = re.compile(r"[+,;|&]+")
MOST_RUNGS: Final = 64
"""Different rungs of a table (chosen: nobody climbs more, and pairs grow as the square); more are another column."""
_SHORTEST: Final = 4
"""Letters from which the beginning of a name stands for it (chosen): pack for packing, but not no or bf."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the ladders of all series have in common.

    `groups` are the rungs in order, alternatives together. `layers` are those of each rung; where `is_told`, the table
    lists them, else they are read from names. `companions` are settings that always come with a rung.
    """

    groups: Groups
    source: OrderSource
    layers: Mapping[str, frozenset[str]]
    is_told: bool
    companions: frozenset[str]
    batches: tuple[str, ...]

    @property
    def places(self) -> dict[str, int]:
        """The place of each rung in the order; alternatives share one."""
        return {name: place for place, group in enumerate(self.groups) for name in group}

    def follows(self, rung: str, later: str) -> bool:
        """Whether a rung can stand on another: as told by whoever gives the order, else it holds all of its layers."""
        return self.source is OrderSource.GIVEN or not self.is_told or self.layers[later] > self.layers[rung]

    def brought(self, rung: str, later: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The layers that a rung adds to another and those that it lacks; none where the table does not tell."""
        if not self.is_told:
            return (), ()
        old, new = self.layers[rung], self.layers[later]
        return self.in_order(new - old), self.in_order(old - new)

    def carries(self, rung: str, later: str, other: str) -> bool:
        """Whether `other` is known to hold what `later` adds to `rung`, and else all its layers or all but one."""
        if not self.is_told:
            return False
        old, new, above = self.layers[rung], self.layers[later], self.layers[other]
        added = new - old
        return bool(added) and added <= above and len(new - above) <= 1 and len(above) >= len(new)

    @property
    def order(self) -> list[str]:
        """All rungs, those outside the order last."""
        return [*self.places, *(name for name in self.layers if name not in self.places)]

    def in_order(self, layers: Iterable[str]) -> tuple[str, ...]:
        """Layers in the order in which the rungs bring them."""
        first = {layer: number for number, name in reversed(list(enumerate(self.order))) for layer in self.layers[name]}
        return tuple(sorted(layers, key=lambda layer: (first[layer], layer)))

    def free(self, settings: Settings) -> Settings:
        """The settings that do not come with the rung."""
        return tuple(item for item in settings if item[0] not in self.companions)

    def changed(self, old: Tried, new: Tried) -> tuple[Changed, ...]:
        """The settings in which two cells differ."""
        return tuple(
            Changed(heading=name, before=old.settings[name], after=value, is_own=self._is_own(name, old.rung, new.rung))
            for name, value in new.key.settings
            if value != old.settings[name]
        )

    def _is_own(self, heading: str, *rungs: str) -> bool:
        if heading in self.companions:
            return True
        names = [word for rung in rungs for word in words_of(rung)]
        names += [word for layer in self.layers[rungs[-1]] ^ self.layers[rungs[0]] for word in words_of(layer)]
        return any(_is_short_for(one, other) for one in words_of(heading) for other in names)


def plan_of(
    source: str, cells: Sequence[Tried], columns: Columns, by_line: Mapping[int, Cells], order: str | None
) -> tuple[Plan, list[str]]:
    """The plan of the cells of a table, and why it does not use the layers that the table lists.

    Raises UsageError for too many rungs, and as `order_of` does.
    """
    rungs = list(dict.fromkeys(one.rung for one in sorted(cells, key=lambda one: one.lines[0])))
    if len(rungs) > MOST_RUNGS:
        raise UsageError(
            f"column {columns.rung!r} of {source} has {len(rungs):,} different values, too many for rungs of a ladder",
            hint=f"choose another with --rung; a ladder has up to {MOST_RUNGS}",
        )
    groups, found = order_of(rungs, order, source)
    named = [name for group in groups for name in group]
    ordered = [*named, *(rung for rung in rungs if rung not in named)]
    listed = _lists(columns, ((one.rung, by_line[line]) for one in cells for line in one.lines))
    layers, is_told = layers_of(ordered, columns, listed)
    twofold = next(((rung, said) for rung, said in listed.items() if len(said) > 1), None)
    unused = []
    if twofold is not None:
        said = f"rows of {twofold[0]} list different layers ({'; '.join(sorted(twofold[1]))})"
        unused = [f"{said}: column {columns.layers!r} is not used"]
    if is_told and (same := _alike(cells, layers)) is not None:  # what sets the two apart is not among the layers
        layers, is_told = _layers_by_names(ordered), False
        unused = unused or [f"{' and '.join(same)} have the same layers in the table: layers are not used"]
    if is_told and found is OrderSource.FIRST_SEEN:
        groups, found = chained(ordered, layers), OrderSource.LAYERS
    plan = Plan(
        groups=groups,
        source=found,
        layers=layers,
        is_told=is_told,
        companions=companions_of(cells, columns, layers),
        batches=columns.batches,
    )
    return plan, unused


def order_of(rungs: Sequence[str], given: str | None, source: str) -> tuple[Groups, OrderSource]:
    """The rungs in order, from `--order a,b|c,d`, by the number that each begins with, or as they first appear.

    Raises UsageError for a rung that the table does not have, or that is there twice.
    """
    if given is None:
        numbers = {rung: int(found[0]) for rung in rungs if (found := re.match(r"\d{1,9}", rung))}
        if len(numbers) == len(rungs):
            ordered = sorted(rungs, key=lambda rung: (numbers[rung], rung))
            return tuple((rung,) for rung in ordered), OrderSource.NUMBERED
        bases_first = sorted(rungs, key=lambda rung: rung.strip().lower() not in _BASES)
        return tuple((rung,) for rung in bases_first), OrderSource.FIRST_SEEN
    groups = tuple(tuple(name.strip() for name in group.split("|") if name.strip()) for group in given.split(","))
    named = [name for group in groups for name in group]
    for name in named:
        if name not in rungs:
            near = get_close_matches(name, rungs, n=1)
            asked = f"did you mean {near[0]!r}?" if near else f"its rungs: {', '.join(rungs)}"
            raise UsageError(f"{source} has no rung {name!r}", hint=asked)
        if named.count(name) > 1:
            raise UsageError(f"--order names {name!r} twice", hint="name each rung once: --order base,compile|liger")
    return tuple(group for group in groups if group), OrderSource.GIVEN


def layers_of(
    rungs: Sequence[str], columns: Columns, listed: Mapping[str, Sequence[str]]
) -> tuple[dict[str, frozenset[str]], bool]:
    """The layers of each rung, and whether the table tells them; `rungs` are in order, `listed` as `_lists` gives it.

    Told are those of a column that lists them, of switches, and of names such as bf16+compile or +compile, which adds
    to all before it. A name made of the names of other rungs (pack_tilegym) only suggests them.
    """
    if listed and all(len(said) == 1 for said in listed.values()):
        return {rung: _listed(next(iter(said))) for rung, said in listed.items()}, True
    if any("+" in rung for rung in rungs):
        return _summed(rungs), True
    if not columns.rung:
        return {rung: _listed(rung) for rung in rungs}, True
    return _layers_by_names(rungs), False


def _lists(columns: Columns, records: Iterable[tuple[str, Cells]]) -> dict[str, list[str]]:
    """The lists of layers that each rung's rows have, one text for each set; empty where no column lists any."""
    found: dict[str, dict[frozenset[str], str]] = {}
    for rung, cells in records if columns.layers else ():
        text = cells.get(columns.layers, "").strip()
        if text and is_number(text):  # a count
            return {}
        found.setdefault(rung, {}).setdefault(_listed(text), text or "none")
    return {rung: list(said.values()) for rung, said in found.items()}


def _layers_by_names(rungs: Sequence[str]) -> dict[str, frozenset[str]]:
    return {rung: _parts(rung, rungs) for rung in rungs}


def _alike(cells: Sequence[Tried], layers: Mapping[str, frozenset[str]]) -> tuple[str, str] | None:
    """Two rungs of one series that have the same layers, None where there are none."""
    first: dict[object, str] = {}
    for one in cells:
        if (other := first.setdefault((one.key.series, layers[one.rung]), one.rung)) != one.rung:
            return other, one.rung
    return None


def _listed(text: str) -> frozenset[str]:
    return frozenset(_named(_APART.split(text)))


def _named(parts: Iterable[str]) -> Iterable[str]:
    return (name for part in parts if (name := part.strip()).lower() not in _NO_LAYER)


def _summed(rungs: Sequence[str]) -> dict[str, frozenset[str]]:
    """The layers of names such as bf16+compile; a rung that is in no such name is the base, and has none."""
    parts = {rung: frozenset(_named(rung.split("+"))) for rung in rungs}
    used = {part for rung, mine in parts.items() if "+" in rung for part in mine}
    base = next((rung for rung in rungs if not parts[rung] & used), "")
    found: dict[str, frozenset[str]] = {}
    before: frozenset[str] = frozenset()
    for rung in rungs:
        found[rung] = frozenset() if rung == base else before | parts[rung] if rung.startswith("+") else parts[rung]
        before = found[rung]
    return found


def chained(rungs: Sequence[str], layers: Mapping[str, frozenset[str]]) -> Groups:
    """The longest chain of rungs of which each holds the layers of the one before, then the other rungs.

    Of equal chains that of the rungs that come first.
    """
    ordered = sorted(rungs, key=lambda rung: len(layers[rung]))
    chains: dict[str, list[str]] = {}
    for rung in ordered:
        below = [chains[one] for one in ordered if layers[one] < layers[rung]]
        chains[rung] = [*max(below, key=len, default=[]), rung]
    longest = max(chains.values(), key=len)
    return tuple((rung,) for rung in (*longest, *(rung for rung in ordered if rung not in longest)))


def _parts(rung: str, rungs: Sequence[str]) -> frozenset[str]:
    """The rungs whose names make up a name, two or more; else the rung itself."""
    words = [word for word in re.split(r"[_\-\s]+", rung) if word]
    meant = [[one for one in rungs if one != rung and _is_short_for(word, one)] for word in words]
    if len(words) > 1 and all(len(found) == 1 for found in meant):
        named = frozenset(found[0] for found in meant)
        if len(named) == len(words):
            return named
    return frozenset({rung})


def _is_short_for(one: str, other: str) -> bool:
    """Whether one of two words is the beginning of the other, or both are the same."""
    short, long = sorted((one.lower(), other.lower()), key=len)
    return long.startswith(short) and (len(short) >= _SHORTEST or (short == long and bool(short)))


def companions_of(cells: Sequence[Tried], columns: Columns, layers: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The settings that always come with a rung: each rung has one value of them in the whole table.

    Only those count that a rung or a layer is named for, or of which each value was seen in a rung at several other
    settings: in a table with a row per rung everything comes with the rung. A batch is chosen freely, and counts only
    where a rung is named for it.
    """
    names = {word for rung, mine in layers.items() for name in (rung, *mine) for word in words_of(name)}
    found = set()
    for heading in columns.settings:
        of_rung = grouped((one.rung, one.settings[heading]) for one in cells)
        values = {rung: set(seen) for rung, seen in of_rung.items()}
        if any(len(seen) > 1 for seen in values.values()):
            continue
        is_named = any(_is_short_for(word, name) for word in words_of(heading) for name in names)
        if is_named or (heading not in columns.batches and _is_shown(heading, cells, values)):
            found.add(heading)
    return frozenset(found)


def _is_shown(heading: str, cells: Sequence[Tried], values: Mapping[str, set[str]]) -> bool:
    """Whether each value of a setting was seen in a rung at several choices of the other settings."""
    others = grouped((one.rung, one.without(heading)) for one in cells)
    shown = {value for rung, seen in values.items() for value in seen if len(set(others[rung])) > 1}
    return shown == {value for seen in values.values() for value in seen}


def told(settings: Settings, *, hidden: frozenset[str] = frozenset()) -> str:
    """Settings in words: switches that are on by their heading, others with their value; what is off is not told."""
    return ", ".join(
        name if says_on(value) else f"{name}={value}"
        for name, value in settings
        if name not in hidden and not says_off(value)
    )
