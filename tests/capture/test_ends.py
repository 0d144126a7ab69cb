"""The ways a run ends, and what is missing: the script's own end comes first, and one line says what was lost."""

import re
import signal
import subprocess
import sys
import time

import pytest

from profkit.api import triage
from tests.capture.running import ENVIRONMENT, ROOT, SCRIPTS, capture, names, run, trace
from tests.conftest import rarely

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

PLAIN = str(SCRIPTS / "plain.py")


@pytest.mark.parametrize(("end", "code"), [rarely(4, "raise", 1), ("sigterm", -signal.SIGTERM)])
def test_an_early_end_keeps_its_code_and_what_was_recorded(end, code, tmp_path):
    done = capture(tmp_path / "out", sys.executable, PLAIN, "30", "0", end)
    assert (done.code, done.out) == (code, "")
    assert names(trace(tmp_path / "out"))[:2] == ["ProfilerStep#15", "ProfilerStep#16"]
    assert trace(tmp_path / "out")["profkit_is_cut"] is True
    report = triage([str(tmp_path / "out")]).ranks[0]
    assert report.steps.n == len(names(trace(tmp_path / "out"))) - 1, "the step that was cut is no step"
    assert "the recording ended inside the last marked step, which is left out" in report.warnings
    assert "INCOMPLETE: the run ended during the recording" in done.err


WAITING = """
import signal, sys, time
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    time.sleep(0.5)  # a second interrupt would come here
    sys.exit(7)
"""


@pytest.mark.usefixtures("heeds_interrupts")
def test_an_interrupt_of_profkit_alone_reaches_the_script_once(tmp_path):
    line = [
        *(sys.executable, "-m", "profkit", "capture", "-o", str(tmp_path / "out"), "--", sys.executable, "-c"),
        WAITING,
    ]
    with subprocess.Popen(line, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (7, "interrupted\n")


@pytest.mark.long(3)
def test_os_exit_is_told_from_what_it_left(tmp_path):
    done = capture(tmp_path / "out", sys.executable, PLAIN, "30", "0", "os_exit")
    assert done.code == 5
    assert "left without its exit handlers" in done.err


@pytest.mark.long(7)
def test_a_run_shorter_than_the_window_says_how_much_was_missing(tmp_path):
    done = capture(tmp_path / "out", sys.executable, PLAIN, "8")
    assert (done.code, done.out[:4]) == (0, "loss")
    assert "8 steps of the script were seen to end, a capture with these options needs 20" in done.err
    fits = re.search(r"(--unprofiled-steps \d+ --steps \d+) would fit", done.err)
    assert fits, done.err
    options = (*fits[1].split(), "--overwrite")
    assert capture(tmp_path / "out", sys.executable, PLAIN, "8", options=options).code == 0
    (tmp_path / "out" / "rank0.pt.trace.json.gz").unlink()
    assert not list((tmp_path / "out").glob("*.gz"))


@pytest.mark.long(4)
def test_a_full_disk_costs_the_trace_alone(tmp_path):
    done = capture(tmp_path / "out", sys.executable, PLAIN, "30", "0", "full_disk")
    assert done.out.startswith("loss")
    assert done.code == 0
    assert "perhaps the disk is full" in done.err


def test_an_unwritable_folder_costs_the_trace_alone(tmp_path):
    (tmp_path / "file").write_text("")
    done = capture(tmp_path / "file" / "out", sys.executable, "-c", "print(7)")
    assert (done.code, done.out) == (0, "7\n")
    assert done.err.count("profkit:") == 1
    assert "cannot write" in done.err
    strict = capture(tmp_path / "file" / "out", sys.executable, "-c", "print(7)", options=("--strict",))
    assert (strict.code, strict.out) == (4, "")


def test_no_torch_old_torch_and_no_python_are_said_in_a_line(tmp_path):
    (tmp_path / "old" / "torch").mkdir(parents=True)
    (tmp_path / "old" / "torch" / "__init__.py").write_text("__version__ = '1.13.1'\n")
    hook = f"{tmp_path / 'old'}:{ROOT}"
    old = capture(tmp_path / "a", sys.executable, "-c", "import torch; print(7)", PYTHONPATH=hook)
    assert (old.code, old.out) == (0, "7\n")
    assert "torch 1.13.1 is too old" in old.err
    none = capture(tmp_path / "b", sys.executable, "-c", "print(7)")
    assert (none.code, none.out) == (0, "7\n")
    assert "never imported torch" in none.err
    absent = capture(tmp_path / "c", "no-such-program")
    assert absent.code == 2
    assert "there is no program 'no-such-program'" in absent.err


def test_another_sitecustomize_is_run_and_sys_path_is_as_before(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.mark = 'theirs'\n")
    script = "import sys, sitecustomize; print(mark, sitecustomize.__file__, sys.path, sys.argv)"
    expected = run(sys.executable, "-c", script, "a", PYTHONPATH=f"{tmp_path}:{ROOT}")
    done = capture(tmp_path / "out", sys.executable, "-c", script, "a", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.out == expected.out
    assert done.out.startswith("theirs")
