"""Probes of whole scripts: the same numbers, the same ends, and slopes of what is known to limit them."""

import json
import signal
import subprocess
import sys
import time

import jsonschema
import pytest

from profkit.render.schema import schema
from tests.capture.running import ENVIRONMENT, SCRIPTS, run
from tests.conftest import ROOT, dear, rarely

pytestmark = pytest.mark.torch

LOOP = str(ROOT / "tests" / "probe" / "loops.py")

SHORT = """
import tests.capture.no_dynamo, torch
weight = torch.ones(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1, foreach=False)
for _ in range(100):
    (weight * weight).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def probe(*command, options=(), cwd=None):
    """Run a command under `profkit probe`."""
    return run(sys.executable, "-m", "profkit", "probe", *options, "--", sys.executable, *command, cwd=cwd)


@pytest.mark.parametrize("n_workers", [dear("0"), "2"])
def test_a_probed_loop_computes_the_same_to_the_last_bit(tmp_path, n_workers):
    loop = (LOOP, "110", n_workers, "2", "2")
    options = ("--probed-steps", "60", "--cost", "20%", "-o", str(tmp_path / "probe.json"))
    done, plain = probe(*loop, options=options), run(sys.executable, *loop)
    assert done.code == 0, done.err
    assert done.out == plain.out
    document = json.loads((tmp_path / "probe.json").read_text())
    jsonschema.Draft202012Validator(schema("probe")).validate(document)
    assert {one["place"] for one in document["slopes"]} == {"input", "forward", "backward", "optimizer"}
    assert document["n_before"] == 20
    assert document["n_probed"] == 60
    assert document["n_after"] == 20
    assert 0 < document["cost"] < 0.3


@pytest.mark.parametrize("script", ["gan.py", dear("epochs.py")])
def test_scripts_of_many_kinds_print_what_they_print(script):
    done, plain = probe(str(SCRIPTS / script)), run(sys.executable, str(SCRIPTS / script))
    assert (done.code or 4) in (4, plain.code or 4)
    assert plain.out in done.out
    assert "the probe failed" not in done.err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        rarely(3, ("-c", "import torch"), "no slopes: no training step was seen"),
        (("-c", "pass"), "no slopes: the command never imported torch, or left without its exit handlers"),
        rarely(
            4,
            (LOOP, "12", "0", "2", "2"),
            "no slopes: the probe needs 24 steps before the first delay, and the run ended",
        ),
        rarely(4, (LOOP, "50", "0", "2", "2"), "probed steps, at least 40 are needed"),
        (("-c", SHORT), "delays are told from noise in steps of 1 ms or more"),
    ],
    ids=["no steps", "no torch", "ends before", "ends early", "short steps"],
)
def test_a_script_that_cannot_be_probed_is_one_line(command, said):
    done = probe(*command)
    assert said in done.err
    assert "Traceback" not in done.err
    assert done.code == 4


@pytest.mark.parametrize(
    ("end", "code", "n_workers"), [rarely(3, "exit", 3, "0"), ("worker_dies", 1, "1")], ids=["exit", "a dead worker"]
)
def test_the_jobs_own_exit_code_comes_through(end, code, n_workers):
    done = probe(LOOP, "100", n_workers, "2", "2", end, options=("--probed-steps", "60"))
    assert done.code == code
    assert f"the command ended with exit code {code}" in done.err
    assert "PROBED" in done.out


@pytest.mark.parametrize(
    ("end", "code", "n_workers", "said"),
    [
        rarely(4, "exit", 3, "0", "no slopes: the run ended after"),
        rarely(4, "raise", 1, "0", "RuntimeError: the job's own"),
        ("leave", 5, "0", "no slopes: the process left without its exit handlers (os._exit, or killed)"),
        rarely(3, "worker_dies", 1, "1", "no slopes: the run ended after"),
    ],
    ids=["exit", "an error", "os._exit", "a dead worker"],
)
def test_a_job_that_ends_among_the_delays_ends_as_it_would(end, code, n_workers, said):
    done = probe(LOOP, "50", n_workers, "2", "2", end)
    assert done.code == code
    assert said in done.err
    assert "profkit: probing " in done.err
    assert done.err.count("no slopes") == 1
    assert "the probe failed" not in done.err
    assert done.err.rstrip().endswith(f"the command ended with exit code {code}")


@pytest.mark.long(4)
@pytest.mark.usefixtures("heeds_interrupts")
def test_ctrl_c_ends_it_and_what_was_measured_is_told():
    line = [sys.executable, "-m", "profkit", "probe", "--", sys.executable, LOOP, "5000", "1", "2", "2"]
    with subprocess.Popen(
        line, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as job:
        seen = 0
        while seen < 120 and job.stdout is not None and job.stdout.readline():
            seen += 1
        job.send_signal(signal.SIGINT)
        begun = time.monotonic()
        _, err = job.communicate(timeout=60)
    assert time.monotonic() - begun < 50
    assert job.returncode in (-signal.SIGINT, 130, 1)
    assert err.count("profkit: ") <= 4
    assert "profkit itself failed" not in err


def test_a_bad_call_says_what_is_wrong():
    for options, said in (
        (("--places", "nowhere"), "there is no place 'nowhere'"),
        (("--cost", "90%"), "--cost"),
        (("--probed-steps", "3"), "--probed-steps"),
    ):
        done = probe(LOOP, "10", "0", "0", "0", options=options)
        assert done.code == 2
        assert said in done.err


@pytest.mark.long(13)
def test_ranks_share_the_schedule_and_are_places(tmp_path):
    launch = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    script = str(ROOT / "tests" / "probe" / "ranks.py")
    done = probe(*launch, script, options=("--probed-steps", "80", "--cost", "30%", "-o", str(tmp_path / "probe.json")))
    assert done.code == 0, done.err
    document = json.loads((tmp_path / "probe.json").read_text())
    assert document["n_ranks"] == 2
    assert {"rank0", "rank1", "forward"} <= {one["place"] for one in document["slopes"]}
    assert done.err.count("profkit: probing") == 1
