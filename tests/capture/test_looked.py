"""A look at a stack finds a line at which Python lets others go on: told is what may have run since the one before."""

import dis
import os
import sys
import time
from functools import partial

import pytest

pytest.importorskip("torch")

from profkit.capture.inside.places.looked import Lines, Moment
from profkit.capture.inside.places.worker_lines import LineLog, LineWatch
from tests.capture.running import line_of as line_ending

pytestmark = pytest.mark.torch
WORDS = [str(number) for number in range(2000)]
ASKED = WORDS[-300:]


def in_a_loop():
    found, ids = 0, []
    for word in ASKED:  # loop
        known = word in WORDS
        found += known
        ids.append(len(word))
        word = None  # noqa: PLW2901 - seen
    return found


def is_known(word):
    return word in WORDS


def by_a_function():
    found = 0
    for word in ASKED:  # caller
        known = is_known(word)
        found += known
    return found


def of_a_range():
    total = 0
    for value in range(150_000):
        total += value  # body
    return total


def before_a_call():
    text = tuple(range(100_000))
    for _ in range(10):
        both = text * 20
        time.time()  # call
    return len(both)


def sleeps():
    many = sorted(ASKED)
    time.sleep(0.02)  # sleeps
    return many


line_of = partial(line_ending, path=__file__)


def seen(function, folder, monkeypatch):
    """Share of the time of `function` by line."""
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    log = LineLog("f" * 32)
    log.open()
    watch = LineWatch("f" * 32)
    until = time.monotonic() + 0.4
    while time.monotonic() < until:
        assert watch.is_wanted(os.getpid())
        watch.fetched(lambda: [function() for _ in range(5)])
    log.shut()
    told = log.told()
    log.delete()
    mine = [one for one in told["lines"] if one["function"] == function.__name__]
    whole = sum(one["ns"] for one in mine)
    return {one["line"]: one["ns"] / whole for one in mine}


@pytest.mark.parametrize(
    ("function", "told"),
    [(in_a_loop, "loop"), (by_a_function, "caller"), (of_a_range, "body"), (sleeps, "sleeps")],
)
def test_the_line_is_told_that_may_have_taken_the_time(function, told, tmp_path, monkeypatch):
    share = seen(function, tmp_path, monkeypatch)
    assert share.get(line_of(told), 0) > 0.8, share


def test_what_runs_before_a_call_is_not_the_call_s(tmp_path, monkeypatch):
    share = seen(before_a_call, tmp_path, monkeypatch)
    assert share.get(line_of("call"), 0) < 0.2, share


def at_the_end_of(function) -> Moment:
    """At the jump back of its loop."""
    jump = next(one for one in dis.get_instructions(function) if one.opname in {"JUMP_BACKWARD", "JUMP_ABSOLUTE"})
    code = function.__code__
    line = max(line for at, line in dis.findlinestarts(code) if line and at <= jump.offset)
    return Moment(code, jump.offset, line, function.__globals__)


def test_a_thread_that_gets_no_core_stays_where_it_was_seen():
    """A look that has not had to wait finds it at the end of a loop all the same."""
    lines = Lines(lambda _: True)
    for is_prompt in (False, True, True):
        assert lines.line(at_the_end_of(in_a_loop), is_prompt=is_prompt) == line_of("loop")


def test_a_frame_that_has_begun_is_not_at_its_start():
    frame = sys._getframe()
    moment = Moment(frame.f_code, frame.f_lasti, frame.f_lineno, frame.f_globals)
    assert not Lines(lambda _: True).is_at_start(moment)
