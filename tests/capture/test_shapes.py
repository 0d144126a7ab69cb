"""Scripts of every shape: captured, they end as they would have, and their steps are their steps."""

import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from profkit.api import triage
from tests.capture.running import (
    SCRIPTS,
    Forked,
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
from tests.conftest import IN_FULL

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
    "evaluation alone": (("validation_first.py", "validation", "0"), {"data_loader": 1, "forward": 2, "backward": 0}),
    "loss apart": (("no_optimizer.py", "loss apart"), {"forward": 2}),
    "transforms": (("no_optimizer.py", "transforms"), {"forward": 5}),
    "loader transforms": (("no_optimizer.py", "loader transforms"), {"data_loader": 1, "forward": 1}),
    "SGD by hand": (("no_optimizer.py", "sgd by hand"), {"forward": 3, "backward": 1}),
}
SOURCES = {
    "plain": "the optimizer's step",
    "inference, loader": "each fetch from the DataLoader; no optimizer stepped, gradients were off: inference",
    "evaluation alone": "each fetch from the DataLoader; no optimizer stepped, gradients were off: inference",
    "loss apart": "each forward pass of LSTM; no optimizer stepped",
    "transforms": "each forward pass of Sequential; no optimizer stepped, gradients were off: inference",
    "SGD by hand": "each backward pass; no optimizer stepped",
}
"""What is said to end a step."""

LATER = {
    ("validation_first.py", "validation", "40"): 1,
    ("validation_first.py", "statistics", "40"): 1,
    ("validation_first.py", "forward", "40"): 1,
    ("hf_trainer.py", "evaluates"): 2,
}
"""Scripts that go through batches before they train, and the fetches of a training step of theirs."""
WHOLE_STEP = ("compiled.py", "whole")
TOO_SHORT = ("validation_first.py", "validation", "6")


USERS = SCRIPTS.parent / "users"
AS_WRITTEN = {
    "accelerate_loop": 5,
    "by_hand": 0,  # neither optimizer nor module nor loader: nothing to see
    "char_gpt": 5,
    "cnn_epochs": 5,
    "compiled_workers": 6,
    "dcgan": 5,
    "dqn": 5,
    "forecaster_cli": 5,
    "stream_workers": 6,  # whole rounds of two workers
    "swa_ema": 5,
    "threaded": 5,
    "wrapped_trainer": 5,
}
"""Scripts as people write them, none of them for profkit, and the steps that are found."""

VALIDATES = "step 15 fetches 14 batches, the others 4: is a validation in it?"
"""What is said of `wrapped_trainer`, whose first epoch ends with the step before the recording."""

TRAINERS = {"transformers": ("hf_trainer.py", 2), "lightning": ("lightning_trainer.py", 1)}
COMPILED = [("compiled.py", "module"), ("compiled.py", "in place"), ("compiled.py", "optimizer")]
OWN_PROFILER = [("own_profiler.py", "window"), ("own_profiler.py", "all")]


DEAR = {
    ("compiled.py", "in place"),
    ("compiled.py", "optimizer"),
    WHOLE_STEP,
    ("hf_trainer.py", "evaluates"),
    *("char_gpt", "cnn_epochs", "compiled_workers", "dcgan", "dqn", "forecaster_cli", "swa_ema"),
}
"""What takes two to four seconds each, as the trainers do, or has the steps of others: for `make full`.

`make test` tries a compiled module, and scripts as written that have a trainer, threads, workers, or nothing to see.
"""


def tried(cases):
    """The cases of this run."""
    return [case for case in cases if IN_FULL or case not in DEAR]


@dataclass
class Ran:
    """Scripts that ran plain and captured, one pair of torch's imports for all, and the folder of the captures."""

    out: Path
    pairs: dict[tuple[str, ...], tuple[Forked, Forked]]

    def of(self, *scripts: tuple[str, ...]) -> list[tuple[Forked, Forked]]:
        return [self.pairs[script] for script in scripts]


SHORT = "short.py"
ENDS_EARLY = ("plain.py", "30", "0", "exit")


def run_all(folder: Path) -> Ran:
    (folder / SHORT).write_text((USERS / "threaded.py").read_text().replace("range(40)", "range(17)"))
    scripts = [*(script for script, _ in LOOPS.values()), *OWN_PROFILER, *tried(COMPILED)]
    scripts += [*later_here(), TOO_SHORT, *tried([WHOLE_STEP]), ENDS_EARLY, (str(folder / SHORT),)]
    scripts += [(str(USERS / f"{name}.py"),) for name in written_here()]
    scripts += [script for _, script, _ in trainers_here()]
    plain = run_forked(folder / "plain", scripts)
    captured = run_forked(folder / "captured", scripts, out=folder / "out")
    return Ran(out=folder / "out", pairs=dict(zip(scripts, zip(plain, captured, strict=True), strict=True)))


