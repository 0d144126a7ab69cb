"""The lines of the script's own code that a run spends its time at beside the recorded steps, by all looks at it.

Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from .long_steps import Look, period_of, shown

_LEAST: Final = 0.02
"""Of the time looked at, from which a line is told. Chosen: less is no cause."""
_MOST: Final = 12
_FEW: Final = 4  # steps from which a line comes every so many; chosen: three distances
_OF_LOADERS: Final = frozenset(("load", "wait", "start"))
_TRAINING: Final = frozenset(("_wrapped_call_impl", "_call_impl", "backward", "step", "wrapper", "decorate_context"))
"""What a line calls that trains: modules, autograd, optimizers (`wrapper` is torch's around their steps)."""
_INNER: Final = frozenset(("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<lambda>"))


def hot_lines(
    looks: Sequence[Look], waited_ns: Sequence[int], edges: tuple[Sequence[int], Sequence[int]]
) -> dict[str, Any]:
    """`lines` with their share of the looked-at time, the largest first; a look stands for the time since the last."""
    began, ended = edges
    total, spent = 0, defaultdict(int)  # type: ignore[var-annotated]
    steps: dict[Any, set[int]] = defaultdict(set)
    n_looks: dict[Any, int] = defaultdict(int)
    paths: dict[Any, Any] = {}
    thirds: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
    n_inside = bisect_right([look.at_ns for look in looks], ended[-1]) if ended else 0
    whole_ns = sum(waited_ns[:n_inside]) or 1
    for look, ns in zip(looks[:n_inside], waited_ns):  # noqa: B905 - Python 3.9
        total += ns
        path = _outside(look.own)
        if not path or look.way in _OF_LOADERS or look.callee in _TRAINING:
            continue
        key = path[-1]
        spent[key] += ns
        n_looks[key] += 1
        thirds[key][min(3 * (total - ns) // whole_ns, 2)] += ns
        steps[key].add(bisect_right(began, look.at_ns) - 1)
        paths.setdefault(key, path)
    found = sorted((key for key in spent if spent[key] >= _LEAST * total), key=lambda key: -spent[key])
    lines = [
        {
            **shown(paths[key], spent[key] / total),
            "n_looks": n_looks[key],
            "in_thirds": [round(min(3 * one / whole_ns, 1.0), 4) for one in thirds[key]],
            "around": [function for _, _, function in paths[key]],
            "every": period_of(sorted(steps[key])) if len(steps[key]) >= _FEW else 0,
        }
        for key in found[:_MOST]
    ]
    return {"lines": lines} if lines else {}


def _outside(own: Any) -> Any:
    """The path without the comprehensions that a line runs: they are that line."""
    while len(own) > 1 and own[-1][2] in _INNER:
        own = own[:-1]
    return own
