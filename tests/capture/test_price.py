"""What recorded steps take to be written: told by the memory that the profiler's events hold, and kept in bounds."""

import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
import torch

from profkit.capture.inside.clock import Mark
from profkit.capture.inside.controller import Controller
from profkit.capture.inside.record import price
from profkit.capture.inside.record.price import Price, is_between_lines
from profkit.capture.options import Options, Window
from tests.capture.running import SCRIPTS, capture, manifest, names, trace

pytestmark = pytest.mark.torch
EVENT = price._EVENT_BYTES


class Memory:
    """A process whose memory grows by so many bytes, said step by step."""

    def __init__(self) -> None:
        self.held = 10**9

    def __call__(self) -> int:
        return self.held

    def grow(self, n_bytes: int) -> None:
        self.held += n_bytes


def recorded(*steps: int, own: int = 0, swing: int = 0, longer_ns: int = 10**9) -> Price:
    """A price after steps of so many events each, of a script that keeps `own` bytes of each step itself.

    Steps are longer than usual by so much in all, and what the script holds swings by so many bytes from step to step.
    """
    memory, now = Memory(), iter((0, *[longer_ns + len(steps) * 10**6] * 10))
    one = Price(memory, lambda: next(now))
    for place in range(5):
        memory.grow(own + (swing if place % 2 else -swing))
        one.boundary()
    one.begin(10**6)
    for place, n_events in enumerate(steps):
        memory.grow(own + n_events * EVENT)
        if place + 1 < len(steps):
            one.is_spent(place + 1, one.so_far_ns(place + 1))
    return one


def spent(*steps: int, **more: int) -> bool:
    one = recorded(*steps, **more)
    return one.is_spent(len(steps), one.so_far_ns(len(steps)))


@pytest.mark.parametrize(
    ("steps", "is_spent"),
    [
        ((1_000,) * 5, False),
        ((120_000,), False),  # the first alone tells little of the next
        ((60_000, 60_000), True),  # one more is too dear
        ((40_000, 40_000), True),
        ((20_000, 20_000, 20_000), False),
        ((400_000,), True),
        ((1_000, 120_000, 1_000), False),  # that is memory of the script's own, or over
    ],
)
def test_a_recording_ends_before_a_step_that_is_too_dear(steps, is_spent):
    assert spent(*steps) is is_spent


def test_what_the_script_keeps_of_each_step_is_no_event():
    assert not spent(1_000, 1_000, own=50_000_000)
    assert recorded(1_000, 1_000, own=50_000_000).so_far_ns(2) == recorded(1_000, 1_000).so_far_ns(2)


def test_memory_that_swings_tells_of_fewer_events():
    assert spent(60_000, 60_000)
    assert not spent(60_000, 60_000, swing=80_000 * EVENT)


def test_steps_no_longer_than_usual_hold_no_such_numbers_of_events():
    assert not spent(200_000, 200_000, longer_ns=0)
    assert spent(200_000, 200_000, longer_ns=200_000_000)


def test_where_nobody_tells_of_memory_nothing_is_cut():
    assert Price(lambda: 0).so_far_ns(5) == 0


@pytest.mark.skipif(price.held_bytes() == 0, reason="this C library keeps no account")
def test_the_account_of_memory_grows_by_what_the_profiler_keeps():
    activities, record = [torch.profiler.ProfilerActivity.CPU], torch.profiler.ProfilerAction.RECORD
    small = torch.ones(4)
    with torch.profiler.profile(activities=activities, schedule=lambda _: record):
        one = Price()
        one.begin(0)
        for _ in range(20_000):
            torch.neg(small)
        n_events = one.so_far_ns(1) / price._EVENT_NS
    assert 0.8 * 20_000 < n_events < 1.25 * 20_000


@pytest.mark.parametrize(
    ("step_ms", "n_events", "has_gradients", "is_cut"),
    [(500, 500_000, False, True), (500, 500_000, True, False), (30, 500_000, False, False), (500, 9_000, False, False)],
)
def test_a_long_step_of_many_operators_is_left(monkeypatch, step_ms, n_events, has_gradients, is_cut):
    one = Controller(Options(""))
    one.stage, one._price = "active", recorded(1_000, n_events, longer_ns=step_ms * 10**6)
    one._seen.window = Window(settling=3, baseline=10, warmup=1, steps=20, after=6, least=5)
    one._seen.times["profiled"] = [Mark(0, 0), Mark(10**7, 10**7)]
    cut: list[str] = []
    monkeypatch.setattr(one, "_cut", cut.append)
    with torch.set_grad_enabled(has_gradients):
        one._leave_step()
    assert cut == [price.TOO_MANY] * is_cut
    assert one._seen.facts.get("n_wanted") == (20 if is_cut else None)


def test_a_recording_is_left_in_code_that_is_not_torchs_nor_profkits():
    assert is_between_lines(sys._getframe())
    for file in (torch.__file__, price.__file__, "<frozen importlib._bootstrap>"):
        assert not is_between_lines(SimpleNamespace(f_code=SimpleNamespace(co_filename=file)))


@pytest.mark.skipif(price.held_bytes() == 0, reason="this C library keeps no account")
@pytest.mark.parametrize(("options", "n_steps"), [((), 7), (("--steps", "10"), 10)])
def test_an_evaluation_of_many_operators_ends_the_recording(tmp_path, options, n_steps):
    script = str(SCRIPTS / "evaluates.py")
    done = capture(tmp_path / "out", sys.executable, script, options=options)
    assert done.code == 0, done.err
    told = manifest(tmp_path / "out")["ranks"][0]
    assert (told["n_steps"], told["is_cut"]) == (n_steps, not options)
    assert ("to write these steps may hold the script up for" in done.err) is bool(options)
    if not options:
        assert "7 steps (of 20: to write more may take too long; --steps 20 records them all)" in done.err
        assert trace(tmp_path / "out")["profkit_steps_wanted"] == 20
    assert len(names(trace(tmp_path / "out"))) == n_steps + (not options)
