"""Places inside a package that runs the loop: whose they are, and what it calls beside training."""

import pytest
from msgspec.structs import replace

from profkit.analyzers.base import scope_of
from profkit.analyzers.code.tree import hooks_of, judge
from profkit.findings.trainers import CALLBACK, callback_fix, setting
from profkit.model.code import CodePlace
from profkit.testing import Row, span, trace_of
from profkit.timeline import Facts
from profkit.timeline.code import Rows, code_of, shares
from profkit.timeline.code.code import Code
from tests.timeline.test_code import START, US, frame, op, place_at

TRAINER = "transformers/trainer.py"
LINES = {
    f"{TRAINER}:70": "self._epoch()",
    f"{TRAINER}:91": "loss = self.training_step(model, inputs)",
    f"{TRAINER}:92": "self.optimizer.step()",
    f"{TRAINER}:93": "self.control = self.callback_handler.on_step_end(args)",
    "train.py:90": "trainer.train()",
    "train.py:8": "total += p.norm().item()",
}


def rows(*, hook: int = 100, loop: str = "transformers/trainer.py(60): train") -> tuple[Row, ...]:
    """One step: 400 us in training_step, 200 us in the optimizer, then a callback."""
    end = 700 + hook
    return (
        frame("train.py(90): <module>", 0, 5000),
        frame(loop, 0, 4990),
        frame(f"{TRAINER}(80): _epoch", 0, 4980),
        frame("torch/profiler/profiler.py(1): start", 1, 2),
        frame(f"{TRAINER}(100): training_step", 100, 500),
        op("aten::mm", 120, 480),
        frame("accelerate/optimizer.py(150): step", 500, 700),
        op("aten::add_", 520, 690),
        frame("transformers/trainer_callback.py(500): on_step_end", 700, end),
        frame("train.py(5): on_step_end", 701, end - 1),
        frame("<built-in method item of Tensor object at 0x1>", 702, end - 2),
        op("aten::item", 703, end - 3),
    )


def calls() -> dict[str, object]:
    at = {0: 90, 100: 91, 500: 92, 700: 93, 702: 8}
    return {
        "profkit_call_lines": {"unix_ns": [START + one * US for one in at], "line": list(at.values())},
        "profkit_source_lines": LINES,
    }


def trace(*made: Row):
    steps = [span(f"ProfilerStep#{one}", START + 2500 * one * US, START + 2500 * (one + 1) * US) for one in range(2)]
    return trace_of([*steps, *made], **calls())


def code(*made: Row) -> Code:
    found = code_of(trace(*made))
    assert found is not None
    return found


def words_at(found: Code, at_us: int) -> str:
    place = place_at(found, at_us)
    assert place is not None
    return place.words


def test_a_loop_of_a_package_is_placed_in_its_own_lines() -> None:
    found = code(*rows())
    assert found.trainer == "transformers"
    step = "transformers' trainer.py:91 in _epoch(): loss = self.training_step(model, inputs)"
    assert words_at(found, 200).startswith(step)
    assert words_at(found, 600).startswith("transformers' trainer.py:92 in _epoch(): self.optimizer.step()")
    assert "called by train.py" in words_at(found, 600)


def test_a_function_of_the_users_that_the_loop_calls_is_the_users() -> None:
    place = place_at(code(*rows()), 750)
    assert place is not None
    assert (place.file, place.function, place.line, place.inside) == ("train.py", "on_step_end", 8, "")
    assert place.beside == "on_step_end() (train.py:5)"


@pytest.mark.parametrize(("name", "is_beside"), [("log_prob", False), ("log_softmax", False), ("log_metrics", True)])
def test_a_logarithm_is_no_log(name: str, is_beside: bool) -> None:
    made = [replace(one, name=one.name.replace("on_step_end", name)) for one in rows()]
    place = place_at(code(*made), 750)
    assert place is not None
    assert bool(place.beside) is is_beside


def test_the_users_line_comes_before_the_packages() -> None:
    found = code(*rows())
    told = shares(found, Rows.of_ops(trace(*rows()), range(3), found.ops.end_ns - found.ops.start_ns))  # type: ignore[arg-type]
    assert [bool(one.place.inside) for one in told] == [False, True, True]


@pytest.mark.parametrize(
    "loop", ["torch/utils/x.py(60): train", "mine/loop.py(60): train"], ids=["torch's", "the user's own"]
)
def test_a_loop_of_torchs_or_of_the_users_own_is_no_packages(loop: str) -> None:
    made = [one for one in rows(loop=loop) if "_epoch" not in str(one)]
    found = code(*made)
    assert found.trainer == ""
    assert not any(place.inside or place.beside for place in found.places)


def test_a_call_into_a_package_that_ends_in_the_step_is_no_loop() -> None:
    found = code(
        frame("train.py(90): <module>", 0, 5000),
        frame("torch/profiler/profiler.py(1): start", 1, 2),
        frame("accelerate/accelerator.py(9): backward", 100, 900),
        op("aten::mm", 120, 480),
    )
    assert found.trainer == ""
    assert words_at(found, 200).startswith("train.py:91 calling backward()")


@pytest.mark.parametrize(("hook", "is_told"), [(100, False), (600, True)])
def test_a_callback_is_a_finding_where_it_takes_enough(hook: int, is_told: bool) -> None:
    facts = Facts.of(trace(*rows(hook=hook)), code(*rows(hook=hook)))
    assert facts.code is not None
    told = judge(scope_of(facts), hooks_of(facts, facts.code), "transformers")
    assert bool(told) is is_told
    if is_told:
        assert told[0].id == CALLBACK.id
        assert "on_step_end() (train.py:5)" in told[0].title
        assert "state.global_step" in told[0].fix
        assert told[0].fraction == pytest.approx(598 * US / facts.window_ns, rel=0.02)


def test_settings_are_told_in_the_words_of_the_package() -> None:
    assert "dataloader_num_workers" in setting("transformers", "input.starved")
    assert "persistent_workers" in setting("lightning", "input.starved")
    assert setting("", "input.starved") == ""
    assert "logging_steps" in callback_fix("transformers", "transformers' log() (trainer.py:3000)")
    assert callback_fix("mylib", "on_step_end() (train.py:5)") == CALLBACK.fixes[0]


def test_a_place_without_a_package_reads_as_before() -> None:
    assert CodePlace(file="train.py", function="f", line=3, text="x()").words == "train.py:3 in f(): x()"
