"""Where a step makes too many calls to record each, its stack is looked at."""

import sys
import time

import pytest

pytest.importorskip("torch")

from profkit.capture.inside.places.sampler import Sampler, _Call

pytestmark = pytest.mark.torch
MS = 1_000_000


def outer():
    return inner()  # calls


def inner():
    end = time.perf_counter() + 0.3
    while time.perf_counter() < end:
        sum(range(1000))


def test_what_runs_from_look_to_look_is_a_call_with_the_line_that_made_it():
    sampler = Sampler()
    sampler.start()
    outer()
    sampler.stop()
    found = sampler.found()
    named = {
        name.rpartition(": ")[2]: (start, end, number, parent)
        for name, start, end, number, parent, _ in found["sampled"]
    }
    start, end, number, parent = named["inner"]
    assert parent == named["outer"][2] == named["outer"][2] != number
    assert 0.15 < (end - start) / 1e9 <= 0.4
    assert named["outer"][0] < start < end < named["outer"][1]
    lines = dict(zip(found["calls"]["unix_ns"], found["calls"]["line"], strict=True))
    assert lines[start] == outer.__code__.co_firstlineno + 1
    assert "return inner()  # calls" in found["texts"].values()
    assert any(file.endswith("test_sampler.py") for file in found["user_files"])


def code_named(name):
    return compile("0", "train.py", "exec").replace(co_name=name)


def test_between_looks_that_differ_only_what_both_find_runs():
    main, log, save = (code_named(name) for name in ("main", "log", "save"))
    stacks = [[(1, main, 0), (2, log, 7)], [(1, main, 0), (2, log, 7)], [(1, main, 0), (3, save, 8)], [(1, main, 0)]]
    sampler = Sampler()
    sampler._looks = [(at * MS, tuple(_Call(*call) for call in stack)) for at, stack in enumerate(stacks)]
    found = sampler.found()
    assert [(name[-4:], start, end, parent) for name, start, end, _, parent, _ in found["sampled"]] == [
        ("main", 0, 3 * MS, None),
        (" log", 1, MS - 1, 0),
        ("save", 2 * MS + 1, 2 * MS + 3, 0),  # of one look: whoever reads it knows between which operators it lies
    ]
    assert found["calls"]["unix_ns"] == [1, 2 * MS + 1]
    assert found["calls"]["line"] == [7, 8]
    assert found["calls"]["looked_unix_ns"] == [0, MS, 2 * MS, 3 * MS]


def test_looking_leaves_the_switch_interval_as_it_was():
    usual = sys.getswitchinterval()
    sampler = Sampler()
    sampler.start()
    assert sys.getswitchinterval() < usual
    sampler.stop()
    assert sys.getswitchinterval() == usual


def test_a_sampler_that_never_began_ends():
    sampler = Sampler()
    sampler.stop()
    assert sampler.found()["sampled"] == []
    assert sys.getprofile() is None