def written_here() -> list[str]:
    return [name for name in tried(AS_WRITTEN) if name != "accelerate_loop" or find_spec("accelerate")]


def later_here() -> list[tuple[str, ...]]:
    return [script for script in tried(LATER) if script[0] != "hf_trainer.py" or find_spec("transformers")]


def trainers_here() -> list[tuple[str, tuple[str], int]]:
    found = {package: case for package, case in TRAINERS.items() if IN_FULL and find_spec(package)}
    return [(package, (script,), loads) for package, (script, loads) in found.items()]


@pytest.mark.sampled
def test_scripts_of_every_shape_are_captured_and_not_changed(tmp_path):
    """One test, since whichever process of the tests runs a part would have to run all of them."""
    ran = run_all(tmp_path)
    check_shapes(ran)
    check_later(ran)
    if IN_FULL:
        check_whole_step(ran)
    check_early_ends(ran, ENDS_EARLY, (str(tmp_path / SHORT),))
    for name in written_here():
        check_as_written(name, ran)
    for trainer, script, loads in trainers_here():
        check_trainer(trainer, script, loads, ran)


def check_shapes(ran):
    loops = [script for script, _ in LOOPS.values()]
    for plain, captured in ran.of(*loops, *OWN_PROFILER, *tried(COMPILED)):
        assert (captured.code, _as_compiled(captured.out)) == (0, _as_compiled(plain.out))
    for shape, (_, one) in zip(LOOPS, ran.of(*loops), strict=True):
        check_loop(shape, trace_of(ran.out, one.pid))
    check_own_profiler(ran.out, *(one for _, one in ran.of(*OWN_PROFILER)))
    for _, one in ran.of(*tried(COMPILED)):
        content = trace_of(ran.out, one.pid)
        assert (names(content), crossing(content), per_step(content, "backward")) == (WINDOW, [], [1] * 5)


def check_as_written(name, ran):
    """It does what it did, and what can be captured is."""
    ((plain, captured),) = ran.of((str(USERS / f"{name}.py"),))
    assert (name, captured.code, captured.out) == (name, 0, plain.out)
    assert (name, bool(plain.out)) == (name, True)
    found = {one["pid"]: one for one in manifest(ran.out)["ranks"]}
    told = found.get(captured.pid, {"n_steps": 0})
    assert (name, told["n_steps"]) == (name, AS_WRITTEN[name])
    if AS_WRITTEN[name]:
        report = triage([str(ran.out / told["trace"])])
        n = report.ranks[0].steps.n
        is_apart = name == "wrapped_trainer" and n == AS_WRITTEN[name] - 1  # where the validation in it takes long
        assert (name, n) == (name, AS_WRITTEN[name] - is_apart)
        assert report.verdict.next_tool.command
        is_said = any(VALIDATES in caveat for caveat in report.verdict.caveats)
        assert (name, is_said or is_apart) == (name, name == "wrapped_trainer")


def test_every_script_of_users_is_tried():
    assert {path.stem for path in USERS.glob("*.py")} == {*AS_WRITTEN, "spawn_ddp"}


def check_loop(shape, content):
    expected = LOOPS[shape][1]
    assert (shape, names(content)) == (shape, WINDOW)
    assert (shape, crossing(content)) == (shape, [])
    assert {name: per_step(content, name) for name in expected} == {name: [n] * 5 for name, n in expected.items()}
    assert (content["profkit_first_step"], content["profkit_unprofiled_steps"]) == (15, 10)
    assert content["profkit_unprofiled_step_mean_ns"] > 0
    assert content["profkit_after_steps"] == 6
    assert content["profkit_step_source"] == SOURCES.get(shape, content["profkit_step_source"])


def check_later(ran):
    """The window is the training's, though a loop before it was long enough to be taken for that."""
    for script in later_here():
        ((plain, captured),) = ran.of(script)
        assert (script, captured.code, captured.out.splitlines()[-1]) == (script, 0, plain.out.splitlines()[-1])
        content = trace_of(ran.out, captured.pid)
        assert (script, len(steps(content)), crossing(content)) == (script, 5, [])
        found = {name: per_step(content, name) for name in ("data_loader", "backward", "optimizer")}
        fetches = LATER[script]
        assert (script, found) == (
            script,
            {"data_loader": [fetches] * 5, "backward": [fetches] * 5, "optimizer": [1] * 5},
        )
        assert (script, content["profkit_step_source"]) == (script, "the optimizer's step")
    ((_, captured),) = ran.of(TOO_SHORT)
    told = next(one for one in manifest(ran.out)["ranks"] if one["pid"] == captured.pid)
    assert "trace" not in told, "of the validation before"
    assert told["reason"].startswith("6 steps of the script were seen to end, a capture with these options needs 20;")


