"""The loops of a run, told apart by their optimizers and their pace; no torch."""

import gc

import numpy as np
import pytest

from profkit.capture.inside.loops import Keys, Loops
from profkit.capture.lines import other_loop, told
from profkit.capture.options import steps_of_one

MS = 1_000_000
TEACHER, STUDENT = 1, 2


class Run:
    """Loops that are told of steps one after another."""

    def __init__(self) -> None:
        self.loops = Loops(lambda: self.waited_ns)
        self.now_ns, self.waited_ns = 1, 0

    def play(
        self,
        keys: tuple[int, ...],
        *,
        ms: float,
        times: int,
        leader: int = 0,
        is_timed: bool = True,
        waited_ms: float = 0,
    ) -> "Run":
        for key in keys * times:
            self.now_ns += round(ms * MS)
            self.waited_ns += round(waited_ms * MS)
            self.loops.stepped(key, f"SGD{key}", self.now_ns, is_timed=is_timed, leads=key == leader)
        return self

    @property
    def spent_ms(self) -> list[float]:
        return [round(one["spent_ns"] / MS) for one in self.loops.told()]


def test_a_loop_that_takes_more_time_than_the_recorded_one_is_known():
    run = Run().play((TEACHER,), ms=1, times=14)
    run.loops.record(MS)
    assert not run.play((TEACHER,), ms=1, times=46).loops.is_longer()
    assert not run.play((STUDENT,), ms=20, times=7).loops.is_longer()
    assert run.play((STUDENT,), ms=20, times=2).loops.is_longer()
    run.loops.record(20 * MS)
    assert not run.play((STUDENT,), ms=20, times=9).loops.is_longer()


def test_optimizers_that_take_turns_are_one_loop():
    run = Run().play((1, 2), ms=5, times=20)
    run.loops.record(10 * MS)
    assert not run.play((1, 2), ms=5, times=400).loops.is_longer()
    assert not run.loops.has_left(1)


def test_an_optimizer_for_each_parameter_is_one_loop():
    run = Run().play(tuple(range(100)), ms=0.1, times=14)
    run.loops.record(10 * MS)
    assert not run.play(tuple(range(100)), ms=0.1, times=50).loops.is_longer()


def test_loops_that_alternate_are_recorded_anew_at_most_twice():
    run = Run()
    n_again = 0
    run.play((1,), ms=1, times=20).loops.record(MS)
    for _ in range(200):
        for key in (1, 2):
            for _ in range(80):
                run.play((key,), ms=key, times=1)
                if run.loops.is_longer():
                    run.loops.n_again += 1
                    n_again += 1
                    run.loops.record(key * MS)
    assert n_again == 1, "the second loop takes twice as long as the first"


def test_the_same_optimizer_at_another_pace_is_another_loop():
    run = Run().play((1,), ms=1, times=20, leader=1)
    run.loops.record(MS)
    run.play((1,), ms=1, times=30, leader=1).play((1,), ms=20, times=17, leader=1)
    assert run.loops.is_longer()
    run.loops.record(20 * MS)
    assert not run.play((1,), ms=20, times=100, leader=1).loops.is_longer()


@pytest.mark.parametrize(("before", "after"), [((65, 40), (25, 2)), ((25, 2), (65, 40))])
def test_steps_that_other_programs_slow_down_are_no_other_loop(before, after):
    run = Run().play((1,), ms=before[0], waited_ms=before[1], times=20, leader=1)
    run.loops.record(before[0] * MS)
    run.play((1,), ms=after[0], waited_ms=after[1], times=300, leader=1)
    assert len(run.loops.told()) == 1
    assert not run.loops.is_longer()


def test_a_longer_loop_is_known_on_a_busy_machine():
    run = Run().play((1,), ms=20, waited_ms=10, times=20, leader=1)
    run.loops.record(20 * MS)
    assert run.play((1,), ms=120, waited_ms=60, times=17, leader=1).loops.is_longer()


def test_steps_that_grow_to_another_pace_are_one_loop():
    run = Run().play((1,), ms=1, times=20, leader=1)
    run.loops.record(MS)
    run.loops.keep()
    run.play((1,), ms=1, times=30, leader=1).play((1,), ms=20, times=17, leader=1)
    assert run.loops.is_longer()
    assert run.loops.is_other_pace
    run.loops.join_paces()
    assert not run.play((1,), ms=60, times=40, leader=1).loops.is_longer()
    assert [one["n_calls"] for one in run.loops.told()] == [107]


