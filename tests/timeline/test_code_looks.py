"""Calls that one look alone has found have the time between two operators that the look fell into."""

from typing import Any

import numpy as np

from profkit.model.trace import Trace
from profkit.testing import Row, span, trace_of
from profkit.timeline.code.code import Code
from profkit.timeline.code.join import of_frames

US = 1000
START = 10**9
MAIN, STEP, TABLE, ENCODE = "train.py(1): main", "train.py(9): step", "train.py(20): table", "train.py(30): encode"


def row(name: str, first_ns: int, last_ns: int, *, cat: str = "cpu_op", **args: object) -> Row:
    return Row(name=name, cat=cat, start_ns=START + first_ns, end_ns=START + last_ns, args=args)


def looked_at(once: dict[int, list[str]], n_items: int = 4, since_us: int = 0) -> Trace:
    """A step of some items, each 900 us of Python, a sum and 90 us of Python, a log; looks each 2 ms, in us.

    `once` says what a look alone has found in step(), which begins at `since_us`.
    """
    last = n_items * 1000
    calls: list[tuple[str, int, int, int | None]] = [
        (MAIN, since_us * US, last * US, None),
        (STEP, since_us * US + 1, last * US - 1, 0),
    ]
    for at, names in once.items():
        for depth, name in enumerate(names):
            start = at * US + depth + 2
            parent = 1 if not depth else len(calls) - 1
            calls.append((name, start, start + 2 * (len(names) - depth) - 1, parent))
    frames = [
        row(name, first, end, cat="python_function", **{"Python id": number, "Python parent id": parent})
        for number, (name, first, end, parent) in enumerate(calls)
    ]
    ops = []
    for item in range(n_items):
        begin = item * 1000
        ops += [row("aten::sum", (begin + 900) * US, (begin + 905) * US)]
        ops += [row("aten::log", (begin + 995) * US, (begin + 1000) * US)]
    looks = [START + at * US for at in once]
    keys: dict[str, Any] = {
        "profkit_places_sampled": True,
        "profkit_user_files": ["train.py"],
        "profkit_call_lines": {"unix_ns": looks, "line": [12] * len(looks), "looked_unix_ns": looks},
    }
    rows = [span("ProfilerStep#1", START, START + last * US), *frames, *ops]
    return trace_of(rows, **keys)


def functions(found: Code, at_us: list[int]) -> list[str]:
    place = found.at(np.zeros(len(at_us), np.int32), START + np.array(at_us, np.int64) * US).place
    return [found.places[one].function for one in place.tolist()]


def test_a_look_between_two_operators_stands_for_the_time_between_them():
    found = of_frames(looked_at({1400: [TABLE]}))
    assert functions(found, [1010, 1400, 1890, 1950]) == ["table", "table", "table", "step"]


def test_a_time_without_a_look_is_told_by_one_between_operators_of_the_same_names():
    found = of_frames(looked_at({1400: [TABLE], 1950: [ENCODE]}))
    assert functions(found, [2400, 2950, 3400, 3950]) == ["table", "encode", "table", "encode"]


def test_looks_that_found_the_caller_alone_take_their_turns():
    found = of_frames(looked_at({1400: [TABLE], 2400: []}, n_items=6))
    known = functions(found, [3400, 4400, 5400])
    assert sorted(known[:2]) == ["step", "table"]
    assert functions(found, [2400]) == ["step"]


def test_operators_have_no_place_from_looks_beside_them():
    found = of_frames(looked_at({1400: [TABLE]}))
    assert {found.places[one].function for one in found.place_of_op.tolist()} == {"step"}


def test_two_levels_of_one_look_are_both_kept_with_the_inner_one_first():
    found = of_frames(looked_at({1400: [ENCODE, TABLE]}))
    assert functions(found, [1400, 2400]) == ["table", "table"]


def test_what_a_look_found_lies_inside_the_calls_that_begin_with_it():
    """Else it begins before all of them, and what was running when the recording began is not known as the loop."""
    found = of_frames(looked_at({1400: [TABLE]}, since_us=1400))
    assert functions(found, [1410, 1890, 1950]) == ["table", "table", "step"]


def test_stacks_that_were_not_looked_at_stay_as_they_are():
    trace = looked_at({1400: [TABLE]})
    trace.meta.metadata.pop("profkit_places_sampled")
    assert functions(of_frames(trace), [1100]) == ["step"]


def test_a_comprehension_belongs_to_the_line_around_it():
    calls = [(MAIN, 0, 9000 * US, None), (STEP, 1, 8999 * US, 0), ("train.py(14): <listcomp>", 2000 * US, 8000 * US, 1)]
    frames = [
        row(name, first, end, cat="python_function", **{"Python id": number, "Python parent id": parent})
        for number, (name, first, end, parent) in enumerate(calls)
    ]
    lines = {"unix_ns": [START + 2000 * US], "line": [14]}
    keys: dict[str, Any] = {
        "profkit_user_files": ["train.py"],
        "profkit_call_lines": lines,
        "profkit_source_lines": {"train.py:14": "out = [f(b) for b in batch]"},
    }
    found = of_frames(trace_of([*frames, row("aten::mm", 3000 * US, 4000 * US)], **keys))
    place = found.places[int(found.place_of_op[0])]
    assert place.words == "train.py:14 in step(): out = [f(b) for b in batch]"
