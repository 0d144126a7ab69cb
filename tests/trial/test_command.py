"""`profkit try` on whole scripts: what it measures, what it leaves behind, how it ends where a script is no good."""

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.capture.running import ENVIRONMENT, run
from tests.conftest import ROOT, rarely

pytestmark = pytest.mark.torch

LOOP = str(ROOT / "tests" / "trial" / "loop.py")
SHORT = ("-n", "3", "--timed-steps", "6", "--yes")


def tried(*command, options=(), cwd=None):
    """Run a command under `profkit try`."""
    return run(sys.executable, "-m", "profkit", "try", *options, "--", sys.executable, *command, cwd=cwd)


@pytest.mark.long(40)
def test_workers_are_tried_and_pay_on_a_loop_that_waits(tmp_path):
    report = tmp_path / "tried.json"
    loop = (LOOP, "100", "60", "4", "save")
    done = tried(*loop, options=(*SHORT, "--only", "workers,fused,pinned", "-o", str(report)), cwd=tmp_path)
    assert done.code == 0, done.err
    assert "went on to its end" not in done.out  # every run was stopped
    assert "model.pt" in done.err  # what the script writes is said
    document = json.loads(report.read_text())
    workers, fused, pinned = (
        next(one for one in document["trials"] if one["change"] == key) for key in ("workers", "fused", "pinned")
    )
    assert workers["made"] == "num_workers 0 -> 2"
    assert workers["losses"]["is_same"]
    assert workers["gain"] > 0.3
    assert fused["made"] == "SGD(fused=True)"
    assert pinned["outcome"] == "not made"
    assert document["is_repeatable"]
    assert document["n_blocks"] == 3


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("-c", "import sys; sys.exit(7)"), 7, "ended with exit code 7"),
        (("-c", "print('no torch here')"), 3, "the command never imported torch"),
        rarely(4, ("-c", "import torch; torch.ones(2) + 1"), 3, "no training step was seen"),
        rarely(4, (LOOP, "8", "1", "1"), 3, "steps"),
        ((LOOP, "60", "1", "1", "fails"), 3, "exit code 3"),
    ],
)
def test_a_script_that_is_no_good_ends_in_one_line(arguments, code, says):
    done = tried(*arguments, options=(*SHORT, "--only", "workers"))
    assert done.code == code
    assert says in done.err
    assert "Traceback" not in done.err


def test_a_change_that_breaks_the_script_is_a_row(tmp_path):
    report = tmp_path / "tried.json"
    options = (*SHORT, "--only", "workers", "--report-of", str(ROOT / "traces" / "data_cpu.pt.trace.json.gz"))
    done = tried(LOOP, "60", "2", "1", "fails with workers", options=(*options, "-o", str(report)))
    assert done.code == 0, done.err
    (workers,) = json.loads(report.read_text())["trials"]
    assert workers["outcome"] == "failed"
    assert "no workers here" in workers["why_not"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "add --yes"),
        (("--yes", "--only", "turbo"), "there is no change 'turbo'"),
        (("--yes", "-n", "1"), "is not in the range"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_runs(options, says):
    done = tried("-c", "raise SystemExit(5)", options=options)
    assert done.code == 2
    assert says in done.err


@pytest.mark.long(8)
def test_an_interrupt_ends_the_runs_and_leaves_none_behind(heeds_interrupts, tmp_path):
    command = [sys.executable, "-m", "profkit", "try", *SHORT, "--only", "workers", "--", sys.executable, LOOP]
    options = ["1000", "50", "1"]
    child = subprocess.Popen(
        [*command, *options], env=ENVIRONMENT, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 60
    while child.poll() is None and "runs at most" not in (line := child.stderr.readline()):
        assert time.monotonic() < until, line
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Traceback" not in err
    until = time.monotonic() + 30  # a loader's worker looks every five seconds whether its parent lives
    while subprocess.run(["pgrep", "-f", f"{LOOP} 1000 50 1"], capture_output=True, check=False).stdout:
        assert time.monotonic() < until
