"""The finder of steps, fed with what a loop does; no torch."""

import re
from itertools import pairwise

import pytest

from profkit.capture.inside.steps import StepFinder
from profkit.capture.options import Options, from_text, why_too_few, window_for


class Loop:
    """A finder and the boundaries it has told."""

    def __init__(self, *, step_on: str = "auto") -> None:
        self.is_safe = True
        self.told: list[tuple[str, bool]] = []
        self.finder = StepFinder(
            step_on=step_on, is_safe=lambda: self.is_safe, on_candidate=lambda *what: self.told.append(what)
        )

    def play(self, script: str, *, times: int) -> "Loop":
        """`l` fetch, `f` forward, `b` backward, `z` zero_grad, `!` step(), capitals an optimizer each."""
        acts = {
            "l": self.finder.data_wanted,
            "f": self.finder.forward_began,
            "b": self.finder.backward_began,
            "z": self.finder.gradients_zeroed,
            "!": self.finder.step_called,
        }
        for mark in script * times:
            if mark.isupper():
                self.finder.optimizer_stepped(ord(mark), has_closure=False)
            else:
                acts[mark]()
        return self


@pytest.mark.parametrize(
    ("script", "times", "n_steps"),
    [
        ("lfbA", 20, 19),
        ("lfblfblfbA", 20, 19),
        ("fbAfbB", 20, 19),
        ("fbAfbAfbAfbAfbAfbB", 20, 19),
        ("fbABCD", 20, 19),
        ("fbAAAA", 20, 19),
        ("fbAzfbBz", 20, 19),
    ],
)
def test_one_round_is_one_step(script, times, n_steps):
    loop = Loop().play(script, times=times)
    assert len(loop.finder.step_rows()) == n_steps


def test_an_optimizer_that_hardly_ever_steps_marks_no_step():
    loop = Loop().play("fbA" * 30 + "fbAB", times=3)
    assert len(loop.finder.step_rows()) == 92


def test_an_optimizer_of_a_loop_that_is_over_leads_no_more():
    loop = Loop().play("fbA", times=8).play("fbB", times=18)
    assert loop.finder.leader() == ord("B")
    assert len(loop.play("fbB", times=2).finder.step_rows()) == 19


def test_who_leads_is_open_until_a_second_optimizer_has_come_twice():
    loop = Loop().play("fbA" * 5 + "fbB" + "fbA" * 4, times=1)
    assert loop.finder.leader() is None
    assert loop.play("fbA" + "fbB", times=1).finder.leader() == ord("B")


def test_after_the_freeze_only_the_leader_ends_steps():
    loop = Loop().play("fbAfbB", times=10)
    loop.finder.freeze()
    loop.told.clear()
    loop.play("fbAfbB", times=4)
    assert [is_step for _, is_step in loop.told] == [True] * 4


def test_an_unsafe_place_is_passed_over():
    loop = Loop().play("fbA", times=10)
    n_before = len(loop.told)
    loop.is_safe = False
    loop.play("f", times=1)
    assert len(loop.told) == n_before
    loop.is_safe = True
    loop.play("f", times=1)
    assert len(loop.told) == n_before + 1


@pytest.mark.parametrize(
    ("script", "mode"), [("lf", "loader"), ("f", "forward"), ("fbz", "zero_grad"), ("lfb", "loader"), ("fbA!", "call")]
)
def test_without_an_optimizer_something_else_marks_steps(script, mode):
    loop = Loop().play(script, times=80)
    assert loop.finder.mode == mode
    assert len(loop.finder.step_rows()) >= 15


@pytest.mark.parametrize("before", ["l" * 40, "lf" * 40, "f" * 40, "lfff" * 30])
def test_a_loop_before_the_training_gives_way_to_it(before):
    loop = Loop().play(before, times=1)
    assert loop.finder.is_provisional
    loop.finder.freeze()  # even if it is recorded already
    loop.play("lfbA", times=20)
    assert loop.finder.mode == "optimizer"
    assert len(loop.finder.step_rows()) == 19
    assert loop.told.count(("restart", False)) == 2


def test_a_training_without_an_optimizer_is_not_the_loop_before_it():
    loop = Loop().play("f" * 40 + "fb" * 30, times=1)
    assert loop.finder.mode == "backward"
    assert loop.finder.described().startswith("each backward pass; no optimizer stepped")


def test_an_optimizer_inside_backward_waits_for_a_safe_place():
    loop = Loop().play("lf" * 40, times=1)
    loop.is_safe = False
    loop.play("bA", times=1)
    assert loop.finder.mode == "loader"
    assert loop.finder.forward_watch == "once"
    loop.is_safe = True
    loop.play("l", times=1)
    assert loop.finder.mode == "optimizer"


def called(*modules: tuple[str, int, int], times: int) -> StepFinder:
    """Rounds of calls of modules: name, calls in a round, ns of each."""
    finder = StepFinder(step_on="auto", is_safe=lambda: True, on_candidate=lambda *_: None)
    for _ in range(times):
        for key, (name, count, spent_ns) in enumerate(modules, 1):
            for _ in range(count):
                finder.forward_began(key, name)
                finder.forward_ended(key, spent_ns)
    return finder


