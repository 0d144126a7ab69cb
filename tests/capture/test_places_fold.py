"""What stays of a second window's Python calls, whose files they are of, and when they are too many."""

import json
import os
import sys
from pathlib import Path

import pytest

from profkit.capture.inside.places.fold import Fold
from profkit.capture.inside.places.room import MOST_CALLS, Counter, steps_that_fit
from profkit.testing import Row, to_json

HEAD = {"baseTimeNanoseconds": 10**18}


def call(name, number, parent, first=0):
    """A Python call as torch writes it."""
    args = {"Python parent id": parent, "Python id": number, "Ev Idx": number}
    return Row(name=name, cat="python_function", start_ns=first, end_ns=first + 10, args=args)


def folded(rows, *, user=("train.py",), packages=(), chunk=0, layout="kineto"):
    """The calls that stay, by name, with their parents' ids; the text comes in parts of that many bytes."""
    text = to_json(rows, layout=layout, metadata=HEAD)
    parts = [text[place : place + chunk] for place in range(0, len(text), chunk)] if chunk else [text]
    fold = Fold(user, packages)
    fold.note(parts)
    events = json.loads(b"".join(fold.folded(parts)))["traceEvents"]
    others = [event["name"] for event in events if event["cat"] != "python_function"]
    assert others == [row.name for row in rows if row.cat != "python_function"], "nothing else is touched"
    return {event["name"]: event["args"]["Python parent id"] for event in events if event["cat"] == "python_function"}


ROWS = [
    call("threading.py(3): run", 1, None),
    call("train.py(9): step", 2, 1),
    Row(name="aten::mm {", cat="cpu_op", start_ns=5, end_ns=6),
    call("<built-in method item of Tensor object at 0x7f12ab>", 3, 2),
    call("torch/utils/_contextlib.py(116): decorate_context", 4, 2),
    call("torch/optim/adam.py(7): step", 5, 4),
    call("torch/optim/adam.py(8): _multi_tensor", 6, 5),
    call("nn.Module: Linear_3", 7, 6),
    call("torch/nn/modules/linear.py(4): forward", 8, 7),
    call("gpt2/model.py(44): attend", 9, 8),
    call("train.py(30): hook", 10, 9),
]


@pytest.mark.parametrize("chunk", [0, 7, 100, 5000])
@pytest.mark.parametrize("layout", ["kineto", "minified", "indented"])
def test_the_scripts_calls_stay_and_modules_and_what_the_script_calls(chunk, layout):
    assert folded(ROWS, packages=["gpt2/model.py"], chunk=chunk, layout=layout) == {
        "train.py(9): step": None,
        "<built-in method item of Tensor object>": 2,
        "torch/utils/_contextlib.py(116): decorate_context": 2,
        "torch/optim/adam.py(7): step": 4,  # what is behind torch's wrapper
        "nn.Module: Linear_3": 5,
        "gpt2/model.py(44): attend": 7,
        "train.py(30): hook": 9,
    }


def test_all_stays_where_the_scripts_files_are_not_known():
    assert len(folded(ROWS, user=())) == len([row for row in ROWS if row.cat == "python_function"])


def test_the_last_event_keeps_what_follows_it_and_odd_calls_stay():
    odd = Row(name="torch/x.py(1): f", cat="python_function", start_ns=0, end_ns=1, args={"Python id": "7"})
    fold = Fold(["train.py"])
    text = to_json([ROWS[1], odd, ROWS[0]], metadata=HEAD)
    fold.note([text])
    events = json.loads(b"".join(fold.folded([text])))["traceEvents"]
    assert [event["name"] for event in events] == ["train.py(9): step", "torch/x.py(1): f", "threading.py(3): run"]


def test_of_a_step_of_millions_of_calls_not_each_is_recorded():
    assert steps_that_fit(2, 30_000) == 2
    assert steps_that_fit(2, MOST_CALLS - 1) == 1
    assert steps_that_fit(2, 10 * MOST_CALLS) == 0
    assert steps_that_fit(2, 0) == 2


def test_calls_are_counted_unless_another_profiler_counts():
    counter = Counter()
    assert counter.start() == ""
    for _ in range(1000):
        len("")
    assert 1000 <= counter.stop() < 1100
    assert counter.stop() == 0
    sys.setprofile(lambda *_: None)
    try:
        assert counter.start() == "another profiler of Python calls runs"
    finally:
        sys.setprofile(None)


def test_files_are_told_by_where_they_lie(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from profkit.capture.inside.places import owners

    package = tmp_path / "lib" / "python3.11" / "site-packages" / "gpt2" / "model.py"
    for path in (tmp_path / "project" / "mine.py", package):
        path.parent.mkdir(parents=True)
        path.write_text("")
    prefixes = [
        f"{tmp_path / 'project'}{os.sep}",
        f"{package.parents[1]}{os.sep}",
        f"{Path(json.__file__).parents[1]}/",
    ]
    monkeypatch.setattr(owners, "_cut_prefixes", lambda: prefixes)
    monkeypatch.setattr(owners, "_is_given_as_text", lambda: False)  # as it is where xdist runs this test
    found = owners.Owners()
    assert found.path_of("mine.py") == str(tmp_path / "project" / "mine.py")
    generated = str(tmp_path / "torchinductor_me" / "a" / "b.py")
    others = ["gpt2/model.py", "json/__init__.py", "<frozen os>", "<string>", "gone.py", generated]
    assert [found.is_own(name) for name in others] == [False] * len(others)
    assert found.own_names() == ["mine.py"]
    assert found.package_names() == sorted([generated, "gpt2/model.py"])
    assert owners.is_own_path("<stdin>")
    assert not owners.is_own_path(owners.__file__), "profkit's own"
