"""What the facts of a process hold: a rank writes its own, others read them for the sake of all.

Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import math
from typing import Any, Final

_MOST: Final = 2**62
_ROW: Final = (int, int, int, int)


def wrong_in(facts: dict[str, Any]) -> list[str]:
    """The keys whose values no capture writes. Keys may be missing."""
    return [key for key, kind in _KINDS.items() if key in facts and not _fits(facts[key], kind)]


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type, `[kind]` a list of such, `(kind, ...)` a row, `{name: kind}` with all of these."""
    if isinstance(kind, dict):
        return isinstance(value, dict) and all(name in value and _fits(value[name], one) for name, one in kind.items())
    if isinstance(kind, list):
        return isinstance(value, list) and all(_fits(one, kind[0]) for one in value)
    if isinstance(kind, tuple):
        return isinstance(value, list) and len(value) == len(kind) and all(map(_fits, value, kind))
    if not isinstance(kind, type):
        return bool(kind(value))
    return type(value) is kind and (not isinstance(value, int) or abs(value) < _MOST)


def _are_steps(value: Any) -> bool:
    known = {"mean_ns": int, "median_ns": int, "steps_ns": [int]}
    return _fits(value, {"n": int}) and (value["n"] == 0 or _fits(value, known))


def _are_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(type(one) in (int, float) and math.isfinite(one) for one in value.values())


def _is_second(value: Any) -> bool:
    """What a second window recorded, or why nothing."""
    numbers = ("n_steps", "stalled_ns", "first_step")
    return _fits(value, {"steps": _are_steps}) and all(_fits(value.get(name, 0), int) for name in numbers)


def _is_code(value: Any) -> bool:
    """What a recording with stacks says of the script's code, if it says anything."""
    known = {"modules": dict, "user_files": [str], "package_files": [str], "calls": dict, "texts": dict}
    call = (str, int, int, int, lambda parent: parent is None or _fits(parent, int), int)
    return value == {} or (_fits(value, known) and _fits(value.get("sampled", []), [call]))


_LOOP: Final = {"optimizers": [str], "first_optimizer": int, "n_calls": int, "spent_ns": int, "is_recorded": bool}
_KINDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("label", "process", "reason", "step_source", "why_cut", "why_steps"), str),
    **dict.fromkeys(("rank", "pid", "first_step", "n_steps", "stop_ns", "export_ns", "stalled_ns", "n_seen"), int),
    **dict.fromkeys(("baseline", "profiled", "after"), _are_steps),
    "fetches_per_step": [int],
    "odd_steps": [int],
    "pauses": [_ROW],
    "handed": [_ROW],
    "threads": [{"thread": int}],
    "thread_lines": [{"thread": int}],
    "fetches": [(*_ROW, int)],
    "recorded_unix_ns": (int, int),
    "counters": [(int, _are_counts)],
    "device": dict,
    "loops": [_LOOP],
    "places": _is_second,
    **dict.fromkeys(("found", "places_found"), _is_code),
}