def test_a_rollout_before_every_sixteenth_step_is_no_loop_of_its_own():
    run = Run().play((1,), ms=2, times=20, leader=1)
    run.loops.record(2 * MS)
    for _ in range(50):
        run.play((1,), ms=120, times=1, leader=1).play((1,), ms=2, times=15, leader=1)
    assert not run.loops.is_longer()
    assert len(run.loops.told()) == 1


def test_time_of_profkit_and_between_loops_is_no_loops_time():
    run = Run().play((1,), ms=1, times=20)
    run.loops.record(MS)
    run.loops.keep()
    run.now_ns += 500 * MS
    run.loops.skip(500 * MS)
    run.play((1,), ms=1, times=20)
    run.now_ns += 9_000 * MS  # the next data set is read
    run.play((2,), ms=1, times=60)
    assert run.spent_ms == [40, 60]


def test_no_loop_takes_less_than_no_time_where_profkit_counts_more_of_its_own_than_passed():
    run = Run().play((1,), ms=1, times=20)
    run.loops.record(MS)
    run.loops.skip(500 * MS)
    run.play((1,), ms=1, times=20)
    assert run.spent_ms[0] >= 19


def test_the_recorded_loop_is_left_once_its_optimizer_is_out_of_reach():
    run = Run().play((TEACHER,), ms=1, times=20)
    run.loops.record(MS)
    assert not run.play((STUDENT,), ms=20, times=17).loops.has_left(TEACHER)
    assert run.play((STUDENT,), ms=20, times=1).loops.has_left(TEACHER)


def test_an_address_that_comes_again_is_another_optimizer():
    class Optimizer:
        pass

    keys = Keys()
    first = Optimizer()
    assert (keys.of(first), keys.of(first)) == (1, 1)
    del first
    gc.collect()
    assert keys.of(Optimizer()) == 2


class Adam:
    """As one of torch's: over tensors, of which shapes are read."""

    def __init__(self, *shapes: tuple[int, ...]) -> None:
        self.param_groups = [{"params": [np.empty(shape) for shape in shapes]}]


def test_an_optimizer_that_is_made_anew_for_each_client_goes_on_with_its_number():
    keys = Keys()
    server, client = Adam((8, 8)), Adam((4, 4), (4,))
    assert (keys.of(server), keys.of(client)) == (1, 2)
    for _ in range(3):
        client = Adam((4, 4), (4,))
        assert keys.of(client) == 2
    twin = Adam((4, 4), (4,))  # beside one that lives
    assert (keys.of(twin), keys.of(client), keys.of(server)) == (3, 2, 1)
    del twin
    assert keys.of(Adam((4, 4), (8,))) == 4  # over other tensors


def _loops(*, mine_ms: float, other_ms: float, n_calls: int = 100) -> list[dict[str, object]]:
    both = [("SGD", 1, mine_ms, True), ("Adam", 2, other_ms, False)]
    return [
        {
            "optimizers": [name],
            "first_optimizer": number,
            "n_calls": n_calls,
            "spent_ns": round(ms * MS),
            "is_other_pace": False,
            "is_recorded": is_recorded,
        }
        for name, number, ms, is_recorded in both
    ]


@pytest.mark.parametrize(
    ("other_ms", "n_calls", "options"),
    [
        (50, 100, ""),
        (500, 100, "--optimizer 2"),
        (500, 17, "--optimizer 2 --unprofiled-steps 1 --warmup-steps 1 --steps 2"),
    ],
)
def test_the_longer_loop_and_how_to_record_it_are_said(other_ms, n_calls, options, tmp_path):
    loops = _loops(mine_ms=49, other_ms=other_ms, n_calls=n_calls)
    assert other_loop(loops).get("options", "") == options
    steps = {"n": 5, "mean_ns": MS}
    facts = {"trace": "x", "n_steps": 5, "first_step": 15, "step_source": "s", "stop_ns": 0, "export_ns": 0}
    line = told([{**facts, "baseline": steps, "profiled": steps, "after": steps, "loops": loops}], tmp_path)[0]
    assert "the script has 2 loops: these steps are of SGD (optimizer 1)" in line
    assert (f"profkit run {options} records it" in line) == bool(options)


@pytest.mark.parametrize(
    ("step_ms", "n_left", "n_steps"),
    [(300, 1000, 5), (100, 1000, 10), (20, 1000, 20), (5, 1000, 50), (5, 20, 20), (5, 3, 5), (1, 1000, 50)],
)
def test_short_steps_get_a_window_that_lasts(step_ms, n_left, n_steps):
    assert steps_of_one(step_ms * MS, 5, n_left) == n_steps
