"""Steps that take longer and longer, and the line of the script's own code to whose time that is due.

Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any, Final

from .long_steps import AT_ONE_PLACE, LEAST_LOOKS, MODEL, Look, Path, callee_of, in_steps, middle, shown

_LEAST_STEPS: Final = 24
"""Chosen: six in each quarter, whose lower quartile then holds against one odd one."""
_STEADY: Final = 0.4
"""Of what the step should grow by from a quarter of the run to the next, what it does at least (as `grown` has it)."""
_STEADY_OF_LARGE: Final = 0.2
_LARGE: Final = 0.25
"""...and where it grows by a quarter or more: on a shared machine a quarter of the run is off by some percent of the
step. A jump in mid-run has two quarters that grow by nothing. Chosen."""
_LEAST_GROWN: Final = 0.05
"""Of the step, from which its growth is no weather. Chosen: thirds of a steady run differ by 1 to 3 %."""
_SIGMAS: Final = 2.5
"""By how many standard deviations of its counts a line's looks grow. Chosen: of some ten lines one does so by chance in
one of 15 runs, and then has to have two thirds of all growth as well."""
_OTHERS_GROW: Final = 1 / 3
"""Of the rate at which a line grows, the most at which all others do: where work becomes more all lines grow alike."""

_OTHERS_STAY: Final = 0.5
"""Of the looks at all others, what is left at least: where another loop begins, its lines come and the first one's go.
Chosen."""
_BACKWARD: Final = "backward"


def cpu_of(cpu: Mapping[int, int]) -> dict[str, int]:
    """`cpu_first_ns` and `cpu_last_ns`: medians of the first and the last third, of a thread's CPU time in steps."""
    in_order = [cpu[place] for place in sorted(cpu)]
    third = len(in_order) // 3
    return {"cpu_first_ns": middle(in_order[:third]), "cpu_last_ns": middle(in_order[-third:])} if third else {}


