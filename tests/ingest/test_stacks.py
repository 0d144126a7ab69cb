"""Stacks that torch 1.8 to 1.10 write with operators give findings their lines; those of later versions are left."""

import json
from typing import Any

import pytest

from profkit.ingest.kineto.batch import decode_batch
from profkit.model.code import Phase
from profkit.pipeline import analyse
from profkit.testing import Row, kernel, launch, trace_of
from profkit.timeline.code import code_of

US = 1000
ENV = "/home/a/env/lib/python3.7/site-packages/"
LOOP = "train.py(42): <module>"
ENTER = f"{ENV}torch/autograd/profiler.py(614): __enter__"
MODEL = f"{ENV}torch/nn/functional.py(1296): relu;net.py(17): forward;{ENV}torch/nn/modules/module.py(1051): _call_impl"
FORWARD = f"{MODEL};train.py(46): <module>"
NEXT = f"{ENTER};{ENV}torch/utils/data/dataloader.py(518): __next__;{LOOP}"
DECODE = f"{ENV}PIL/Image.py(9): open;data.py(30): read;{ENV}torch/utils/data/dataloader.py(561): _next_data;{LOOP}"
STEP = f"{ENTER};{ENV}torch/profiler/profiler.py(313): step;train.py(54): <module>"
MINE = f"{ENTER};train.py(48): <module>"


def row(name: str, first: int, last: int, stack: str, thread: int = 1, **args: object) -> Row:
    """An operator as torch 1.9 writes it, times in us."""
    return Row(
        name=name, cat="Operator", start_ns=first * US, end_ns=last * US, tid=thread, args={"Call stack": stack, **args}
    )


ROWS = [
    row("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1000, 1400, NEXT),
    row("aten::stack", 1100, 1200, DECODE),
    row("aten::relu", 1500, 1600, FORWARD, **{"Sequence number": 7, "Fwd thread id": 0}),
    row("my range", 1600, 1800, MINE),
    row("aten::add", 1700, 1710, ""),
    row("ReluBackward1", 1620, 1690, "", 2, **{"Sequence number": 7, "Fwd thread id": 1}),
    row("aten::threshold_backward", 1630, 1640, "", 2),
]


def places(rows: list[Row]) -> dict[str, str]:
    trace = trace_of(rows)
    code = code_of(trace)
    assert code is not None
    named = (*(one.words for one in code.places), "")
    return {trace.name(name): named[place] for name, place in zip(trace.ops.name, code.place_of_op, strict=True)}


def test_each_operator_is_at_the_line_that_runs_and_a_backward_one_at_its_forward_line() -> None:
    found = places(ROWS)
    assert found["aten::relu"] == "net.py:17 in forward() calling relu()"
    assert found["aten::stack"] == "data.py:30 in read() calling open()"
    assert found["ReluBackward1"] == found["aten::threshold_backward"] == found["aten::relu"]
    assert found["aten::add"] == "", "a range goes on after the line that begins it"
    code = code_of(trace_of(ROWS))
    assert code is not None
    assert Phase(int(code.phase_of_op[-1])) is Phase.OTHER


def test_where_the_step_waits_for_its_data_the_line_that_fetches_is_named() -> None:
    rows: list[Row] = []
    for step in range(6):
        at = 10_000 + 1000 * step
        rows += [
            row(f"ProfilerStep#{step}", at, at + 1000, STEP),
            row("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 500, NEXT),
            row("aten::stack", at + 100, at + 400, DECODE),
            row("aten::relu", at + 505, at + 520, FORWARD),
            launch((at + 506) * US, (at + 510) * US, correlation=step + 1),
            kernel("relu_kernel", (at + 512) * US, (at + 990) * US, correlation=step + 1),
        ]
    found = next(one for one in analyse(trace_of(rows)).rank.findings if one.id == "input.starved")
    assert [one.place.words for one in found.places] == [
        "data.py:30 in read() calling open()",
        "train.py:42 calling __next__()",
    ]
    assert found.places[0].share == pytest.approx(0.6, abs=0.01)


@pytest.mark.parametrize(
    "stack",
    ["", "torch/optim/adam.py(139): _init_group;train.py(48): <module>;", "<built-in method mul of Tensor>;a.py(1): f",
     "no frames", "a.py(1): f;;b.py(2): g", STEP, MINE],
)  # fmt: skip
def test_of_other_texts_no_line_is_read(stack: str) -> None:
    assert len(trace_of([row("aten::relu", 1000, 1100, stack)]).python) == 0


def test_calls_that_are_events_of_their_own_come_before_stacks() -> None:
    frame = Row(name="other.py(9): step", cat="python_function", start_ns=1400 * US, end_ns=1700 * US, tid=1)
    found = places([*ROWS, frame])
    assert found["aten::relu"] == "step() in other.py"
    assert found["aten::stack"] == ""


@pytest.mark.parametrize(
    "stack",
    [FORWARD, NEXT, "", 7, None, ["a.py(1): f"], 'a"b.py(1): f', "a.py(1): f;", ";", "<", "\\", FORWARD[:-1] + '";'],
)
@pytest.mark.parametrize("cat", ["Operator", "cpu_op", "python_function", "kernel"])
def test_of_operators_alone_stacks_are_read(stack: Any, cat: str) -> None:
    event = {"ph": "X", "cat": cat, "name": "f", "pid": 1, "tid": 1, "ts": 5, "dur": 7, "args": {"Call stack": stack}}
    array = json.dumps([event, {**event, "args": {"Call stack": ""}}]).encode()
    assert ("stacks" in decode_batch(array).tables) == (
        cat in ("Operator", "cpu_op") and stack in (FORWARD, NEXT, 'a"b.py(1): f')
    )


def test_no_line_is_made_of_a_long_text() -> None:
    assert len(trace_of([row("aten::relu", 1000, 1100, ";".join(["a.py(1): f"] * 65))]).python) == 0
    assert len(trace_of([row("aten::relu", 1000, 1100, f"{'a' * 20_000}.py(1): f")]).python) == 0
