"""The lines of the script's own code that a run spends its time at beside the recorded steps, by all looks at it.

Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from .long_steps import Look, Path, period_of, shown

_LEAST: Final = 0.02
"""Of the time looked at, from which a line is told. Chosen: less is no cause."""
_MOST: Final = 12  # chosen
_FEW: Final = 4  # steps from which a line comes every so many; chosen: three distances
_MOST_SKIPPED: Final = 1.4
"""Times the steps that a line is seen in, which the looks at it may stand for. Chosen: where looks are 1.5 steps apart
or more, a line of each step is seen in every second one."""
_OF_LOADERS: Final = frozenset(("load", "wait", "start"))
_TRAINING: Final = frozenset(("_wrapped_call_impl", "_call_impl", "backward", "step", "wrapper", "decorate_context"))
"""What a line calls that trains: modules, autograd, optimizers (`wrapper` is torch's around their steps)."""
_INNER: Final = frozenset(("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<lambda>"))


class _Seen:
    """What looks find at one line: the first path to it, how many they are, ns by thirds and by way, the steps."""

    def __init__(self, path: Path) -> None:
        self.path, self.n, self.thirds = path, 0, [0, 0, 0]
        self.steps: set[int] = set()
        self.ways: Counter[str] = Counter()

    def every(self, lengths_ns: Sequence[int]) -> int:
        """How many steps apart the line comes; 0 where that is not regular, or where looks skip steps that have it."""
        in_steps_ns = sum(lengths_ns[place] for place in self.steps if place < len(lengths_ns))
        is_sure = len(self.steps) >= _FEW and sum(self.thirds) <= _MOST_SKIPPED * in_steps_ns
        return period_of(sorted(self.steps)) if is_sure else 0


def hot_lines(
    looks: Sequence[Look], waited_ns: Sequence[int], edges: tuple[Sequence[int], Sequence[int]]
) -> dict[str, Any]:
    """`lines` with their share of the looked-at time, the largest first; a look stands for the time since the last."""
    began, ended = edges
    n_inside = bisect_right([look.at_ns for look in looks], ended[-1]) if ended else 0
    places = [bisect_right(began, look.at_ns) - 1 for look in looks[:n_inside]]
    whole_ns, before_ns = sum(waited_ns[:n_inside]) or 1, 0
    lines: dict[Any, _Seen] = {}
    for look, ns, place in zip(looks, waited_ns, places):  # noqa: B905 - Python 3.9
        path = _outside(look.own)
        if path and look.way not in _OF_LOADERS and look.callee not in _TRAINING:
            seen = lines.setdefault(path[-1], _Seen(path))
            seen.n += 1
            seen.steps.add(place)
            seen.ways[look.way] += ns
            seen.thirds[min(3 * before_ns // whole_ns, 2)] += ns
        before_ns += ns
    lengths_ns = [end - begin for begin, end in zip(began, ended)]  # noqa: B905
    most = sorted(lines.values(), key=lambda seen: -sum(seen.thirds))[:_MOST]
    told = [
        {
            **shown(seen.path, sum(seen.thirds) / whole_ns),
            "n_looks": seen.n,
            "in_thirds": [round(min(3 * one / whole_ns, 1.0), 4) for one in seen.thirds],
            "around": [function for _, _, function in seen.path],
            "every": seen.every(lengths_ns),
            "way": seen.ways.most_common(1)[0][0],
        }
        for seen in most
        if sum(seen.thirds) >= _LEAST * whole_ns
    ]
    return {"lines": told} if told else {}


def _outside(own: Path) -> Path:
    """The path without the comprehensions that a line runs: they are that line."""
    while len(own) > 1 and own[-1][2] in _INNER:
        own = own[:-1]
    return own