@pytest.mark.parametrize(
    ("modules", "leads"),
    [
        ([("LSTM", 1, 5_000), ("MSELoss", 1, 100)], "LSTM"),
        ([("Normalize", 32, 140), ("ResNet", 1, 60_000)], "ResNet"),
        ([("Normalize", 256, 140), ("ResNet", 1, 60_000)], "ResNet"),
        ([("Encoder", 1, 10), ("Decoder", 1, 9_000), ("MSELoss", 1, 5)], "Encoder"),
        ([("TextEncoder", 1, 9_000), ("UNet", 50, 10_000)], "UNet"),
        ([("Cell", 10, 500), ("Head", 1, 400)], "Head"),
    ],
)
def test_a_step_repeats_the_call_of_the_module_that_takes_the_time(modules, leads):
    finder = called(*modules, times=30)
    finder.freeze()
    assert finder.described(has_gradients=False) == (
        f"each forward pass of {leads}; no optimizer stepped, gradients were off: inference"
    )
    per_round = next(count for name, count, _ in modules if name == leads)
    rows = finder.step_rows()
    assert 20 * per_round <= len(rows) <= 30 * per_round


@pytest.mark.parametrize("before", ["", "b", "lb"])
def test_a_compiled_function_is_the_step_where_nothing_else_is_seen(before):
    """Of backward passes inside it those are seen that a graph break lets out."""
    loop = Loop()
    loop.finder.optimizer_made()
    for _ in range(40):
        loop.finder.forward_began(5, "train_step()")
        loop.play(before, times=1)
        loop.finder.forward_ended(5, 1000)
    assert loop.finder.mode == ("loader" if "l" in before else "forward")
    assert len(loop.finder.step_rows()) >= 30
    loop.finder.freeze()
    says = "each fetch from the DataLoader" if "l" in before else "each call of train_step(), which is compiled"
    assert loop.finder.described() == says


def test_the_only_optimizer_there_is_leads_at_once():
    loop = Loop()
    loop.finder.optimizer_made()
    assert loop.play("lfbA", times=3).finder.leader() == ord("A")
    loop.finder.optimizer_made()
    assert loop.finder.leader() is None, "the other one may still step"


@pytest.mark.parametrize("n_steps", range(1, 30))
def test_the_options_that_are_said_to_fit_a_run_do(n_steps):
    window = window_for(Options(folder="x"), n_workers=2, n_queued=4)
    said = why_too_few(n_steps, window, least=8)
    fields = {"unprofiled-steps": "baseline", "warmup-steps": "warmup", "steps": "steps"}
    given = {fields[name]: int(value) for name, value in re.findall(r"--([\w-]+) (\d+)", said)}
    smaller = window_for(Options(folder="x", **given), n_workers=2, n_queued=4)
    needed = max(smaller.settling + smaller.baseline + 1, 8) + smaller.warmup + smaller.steps
    assert needed <= n_steps if said.endswith("would fit") else needed > n_steps


def test_where_the_whole_step_is_compiled_the_optimizer_is_the_edge():
    loop = Loop().play("A", times=100)
    assert len(loop.finder.step_rows()) == 36


@pytest.mark.parametrize(("script", "n_optimizers"), [("bA", 1), ("bbbA", 1), ("bAB", 2), ("bABCD", 4), ("bAbB", 2)])
def test_where_the_forward_pass_is_compiled_the_optimizer_is_the_edge_sooner(script, n_optimizers):
    rows = Loop().play(script, times=20).finder.step_rows()
    assert len(rows) >= 15
    assert {after - before for before, after in pairwise(rows[-14:])} == {n_optimizers}, "a round is a step"


def test_long_accumulation_is_not_taken_for_inference():
    loop = Loop().play("lfb" * 50 + "A", times=12)
    assert loop.finder.mode == "optimizer"
    assert len(loop.finder.step_rows()) == 11


@pytest.mark.parametrize(
    ("script", "watch"),
    [
        ("lfbA" * 6, "none"),  # the loader comes first
        ("fbA" * 6, "once"),
        ("fbA" * 6 + "f", "none"),  # the boundary is placed
        ("l" + "fbA" * 6, "once"),  # one batch for all steps
        ("fb", "all"),  # nothing has marked a step yet
        ("f" * 80, "all"),
    ],
)
def test_modules_are_watched_no_more_than_needed(script, watch):
    assert Loop().play(script, times=1).finder.forward_watch == watch


def test_the_window_waits_for_the_loaders_queue_and_holds_whole_rounds():
    asked = Options(folder="x")
    assert window_for(asked, n_workers=0, n_queued=0).n_needed == 3 + 10 + 1 + 5
    window = window_for(asked, n_workers=4, n_queued=8)
    assert (window.baseline, window.warmup, window.steps) == (12, 9, 8)
    given = Options(folder="x", baseline=3, warmup=2, steps=4)
    window = window_for(given, n_workers=4, n_queued=8)
    assert (window.baseline, window.warmup, window.steps) == (3, 2, 4)


def test_options_survive_the_environment_and_newer_keys():
    options = Options(folder="a b", ranks="0, 3", shapes=True)
    assert from_text(options.to_text()) == options
    assert from_text('{"folder": "x", "from_the_future": 1}') == Options(folder="x")
    assert [options.wants_rank(rank) for rank in range(4)] == [True, False, False, True]
