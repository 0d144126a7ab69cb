"""The capture from code, in the same process: what it writes, and that it leaves nothing behind."""

import subprocess
import sys

import pytest

from profkit.api import triage
from tests.capture.running import ENVIRONMENT, SCRIPTS, capture, manifest, names, per_step, run, run_forked, trace

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

LOOP = """
import sys, torch
from profkit.capture import session, step
from torch.nn import Module
from torch.optim import SGD, Optimizer
from torch.utils.data.dataloader import _BaseDataLoaderIter
places = [(Module, "__call__"), (Optimizer, "_patch_step_function"), (Optimizer, "zero_grad"), (SGD, "step"),
          (_BaseDataLoaderIter, "__next__"), (torch.autograd, "backward")]
model = torch.nn.Linear(4, 1)
optimizer = SGD(model.parameters(), lr=0.1)
before = [getattr(owner, name) for owner, name in places]
with session(sys.argv[1], baseline=4, steps=3):
    for index in range(24):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        step(tokens=100 + index, padded_tokens=256)
step(tokens=1)
print([getattr(owner, name) for owner, name in places] == before)
"""


ODD = LOOP.replace("tokens=100 + index", "tokens=torch.tensor(100 + index), samples=float('nan')").replace(
    "padded_tokens=256", "padded_tokens='many' if index % 2 else float('inf')"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("session")


@pytest.fixture(scope="module")
def ended(folder):
    """How each of the loops and checks below ended, in a process of its own: torch is imported once for them."""
    codes = {"loop": LOOP, "odd": ODD, "copies": COPIES, "nvtx": NVTX}
    for name, code in codes.items():
        (folder / f"{name}.py").write_text(code)
    ran = run_forked(folder / "ran", [(str(folder / f"{name}.py"), str(folder / name)) for name in codes])
    return dict(zip(codes, ran, strict=True))


def test_a_session_captures_counts_and_unhooks(ended, folder):
    done = ended["loop"]
    assert (done.code, done.out) == (0, "True\n"), done.err
    assert "3 steps from step 9 on, by profkit.capture.step()" in done.err
    content = trace(folder / "loop")
    assert names(content) == ["ProfilerStep#9", "ProfilerStep#10", "ProfilerStep#11"]
    assert per_step(content, "optimizer") == [1, 1, 1]
    counters = [event for event in content["traceEvents"] if event.get("ph") == "C"]
    tokens = {event["args"]["tokens"] for event in counters if event["name"] == "profkit.tokens"}
    assert {109, 110, 111} <= tokens
    assert f"next: profkit triage {folder / 'loop'}" in done.err
    assert manifest(folder / "loop")["schema"] == "profkit.capture/1"


def test_what_a_script_counts_can_be_anything_and_the_trace_stays_whole(ended, folder):
    done = ended["odd"]
    assert (done.code, done.out) == (0, "True\n"), done.err
    assert triage([str(folder / "odd")]).ranks[0].steps.n == 3
    counters = [event for event in trace(folder / "odd")["traceEvents"] if event.get("ph") == "C"]
    assert {event["name"] for event in counters} == {"profkit.tokens"}
    assert {109, 110, 111} <= {event["args"]["tokens"] for event in counters}


@pytest.mark.long(4)
def test_workers_have_rows_inside_the_window(tmp_path):
    done = capture(tmp_path / "out", sys.executable, str(SCRIPTS / "plain.py"), "60", "2")
    assert done.code == 0, done.err
    content = trace(tmp_path / "out")
    n_steps = len(names(content))
    assert n_steps in range(6, 31, 6), "whole rounds of two workers, until they took long enough or the epoch ends"
    fetches = [event for event in content["traceEvents"] if event.get("name") == "profkit.worker_fetch"]
    assert {event["args"]["worker"] for event in fetches} == {0, 1}
    assert {event["args"]["samples"] for event in fetches} == {8}
    window = [event for event in content["traceEvents"] if str(event.get("name", "")).startswith("ProfilerStep#")]
    begin, end = min(step["ts"] for step in window), max(step["ts"] + step["dur"] for step in window)
    assert sum(begin <= event["ts"] <= end for event in fetches) >= 4


@pytest.mark.long(3)
def test_the_variables_do_the_same_for_any_launcher(tmp_path):
    script = SCRIPTS / "plain.py"
    command = f'eval "$({sys.executable} -m profkit capture --inject env -o out)"; {sys.executable} {script}'
    done = subprocess.run(
        ["/bin/bash", "-c", command], env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "profkit: rank 0: 5 steps from step 15 on, by the optimizer's step" in done.stderr
    assert "profkit: next: profkit triage out\n" in done.stderr
    assert len(names(trace(tmp_path / "out"))) == 5
    assert manifest(tmp_path / "out")["ranks"][0]["n_steps"] == 5


def test_run_captures_and_triages(tmp_path):
    line = (sys.executable, "-m", "profkit", "run", "-o", str(tmp_path / "out"), "--steps", "4", "--")
    done = run(*line, sys.executable, str(SCRIPTS / "plain.py"), WITH_DYNAMO="1")
    assert done.code == 0
    assert done.out.startswith("loss")
    assert done.out.count("\n") == 1, "what is piped on is the script's"
    assert "read         rank0.pt.trace.json.gz, CPU" in done.err  # whatever a busy machine makes of the verdict
    assert triage([str(tmp_path / "out")]).ranks[0].steps.n == 4
    again = run(*line, sys.executable, "-c", "print(7)")
    assert (again.code, again.out) == (2, ""), "a capture is not overwritten by accident"


@pytest.mark.long(3)
def test_a_rank_not_asked_for_is_left_alone(tmp_path):
    done = capture(
        tmp_path / "out",
        sys.executable,
        str(SCRIPTS / "plain.py"),
        options=("--ranks", "1,2"),
        RANK="3",
        WORLD_SIZE="4",
    )
    assert done.code == 0, "the exit code is the script's"
    assert "rank 3: no trace: rank 3 was not selected" in done.err


def test_importing_the_capture_loads_no_torch():
    script = (
        "import sys, profkit.capture; print([name for name in ('torch', 'numpy', 'msgspec') if name in sys.modules])"
    )
    assert run(sys.executable, "-c", script).out == "[]\n"


COPIES = """
import torch
from profkit.capture.inside.record.ranges import CopyWatch
from contextlib import contextmanager
seen = []
@contextmanager
def phase(name):
    seen.append(name)
    yield
before = vars(torch.Tensor).get("to"), vars(torch.Tensor).get("cuda")
watch, host = CopyWatch(), torch.ones(2)
watch.begin(phase)
far = host.to("meta", non_blocking=True)
host.to(torch.device("meta")); host.to(device="meta", dtype=torch.float64); host.to(far)
assert seen == ["h2d"] * 4, seen
far.to("meta"); host.to("cpu"); host.to(torch.float16); host.to(host); host.to(dtype=torch.int32)
assert seen == ["h2d"] * 4, seen
watch.end()
assert (vars(torch.Tensor).get("to"), vars(torch.Tensor).get("cuda")) == before == (None, None)
print(far.device.type)
"""


@pytest.mark.long(6)
def test_moves_of_host_tensors_to_a_device_are_a_phase(ended):
    done = ended["copies"]
    assert (done.code, done.out) == (0, "meta\n"), done.err


@pytest.mark.long(5)
def test_a_device_that_is_not_used_is_said_and_the_script_runs_on(tmp_path):
    done = capture(tmp_path / "out", sys.executable, str(SCRIPTS / "plain.py"), options=("--device", "cuda"))
    assert (done.code, done.out[:4]) == (0, "loss")
    assert "this process does not use CUDA" in done.err
    strict = capture(
        tmp_path / "strict", sys.executable, str(SCRIPTS / "plain.py"), options=("--device", "cuda", "--strict")
    )
    assert (strict.code, strict.out) == (4, "")


NVTX = """
import contextlib, os, sys, types
calls = []
class Domain:
    def get_event_attributes(self, message): return message
    def start_range(self, what): calls.append(("start", what)); return len(calls)
    def end_range(self, number): calls.append(("end", number))
nvtx = types.ModuleType("nvtx")
nvtx.enabled = lambda: True
nvtx.get_domain = lambda name: calls.append(("domain", name)) or Domain()
sys.modules["nvtx"] = nvtx
from torch.autograd.profiler import record_function
from profkit.capture.inside.record.ranges import make_phase
assert make_phase() is record_function
os.environ["NVTX_INJECTION64_PATH"] = "a tool"
phase = make_phase()
with contextlib.suppress(KeyError), phase("forward"), phase("h2d"):
    raise KeyError
print(calls)
"""


def test_an_attached_tool_sees_the_phases_in_a_domain_of_their_own(ended):
    done = ended["nvtx"]
    assert done.code == 0, done.err
    assert (
        done.out == str([("domain", "profkit"), ("start", "forward"), ("start", "h2d"), ("end", 3), ("end", 2)]) + "\n"
    )


@pytest.mark.long(8)
def test_the_loop_that_takes_the_time_is_recorded_in_place_of_a_warm_up(tmp_path):
    script = str(SCRIPTS / "two_loops.py")
    done = capture(tmp_path / "out", sys.executable, script, "60", "120")
    assert (done.code, done.out) == (0, "done\n")
    assert "it is recorded in its place" in done.err
    rank = manifest(tmp_path / "out")["ranks"][0]
    assert rank["baseline"]["median_ns"] > 4_000_000
    assert next(loop for loop in rank["loops"] if loop["is_recorded"])["first_optimizer"] == 2
    short = capture(tmp_path / "short", sys.executable, script, "25", "20")
    assert "these steps are of SGD (optimizer 1)" in short.err
    found = triage([str(tmp_path / "short")])
    assert found.verdict.bottleneck.value == "inconclusive"
    assert "ended before it could be recorded" in found.verdict.headline
    options = found.verdict.next_tool.command.partition(" -- ")[0].split()[2:]
    again = capture(tmp_path / "again", sys.executable, script, "25", "20", options=tuple(options))
    assert manifest(tmp_path / "again")["ranks"][0]["baseline"]["median_ns"] > 4_000_000, again.err