def slower_of(
    usual: Mapping[int, int], edges: tuple[Sequence[int], Sequence[int]], looks: Sequence[Look]
) -> dict[str, Any]:
    """`slower` of steps (place in the run: ns) that grow steadily; {} where they do not.

    `pace_ns`: what a step takes where the run begins; `beyond_ns`: what all of them take more; `line`, `callee`,
    `at_place` where at least two thirds of the growth lie at one line; `has_backward` where these are with its
    backward pass.
    """
    places = sorted(usual)
    n = len(places)
    if n < _LEAST_STEPS:
        return {}
    quarters = [places[n * part // 4 : n * (part + 1) // 4] for part in range(4)]
    at = [sum(quarter) / len(quarter) for quarter in quarters]
    # lower quartiles: other programs on the machine only make steps longer
    took = [sorted(usual[place] for place in quarter)[len(quarter) // 4] for quarter in quarters]
    rate = (took[3] - took[0]) / (at[3] - at[0])
    rates = [(took[part + 1] - took[part]) / (at[part + 1] - at[part]) for part in range(3)]
    grown = (took[3] - took[0]) / took[0]
    steady = _STEADY_OF_LARGE if grown >= _LARGE else _STEADY
    if grown < _LEAST_GROWN or min(rates) < steady * rate:
        return {}
    early = min((took[2] - took[0]) / (at[2] - at[0]) * at[0], took[0])  # before the first; growth may itself grow
    beyond_ns = sum(len(quarter) * (one - took[0] + early) for quarter, one in zip(quarters, took))  # noqa: B905
    pace = (sum(usual.values()) - beyond_ns) / n
    if pace <= 0:
        return {}
    found = {"pace_ns": round(pace), "beyond_ns": round(beyond_ns), "n": n}
    return {"slower": {**found, **_place(usual, edges, looks)}}


def _place(
    usual: Mapping[int, int], edges: tuple[Sequence[int], Sequence[int]], looks: Sequence[Look]
) -> dict[str, Any]:
    """The line that grows, by looks at the first and the last third of the steps that were looked at; {} of none."""
    of_step: dict[int, list[Look]] = defaultdict(list)
    for place, look in in_steps(looks, edges):
        if place in usual:
            of_step[place].append(look)
    if not of_step:
        return {}
    seen = [place for place in sorted(usual) if min(of_step) <= place <= max(of_step)]
    third = len(seen) // 3
    if not third:
        return {}
    first, last = seen[:third], seen[-third:]
    callers: dict[Any, Any] = {}
    before, after = (
        Counter((_called_once(look.own, callers), *look[2:]) for place in part for look in of_step.get(place, ()))
        for part in (first, last)
    )
    n_before, n_after = sum(before.values()), sum(after.values())
    kept = sum(usual[place] for place in first) / sum(usual[place] for place in last)
    total = n_after * (1 - kept)  # looks that growth has: the clock knows how many
    if not n_before or total < LEAST_LOOKS:
        return {}
    weight = n_after * kept / n_before
    alone = _line_of(before, after, weight)
    if alone is not None:
        line, grown, has_backward = *alone, False
    else:
        found = _with_backward(before, after, weight)
        if found is None or found[1] < AT_ONE_PLACE * total:
            return {}
        line, grown, has_backward = *found, True
    share = min(grown / total, 1.0)
    weights = {key: after[key] - weight * before[key] for key in {*before, *after}}
    return {
        "line": shown(line, share),
        "callee": callee_of(weights, [line]),
        "at_place": round(share, 4),
        "n_looks": round(total),
        **({"has_backward": True} if has_backward else {}),
    }


def _called_once(own: Path, callers: dict[Any, Any]) -> Path:
    """A path in which a function calls another one at one line: a second loop, as after a warm-up, is no other work."""
    names = [(file, function) for file, _, function in own]
    ways = (tuple(names[: depth + 2]) for depth in range(len(own) - 1))
    return (*(callers.setdefault(way, call) for way, call in zip(ways, own)), *own[-1:])  # noqa: B905 - Python 3.9


def _line_of(before: Counter[Any], after: Counter[Any], weight: float) -> tuple[Path, float] | None:
    """The path to the line that grows, and by how many looks; None of none."""
    n_after = sum(after.values())
    total = n_after - weight * sum(before.values())
    under: dict[Path, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for key in {*before, *after}:
        for depth in range(1, len(key[0]) + 1):
            two = under[key[0][:depth]]
            two[0] += weight * before[key]
            two[1] += after[key]
    growing = [path for path, two in under.items() if _grows_alone(two, total, n_after, weight)]
    line: Path = max(growing, key=len, default=())
    return (line, under[line][1] - under[line][0]) if line else None


def _with_backward(before: Counter[Any], after: Counter[Any], weight: float) -> tuple[Path, float] | None:
    """The same of a loss, say, which is computed outside of modules and whose backward pass grows with it.

    Of what modules compute it may be inputs that become longer: there all grow.
    """
    forward, later = (Counter({key: n for key, n in one.items() if key[1] != _BACKWARD}) for one in (before, after))
    found = _line_of(forward, later, weight)
    if found is None:
        return None
    line, grown = found
    modelled = sum(n for key, n in later.items() if key[0][: len(line)] == line and key[2] == MODEL)
    if 2 * modelled > sum(n for key, n in later.items() if key[0][: len(line)] == line):
        return None
    backward = [after[key] - weight * before[key] for key in {*before, *after} if key[1] == _BACKWARD]
    return line, grown + max(sum(backward), 0.0)


def _grows_alone(two: Sequence[float], total: float, n_after: int, weight: float) -> bool:
    """Whether a path's looks have most of the growth, beyond chance, and all others grow at a far lower rate."""
    before, after = two
    grown = after - before
    if grown < AT_ONE_PLACE * total or grown < _SIGMAS * sqrt(after + weight * before):
        return False
    others_before, others_after = n_after - total - before, n_after - after
    if others_before < LEAST_LOOKS:  # it is all of the step: nothing to compare it with
        return False
    if others_after < _OTHERS_STAY * others_before:
        return False
    return (others_after - others_before) / others_before < _OTHERS_GROW * grown / max(before, 1.0)
