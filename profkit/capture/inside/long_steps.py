"""Which steps of a run are rare and long, and which lines of the script's own code their time goes to.

Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import linecache
import os
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from .places.owners import shown_path

LONG: Final = 1.5
"""Times the median step, from which a step is a long one. Chosen: below, a single one is weather."""
_BEYOND_QUARTILES: Final = 3
"""...and by so many distances of the quartiles beyond the upper one (Tukey's far-out values)."""
_LEAST_LONG: Final = 3
_LEAST_FAR: Final = 2
_FAR: Final = 4
"""Times the median step, from which two long steps show what comes back: of these one may have been recorded, or be
the one that the run ends in. Chosen: a machine that others use makes a step twice or three times as long."""
_AS_LONG: Final = 2
"""Times, up to which two steps are equally long. Chosen: the profiler slows what it records."""
MODEL: Final = "model"
"""The `way` of a look that finds the call of a module."""
_MODELLED: Final = 0.1
"""Of what long steps take more, from which what modules compute there is told apart. Chosen: an evaluation runs the
model much of the time, a save never."""
LEAST_LOOKS: Final = 10
"""Chosen: a share of two thirds of ten looks is above a third with 98 %."""
AT_ONE_PLACE: Final = 0.66
_BEYOND_USUAL: Final = 0.3
"""By how much a place's share of what long steps take more exceeds its share of a usual step. Chosen: where a machine
hiccups, or batches differ, the longer steps are at the same lines as the others."""
_OF_ALL: Final = 0.1
"""Of a usual step, from which a line is one of all steps. Chosen: an evaluation's lines have nothing of it."""
_MOST_REGULAR: Final = 0.35
"""Of the steps, up to which every n-th may be a long one. Chosen: every third."""
_ALIKE: Final = 0.75
"""Of the distances between long steps, from which they come every so many steps. Chosen."""
_BESIDE: Final = re.compile(
    r"on_(?:(?:sub)?step|train|validation|epoch|save|log|eval)\w*$|_?(?:save|log|evaluate)(?:_\w+)?$"
)
"""Functions of trainers that do something beside training."""
_MOST_LINES: Final = 3
_LEAST_OF_LINE: Final = 0.2
_MOST_CHARS: Final = 160
_MOSTLY: Final = 0.5
Path = tuple[tuple[str, int, str], ...]
"""File, line and function of each call, the outermost first."""


class Look(NamedTuple):
    """One look at the training thread: when (perf_counter_ns), its own lines, what the innermost calls, how."""

    at_ns: int
    own: tuple[tuple[str, int, str], ...]
    callee: str
    way: str
    whole: tuple[tuple[str, int, str], ...] = ()
    """`own` with the lines of the packages between them and inside."""


def told_of(
    spent: Mapping[int, int],
    edges: tuple[Sequence[int], Sequence[int]],
    looks: Sequence[Look],
    others: Mapping[int, int] | None = None,
) -> dict[str, Any]:
    """Facts of a run's unrecorded steps, `spent` ns each by their place; `others` are the recorded ones.

    `edges` have when all steps began and ended. `n`, `median_ns`, `mean_ns`, `usual_ns` (the mean of those that are not
    long), `first_ns` and `last_ns` (medians of the usual ones' first and last third), `n_long`, and `rare` where the
    long ones' time lies at one place.
    """
    if len(spent) < 2:
        return {}
    ordered = sorted(spent.values())
    median = middle(ordered)
    usual = usual_of(spent)
    long = {place: ns for place, ns in spent.items() if place not in usual}
    third = max(len(usual) // 3, 1)
    in_order = list(usual.values())
    usual_ns = sum(in_order) / len(in_order)
    found: dict[str, Any] = {
        "n": len(spent),
        "median_ns": median,
        "mean_ns": round(sum(ordered) / len(ordered)),
        "usual_ns": round(usual_ns),
        "first_ns": middle(in_order[:third]),
        "last_ns": middle(in_order[-third:]),
        "n_long": len(long),
    }
    is_far = bool(long) and min(long.values()) >= _FAR * median
    beyond = _looks_in(usual, long, edges, looks) if is_far or len(long) >= _LEAST_LONG else None
    rare = _rare(beyond) if beyond is not None else None
    if beyond is not None and rare is None:  # one line runs the whole loop: which of the package's?
        rare = _rare(beyond, is_in_packages=True)
    if rare:
        paths, steps = rare.pop("paths"), [*spent]
        long = _there(paths, long, edges, looks)
        places = sorted(long)
        if is_far:
            last = _last(paths[0], edges, looks)
            places = sorted({*long, *_like(long, others or {}), *last})
            steps += [*(others or {}), *last]
        if len(places) >= (_LEAST_FAR if is_far else _LEAST_LONG):
            found["rare"] = {**rare, **_often(places, steps, long, usual_ns)}
    return found


def _there(
    paths: Sequence[Path], long: Mapping[int, int], edges: tuple[Sequence[int], Sequence[int]], looks: Sequence[Look]
) -> dict[int, int]:
    """Of the long steps those with a look at one of the paths, or with none at all: others are a machine's hiccups."""
    at = [(place, look) for place, look in in_steps(looks, edges) if place in long]
    elsewhere = {place for place, _ in at} - {place for place, look in at if any(_is_at(look, one) for one in paths)}
    return {place: ns for place, ns in long.items() if place not in elsewhere}


def _is_at(look: Look, path: Path) -> bool:
    return path in (look.own[: len(path)], look.whole[: len(path)])


def _like(long: Mapping[int, int], others: Mapping[int, int]) -> list[int]:
    """Of the recorded steps those that take as long as the long ones, and longer than the profiler makes the others."""
    typical = middle(list(long.values()))
    ordered = sorted(others.values())
    least = _AS_LONG * ordered[(len(ordered) - 1) // 2] if ordered else 0
    return [place for place, ns in others.items() if max(typical / _AS_LONG, least) <= ns <= _AS_LONG * typical]


def _last(path: Path, edges: tuple[Sequence[int], Sequence[int]], looks: Sequence[Look]) -> list[int]:
    """The step that no other follows, where the run ended at that path."""
    n = len(edges[1])
    at_end = (look for look in looks if edges[1] and look.at_ns > edges[1][-1])
    n_there = sum(1 for look in at_end if _is_at(look, path))
    return [n] if n_there >= LEAST_LOOKS else []


def _often(places: Sequence[int], steps: Sequence[int], long: Mapping[int, int], usual_ns: float) -> dict[str, Any]:
    """How often long steps come, at these places of all, and what they cost; `long` are those with times.

    Where a run begins without them (a warm-up) and ends with them, what they cost is told of the steps from `since` on,
    up to the last of them: as of a run that goes on.
    """
    each_ns = sum(long.values()) / len(long) - usual_ns
    period = period_of(places) if len(places) > _LEAST_FAR else 0
    beyond_ns = each_ns * len(places)
    before = places[0] - period
    since = before if 0 < period < before and max(steps) - places[-1] <= period else 0
    n_steps = sum(1 for place in steps if since < place <= places[-1]) if since else len(steps)
    return {
        "n": len(places),
        "n_steps": n_steps,
        "since": since,
        "every": float(period) if period else round(n_steps / len(places), 1),
        "is_regular": period > 0,
        "long_ns": round(each_ns + usual_ns),
        "beyond_ns": round(beyond_ns),
        "share": round(beyond_ns / (usual_ns * n_steps + beyond_ns), 5),
    }


def usual_of(spent: Mapping[int, int]) -> dict[int, int]:
    """The steps (place: ns) that are not long, in their order."""
    ordered = sorted(spent.values())
    median, high, low = (ordered[len(ordered) * part // 4] for part in (2, 3, 1))
    most = max(LONG * median, high + _BEYOND_QUARTILES * (high - low))
    most = min(most, _of_regular(spent, (low, median, high)))
    return {place: ns for place, ns in sorted(spent.items()) if ns <= most}


def _of_regular(spent: Mapping[int, int], quartiles: tuple[int, int, int]) -> float:
    """From when on steps are long where up to a third are, one every so many: these would be the upper quartile."""
    low, median, high = quartiles
    most = max(LONG * median, min(high, 2 * median - low) + _BEYOND_QUARTILES * 2 * (median - low))
    long = [place for place, ns in sorted(spent.items()) if ns > most]
    is_of_some = _LEAST_LONG <= len(long) <= _MOST_REGULAR * len(spent)
    return most if is_of_some and period_of(long) > 0 else float("inf")


def in_steps(looks: Sequence[Look], edges: tuple[Sequence[int], Sequence[int]]) -> Iterator[tuple[int, Look]]:
    """The looks that fell into a step, each with the place of that step."""
    began, ended = edges
    for look in looks:
        place = bisect_right(began, look.at_ns) - 1
        if 0 <= place < len(ended) and look.at_ns <= ended[place]:
            yield place, look


def middle(values: Sequence[int]) -> int:
    """The median, the upper one of two."""
    return sorted(values)[len(values) // 2]


def period_of(places: Sequence[int]) -> int:
    """How many steps apart nearly all of them are: most often so many; 0 where they are not, or follow each other."""
    apart = [second - first for first, second in zip(places, places[1:])]  # noqa: B905, RUF007 - Python 3.9
    usual = middle(apart) if apart else 0
    near = [one for one in apart if abs(one - usual) <= 1]
    if usual <= 1 or len(near) < _ALIKE * len(apart):
        return 0
    most = Counter(near).most_common(1)[0][0]
    return most if most > 1 else 0


class _Beyond:
    """What long steps have beyond the usual ones, in looks: under each path of calls, and of each look."""

    def __init__(self, in_long: Counter[Any], in_usual: Counter[Any], weight: float) -> None:
        self._counts, self._weight = (in_long, in_usual), weight
        self.of_looks = {key: in_long[key] - weight * in_usual[key] for key in {*in_long, *in_usual}}
        self.total = sum(self.of_looks.values())
        self._n_usual = sum(in_usual.values()) or 1
        self.under: dict[Path, float] = defaultdict(float)
        self._usual: Counter[Any] = Counter()
        self._usual_lines: Counter[Any] = Counter()
        for key, n in in_usual.items():
            self._usual_lines.update(dict.fromkeys(key[0], n))
        for key, value in self.of_looks.items():
            for depth in range(1, len(key[0]) + 1):
                self.under[key[0][:depth]] += value
                self._usual[key[0][:depth]] += in_usual[key]

    def in_packages(self) -> _Beyond:
        """The same by all lines, those of packages as well."""
        found, found_usual = Counter[Any](), Counter[Any]()
        for counts, out in ((self._counts[0], found), (self._counts[1], found_usual)):
            for key, n in counts.items():
                out[(key[3] or key[0], *key[1:])] += n
        return _Beyond(found, found_usual, self._weight)

    def branch(self, around: Path) -> Path:
        """Of a path the outermost function that trainers call beside training, with most of it there; () for none."""
        for depth in range(2, len(around) + 1):
            path = around[:depth]
            if _BESIDE.match(path[-1][2]) and self.is_of_its_own([path]):
                return path
        return ()

    def share(self, paths: Sequence[Path]) -> float:
        return sum(self.under[path] for path in paths) / self.total

    def before_shared(self, path: Path) -> Path:
        """A path up to the last line that usual steps do not run, in whichever call; all of it where they run each."""
        least = _LEAST_OF_LINE * self._n_usual
        ends = (depth for depth in range(len(path), 0, -1) if self._usual_lines[path[depth - 1]] < least)
        return path[: next(ends, len(path))]

    def is_of_its_own(self, paths: Sequence[Path]) -> bool:
        """Whether most of it is there, and clearly less of a usual step."""
        share, usual = self.share(paths), sum(self._usual[path] for path in paths) / self._n_usual
        return share >= AT_ONE_PLACE and share - usual >= _BEYOND_USUAL

    def is_of_all(self, path: Path) -> bool:
        """Whether usual steps run there as well: of several such lines a machine that hiccups picks two at random."""
        return self._usual[path] > _OF_ALL * self._n_usual

    def without_model(self) -> _Beyond:
        """What no module computes of it."""
        long, usual = (Counter({key: n for key, n in one.items() if key[2] != MODEL}) for one in self._counts)
        return _Beyond(long, usual, self._weight)

    def modelled(self, around: Sequence[Path]) -> float:
        """The share of all of it (0-1) that modules compute under these paths."""
        found = sum(
            value
            for key, value in self.of_looks.items()
            if key[2] == MODEL and any(key[0][: len(path)] == path for path in around)
        )
        return min(max(found / self.total, 0.0), 1.0)

    def deepest(self, around: Path) -> Path:
        """Of what no module computes, the longest path from `around` on that has most of it; `around` for none."""
        rest = self.without_model()
        if rest.total < LEAST_LOOKS:
            return around
        held = [path for path, value in rest.under.items() if value >= AT_ONE_PLACE * rest.total]
        return max((path for path in held if path[: len(around)] == around), key=len, default=around)

    def inside(self, around: Path) -> list[Path]:
        """The lines that the call at the end of a path runs, those with most of it."""
        found = [path for path in self.under if len(path) == len(around) + 1 and path[:-1] == around]
        found.sort(key=lambda path: -self.under[path])
        return [path for path in found[:_MOST_LINES] if self.under[path] >= _LEAST_OF_LINE * self.total]


def _looks_in(
    usual: Mapping[int, int], long: Mapping[int, int], edges: tuple[Sequence[int], Sequence[int]], looks: Sequence[Look]
) -> _Beyond | None:
    """The looks by the steps they fell into; None where these are too few."""
    in_long: Counter[Any] = Counter()
    in_usual: Counter[Any] = Counter()
    seen: set[int] = set()
    for place, look in in_steps(looks, edges):
        if place in long:
            in_long[look[1:]] += 1
            seen.add(place)
        elif place in usual:
            in_usual[look[1:]] += 1
    began, ended = edges
    first_ns, last_ns = (looks[0].at_ns, looks[-1].at_ns) if looks else (0, 0)
    n_usual = sum(1 for place in usual if began[place] >= first_ns and ended[place] <= last_ns)
    if len(seen) < min(_LEAST_LONG, len(long)) or not n_usual:
        return None
    found = _Beyond(in_long, in_usual, len(seen) / n_usual)
    return found if found.total >= LEAST_LOOKS else None


def _rare(beyond: _Beyond, *, is_in_packages: bool = False) -> dict[str, Any] | None:
    """Where the long steps spend what they have beyond the usual ones; None where that is at no place of its own."""
    beyond = beyond.in_packages() if is_in_packages else beyond
    held = [path for path, value in beyond.under.items() if value >= AT_ONE_PLACE * beyond.total]
    around: Path = beyond.before_shared(max(held, key=len, default=()))
    if is_in_packages:
        around = beyond.branch(around)
    lines, inside = [around] if around else [], [] if is_in_packages else beyond.inside(around)
    if not around or not beyond.is_of_its_own(lines):  # the call holds the usual steps as well: what else is in it?
        lines, inside = [path for path in inside if not beyond.is_of_all(path)], []
        if not lines or not beyond.is_of_its_own(lines):
            return None
    modelled, paths = beyond.modelled(lines), lines
    if is_in_packages and _MODELLED <= modelled < _MOSTLY:  # an evaluation: what does it do beside the model?
        lines = [beyond.deepest(around)]
    ways: dict[str, float] = defaultdict(float)
    for key, value in beyond.of_looks.items():
        if any(key[0][: len(path)] == path for path in lines):
            ways[key[2]] += value
    way, at_way = max(ways.items(), key=lambda one: one[1])
    return {
        "lines": [shown(path, beyond.share([path])) for path in lines],
        "inside": [shown(path, beyond.share([path])) for path in inside],
        "callers": [shown(lines[0][: depth + 1], 1.0) for depth in range(len(lines[0]) - 1)],
        "at_place": round(min(beyond.share(lines), 1.0), 4),
        "way": way if at_way >= _MOSTLY * sum(ways.values()) else "",
        "callee": callee_of(beyond.of_looks, lines),
        "paths": paths,
        "modelled": round(modelled, 4) if modelled >= _MODELLED else 0.0,
        "n_looks": round(beyond.total),
    }


def callee_of(weights: Mapping[Any, float], lines: Sequence[Path]) -> str:
    """What these lines call most, by the weights of the looks (`Look` without its time)."""
    callees: dict[str, float] = defaultdict(float)
    for key, value in weights.items():
        if any(key[0][: len(path)] == path for path in lines):
            callees[key[1]] += value
    return max(callees, key=lambda name: callees[name], default="")


def shown(path: Path, share: float) -> dict[str, Any]:
    """The line at the end of a path as plain values, with its text and its share."""
    file, line, function = path[-1]
    whole = os.path.abspath(file)  # noqa: PTH100 - a text
    return {
        "file": shown_path(whole),
        "line": line,
        "function": function,
        "text": linecache.getline(whole, line).strip()[:_MOST_CHARS],
        "share": round(min(max(share, 0.0), 1.0), 4),
    }
