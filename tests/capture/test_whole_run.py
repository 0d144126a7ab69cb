"""The run that goes on after the window: rare steps and growing memory are seen, and nothing is left in torch."""

import gc
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.capture.running import SCRIPTS, capture, trace

pytest.importorskip("torch")

from torch import nn

from profkit.capture.inside import clock, whole_run
from profkit.capture.inside.long_steps import Look
from profkit.capture.inside.places.looked import collect_after_fork, frames_now, nothing_collected
from profkit.capture.inside.whole_run import WholeRun

pytestmark = pytest.mark.torch
RARE = str(SCRIPTS / "rare.py")


def test_a_save_every_eight_steps_is_seen_after_the_window(tmp_path):
    done = capture(tmp_path / "out", sys.executable, RARE, "saves")
    assert (done.code, done.out) == (0, "")
    run = trace(tmp_path / "out")["profkit_run"]
    assert run["n"] > 50, "recorded steps do not count"
    rare = run["rare"]
    assert rare["every"] == pytest.approx(8, rel=0.3)
    named = (*rare["lines"], *rare["callers"])  # the loop inside, or the call, as looks fall
    assert any("keep_for_later" in one["function"] + one["text"] for one in named)
    assert rare["beyond_ns"] / rare["n"] == pytest.approx(100e6, rel=0.3)
    assert "memory" not in run


def test_losses_that_keep_their_graphs_are_named(tmp_path):
    done = capture(tmp_path / "out", sys.executable, RARE, "keeps")
    assert done.code == 0
    memory = trace(tmp_path / "out")["profkit_run"]["memory"]
    assert memory["bytes_per_step"] == pytest.approx(256 * 2048 * 4, rel=0.3)
    assert (memory["held"]["name"], memory["held"]["has_graph"]) == ("kept", True)
    assert memory["held"]["text"] == "kept.append(loss)"


def test_nobody_looks_while_steps_are_recorded_or_when_it_is_over():
    run = WholeRun()
    run.begin([clock.Mark(0, 1), clock.Mark(5, 6), clock.Mark(9, 10)])
    run.boundary(20, None, is_plain=False)
    assert run._looking is None
    run.boundary(30, None, is_plain=True)
    assert run._looking in threading.enumerate()
    run.boundary(40, None, is_plain=False)
    assert not run._goes.is_set()
    run.stop()
    assert not run._looking.is_alive(), "Python would end it in the middle of whatever it does"
    assert run.told()["n"] == 3, "two before, one after the recording"


def test_a_look_collects_none_of_the_scripts_garbage(monkeypatch):
    run, is_collecting = WholeRun(), []
    run._thread = threading.get_ident()
    monkeypatch.setattr(run, "_stack", lambda *_: Look(0, (), "", is_collecting.append(gc.isenabled())))
    run._look(0)
    assert (is_collecting, gc.isenabled()) == ([False], True)


def test_frames_are_asked_for_where_no_garbage_is_collected(monkeypatch):
    is_collecting = []
    monkeypatch.setattr(sys, "_current_frames", lambda: is_collecting.append(gc.isenabled()) or {})
    frames_now()
    assert (is_collecting, gc.isenabled()) == ([False], True)
    asking = [
        path.name for path in Path(whole_run.__file__).parent.rglob("*.py") if "_current_frames" in path.read_text()
    ]
    assert asking == ["looked.py"], "Python can lock itself out there"


def test_a_child_forked_during_a_look_collects_garbage():
    with nothing_collected():
        assert not gc.isenabled()
        collect_after_fork()
        assert gc.isenabled()


def test_a_look_leaves_collecting_off_where_the_script_has_turned_it_off():
    gc.disable()
    try:
        with nothing_collected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_fault_of_its_own_ends_the_looking_alone():
    run = WholeRun()
    run.boundary(2, None, is_plain=True)
    run.boundary("no time", None, is_plain=True)
    assert run.is_over
    assert run.told() == {}


@pytest.mark.parametrize("is_growing", [True, False])
def test_steps_that_grow_are_told_from_a_loop_at_another_pace(is_growing):
    run = WholeRun()
    ends = [0]
    for place in range(60):
        ends.append(ends[-1] + 1000 * (10 + (place if is_growing else 10 * (place >= 40))))
    run.begin([clock.Mark(end, end) for end in ends])
    assert run.grows() is is_growing


@pytest.mark.afresh  # on a busy machine a wait for a core is a slow step
def test_short_loops_with_an_optimizer_each_are_one_loop_and_what_lies_between_has_its_line(tmp_path):
    done = capture(tmp_path / "out", sys.executable, str(SCRIPTS / "clients.py"))
    assert done.code == 0
    metadata = trace(tmp_path / "out")
    assert "profkit_loops" not in metadata
    line = metadata["profkit_run"]["lines"][0]
    assert (line["function"], line["every"]) == ("packed", 6)
    assert line["share"] > 0.4


@pytest.mark.parametrize(
    ("hooked_at", "hooks"),
    [(range(0, 70, 10), [1, 7]), (range(10, 70, 10), [0, 6]), ((0,), None)],
    ids=["more and more", "none at first", "one from the first step on"],
)
def test_hooks_that_pile_up_are_counted(hooked_at, hooks):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    run = WholeRun()
    run.begin([clock.Mark(0, 1), clock.Mark(5, 6)])
    run.saw(model)
    for step in range(70):
        if step in hooked_at:
            model[0].register_forward_hook(lambda *_: None)
        run.boundary(10 + step, None, is_plain=False)
    assert run.told().get("hooks") == hooks


def test_what_fills_with_subnormal_numbers_has_its_names_and_the_cpu_time_of_the_steps():
    """A batch that is made of a state holds more of them than the state: both are told."""
    cpu = {step: 40 * 10**6 + step * 10**5 for step in range(1, 200) if not 10 < step < 20}
    looks = [
        (16, {"views": 3000, "s.planes": 1000}),
        (64, {"views": 9000}),
        (128, {"views": 60_000, "s.planes": 20_000}),
    ]
    told = whole_run._sunk(looks, cpu)["subnormal"]
    assert (told["of"], told["n_first"], told["n_last"]) == ("views", 3000, 60_000)
    assert told["others"] == [{"of": "s.planes", "n_first": 1000, "n_last": 20_000}]
    assert told["first_ns"] == pytest.approx(42 * 10**6, rel=0.02)
    assert told["last_ns"] == pytest.approx(53 * 10**6, rel=0.02)
    assert "mean_ns" not in whole_run._sunk(looks, {})["subnormal"]
    assert whole_run._sunk(looks[:1], cpu) == {}


def test_steps_have_the_cpu_time_of_the_thread_and_not_its_waits():
    run = WholeRun()
    for step in range(12):
        run.boundary(time.perf_counter_ns(), None, is_plain=False)
        time.sleep(0.005 * (step > 6))
        run._is_plain[-1] = 1
    told = run.told()
    assert told["last_ns"] > 4 * 10**6 > told["cpu_last_ns"] > 0