def check_whole_step(ran):
    """Of a step that is compiled as one function its calls are the steps."""
    ((plain, captured),) = ran.of(WHOLE_STEP)
    assert (captured.code, captured.out.split("{")[0]) == (0, plain.out.split("{")[0])
    content = trace_of(ran.out, captured.pid)
    assert (names(content), crossing(content)) == (WINDOW, [])
    assert content["profkit_step_source"] == "each call of train_step(), which is compiled"


def check_early_ends(ran, *scripts):
    """A script that exits inside the window, and a thread that ends there, which leaves no profiler behind."""
    for (plain, captured), code in zip(ran.of(*scripts), (3, 0), strict=True):
        assert (captured.code, captured.out) == (code, plain.out), captured.err
        assert trace_of(ran.out, captured.pid)["profkit_is_cut"] is True


def check_own_profiler(folder, window, whole):
    assert len(steps(trace_of(folder, window.pid))) >= 5  # its own was over before the run was
    reasons = {one["pid"]: one["reason"] for one in manifest(folder)["ranks"]}
    assert "own profiler ran all the time" in reasons[whole.pid]


def _as_compiled(text: str) -> str:
    """The loss and the number of graphs; dynamo also counts profkit's wrapper of a compiled step as a frame."""
    loss, graphs = text.splitlines()[-1].partition("{")[0], text.partition("'unique_graphs': ")[2][:1]
    return loss + graphs


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["ddp", "fsdp2"] if IN_FULL else ["fsdp2"])  # tests/ranks/test_labs.py has DDP
def test_every_rank_of_torchrun_has_its_trace(kind, tmp_path):
    command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = capture(tmp_path / "out", *command, str(SCRIPTS / "distributed.py"), kind)
    assert (done.code, done.out) == (0, "equal\n"), done.err
    for rank in (0, 1):
        content = trace(tmp_path / "out", rank)
        assert names(content) == [f"ProfilerStep#{number}" for number in range(15, 35)], "enough to tell a late rank"
        assert per_step(content, "optimizer") == [1] * 20
        assert content["cores"] >= 1
        assert content["distributedInfo"]["rank"] == rank
        assert crossing(content) == []
    assert [one["rank"] for one in manifest(tmp_path / "out")["ranks"]] == [0, 1]
    said = re.findall(r"20 steps \(chosen for 2 ranks with (\S+) collectives? a step\) from step 15 on", done.err)
    assert len(said) == 2
    assert all(float(count) >= 1 for count in said), "counted by the process groups themselves"


@pytest.mark.sampled
@pytest.mark.skipif(not IN_FULL, reason="a quarter of a minute: make full")
def test_ranks_that_a_script_spawns_have_their_traces(tmp_path):
    done = capture(tmp_path / "out", sys.executable, str(SCRIPTS.parent / "users" / "spawn_ddp.py"))
    assert (done.code, done.out) == (0, loss_of_two_ranks() + "\n"), done.err
    assert [per_step(trace(tmp_path / "out", rank), "optimizer") for rank in (0, 1)] == [[1] * 20, [1] * 20]


def loss_of_two_ranks() -> str:
    """What `spawn_ddp.py` prints, without ranks: DDP takes the mean of their gradients, to the last bit for two."""
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 4)
    for step in range(44):
        losses = [model(torch.full((4, 16), 0.01 * (rank + step))).square().mean() for rank in (0, 1)]
        gradients = [torch.autograd.grad(loss, list(model.parameters())) for loss in losses]
        for parameter, first, second in zip(model.parameters(), *gradients, strict=True):
            parameter.data.add_((first + second) / 2, alpha=-0.01)  # as SGD does
    return losses[0].item().hex()


def check_trainer(trainer, script, loads, ran):
    ((plain, captured),) = ran.of(script)
    assert plain.out.splitlines()[-1].startswith("loss ")
    assert (trainer, captured.out.splitlines()[-1]) == (trainer, plain.out.splitlines()[-1])
    content = trace_of(ran.out, captured.pid)
    assert (trainer, names(content)) == (trainer, WINDOW)
    assert (trainer, per_step(content, "optimizer")) == (trainer, [1] * 5)
    assert (trainer, per_step(content, "data_loader")) == (trainer, [loads] * 5)
    assert (trainer, crossing(content)) == (trainer, [])
