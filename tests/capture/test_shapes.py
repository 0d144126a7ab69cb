"""Scripts of every shape: captured, they end as they would have, and their steps are their steps."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from tests.capture.running import (
    SCRIPTS,
    capture,
    crossing,
    manifest,
    names,
    per_step,
    run_forked,
    steps,
    trace,
    trace_of,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

WINDOW = [f"ProfilerStep#{number}" for number in range(15, 20)]
"""3 settling steps, 10 timed, 1 warm-up: the first one recorded is the 16th."""

LOOPS = {
    "plain": (("plain.py",), {"data_loader": 1, "forward": 1, "backward": 1, "optimizer": 1}),
    "epochs": (("epochs.py",), {"forward": 1, "backward": 1, "optimizer": 1}),
    "accumulation": (("accumulation.py",), {"data_loader": 4, "forward": 4, "backward": 4, "optimizer": 1}),
    "two optimizers": (("gan.py", "1"), {"forward": 5, "backward": 2, "optimizer": 2}),
    "five to one": (("gan.py", "5"), {"forward": 17, "backward": 6, "optimizer": 6}),
    "in backward": (("in_backward.py",), {"forward": 1, "backward": 1, "optimizer": 6}),
    "like ZeRO": (("zero_like.py",), {"forward": 1, "backward": 1, "optimizer": 4}),
    "closure": (("lbfgs.py",), {"forward": 3, "backward": 3, "optimizer": 1}),
    "inference, loader": (("inference.py", "loader"), {"data_loader": 1, "forward": 1, "optimizer": 0}),
    "inference, none": (("inference.py", "none"), {"forward": 1, "optimizer": 0}),
}


COMPILED = [("compiled.py", "module"), ("compiled.py", "in place"), ("compiled.py", "optimizer")]
OWN_PROFILER = [("own_profiler.py", "window"), ("own_profiler.py", "all")]


def test_scripts_of_every_shape_are_captured_and_not_changed(tmp_path):
    scripts = [*(script for script, _ in LOOPS.values()), *OWN_PROFILER, *COMPILED]
    plain = run_forked(tmp_path / "plain", scripts)
    captured = run_forked(tmp_path / "captured", scripts, out=tmp_path / "out")
    assert [_as_compiled(one.out) for one in captured] == [_as_compiled(one.out) for one in plain]
    for shape, one in zip(LOOPS, captured, strict=False):
        check_loop(shape, trace_of(tmp_path / "out", one.pid))
    check_own_profiler(tmp_path / "out", *captured[len(LOOPS) : len(LOOPS) + 2])
    for one in captured[-len(COMPILED) :]:
        content = trace_of(tmp_path / "out", one.pid)
        assert (names(content), crossing(content), per_step(content, "backward")) == (WINDOW, [], [1] * 5)


def check_loop(shape, content):
    expected = LOOPS[shape][1]
    assert (shape, names(content)) == (shape, WINDOW)
    assert (shape, crossing(content)) == (shape, [])
    assert {name: per_step(content, name) for name in expected} == {name: [n] * 5 for name, n in expected.items()}
    assert (content["profkit_first_step"], content["profkit_unprofiled_steps"]) == (15, 10)
    assert content["profkit_unprofiled_step_mean_ns"] > 0
    assert content["profkit_after_steps"] == 6


def check_own_profiler(folder, window, whole):
    assert len(steps(trace_of(folder, window.pid))) >= 5  # its own was over before the run was
    reasons = {one["pid"]: one["reason"] for one in manifest(folder)["ranks"]}
    assert "own profiler was running all the time" in reasons[whole.pid]


def _as_compiled(text: str) -> str:
    """The loss and the number of graphs; dynamo also counts profkit's wrapper of a compiled step as a frame."""
    loss, graphs = text.splitlines()[-1].partition("{")[0], text.partition("'unique_graphs': ")[2][:1]
    return loss + graphs


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_every_rank_of_torchrun_has_its_trace(kind, tmp_path):
    command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = capture(tmp_path / "out", *command, str(SCRIPTS / "distributed.py"), kind)
    assert (done.code, done.out) == (0, "equal\n"), done.err
    for rank in (0, 1):
        content = trace(tmp_path / "out", rank)
        assert names(content) == WINDOW
        assert per_step(content, "optimizer") == [1] * 5
        assert content["distributedInfo"]["rank"] == rank
        assert crossing(content) == []
    assert [one["rank"] for one in manifest(tmp_path / "out")["ranks"]] == [0, 1]


def test_ranks_that_a_script_spawns_have_their_traces(tmp_path):
    done = capture(tmp_path / "out", sys.executable, str(SCRIPTS.parent / "users" / "spawn_ddp.py"))
    assert (done.code, done.out) == (0, loss_of_two_ranks() + "\n"), done.err
    assert [per_step(trace(tmp_path / "out", rank), "optimizer") for rank in (0, 1)] == [[1] * 5, [1] * 5]


def loss_of_two_ranks() -> str:
    """What `spawn_ddp.py` prints, without ranks: DDP takes the mean of their gradients, to the last bit for two."""
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(30):
        losses = [model(torch.full((4, 16), 0.01 * (rank + step))).square().mean() for rank in (0, 1)]
        gradients = [torch.autograd.grad(loss, list(model.parameters())) for loss in losses]
        for parameter, first, second in zip(model.parameters(), *gradients, strict=True):
            parameter.grad = (first + second) / 2
        optimizer.step()
    return losses[0].item().hex()


TRAINERS = {"transformers": ("hf_trainer.py", 2), "lightning": ("lightning_trainer.py", 1)}


def test_trainers_are_captured(tmp_path):
    there = [trainer for package, trainer in TRAINERS.items() if find_spec(package)]
    if not there:
        pytest.skip("no trainer is installed here")
    scripts = [(script,) for script, _ in there]
    plain = run_forked(tmp_path / "plain", scripts)
    captured = run_forked(tmp_path / "captured", scripts, out=tmp_path / "out")
    for (script, loads), before, after in zip(there, plain, captured, strict=True):
        assert before.out.splitlines()[-1].startswith("loss ")
        assert (script, after.out.splitlines()[-1]) == (script, before.out.splitlines()[-1])
        content = trace_of(tmp_path / "out", after.pid)
        assert (script, names(content)) == (script, WINDOW)
        assert (script, per_step(content, "optimizer")) == (script, [1] * 5)
        assert (script, per_step(content, "data_loader")) == (script, [loads] * 5)
        assert (script, crossing(content)) == (script, [])
