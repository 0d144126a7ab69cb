"""`profkit nsys` with a real Nsight Systems on jobs without a GPU (`.ci/nsys` installs one)."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profkit import signing, triage
from profkit.ingest.nsys.session import command_beside
from tests.capture.running import ENVIRONMENT, ROOT, typed_into

pytestmark = [
    pytest.mark.nsys,
    pytest.mark.skipif(shutil.which("nsys") is None, reason='no nsys on PATH: export PATH="$(.ci/nsys):$PATH"'),
]
_LONG_S = 120
NSYS = (sys.executable, "-m", "profkit", "nsys", "--whole", "--also", "waits", "-o")
SLEEPER = """
import time
print("begun", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    raise SystemExit(3)
"""


def recorded(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [*NSYS, str(folder / "out"), "--", sys.executable, *words]
    return subprocess.run(line, check=False, capture_output=True, text=True, env=ENVIRONMENT, cwd=ROOT, timeout=_LONG_S)


@pytest.mark.torch
def test_a_starved_job_on_the_cpu_is_data_bound(tmp_path: Path) -> None:
    """It ends inside its last marked step, which is none: of 14 steps the 6th to the 14th are marked and over."""
    done = recorded(tmp_path, "-m", "workloads.train", "--regime", "data", "--device", "cpu", "--steps", "14")
    assert done.returncode == 0, done.stderr
    marked = re.search(r"steps (\d+) to (\d+) are marked", done.stderr)
    assert marked is not None, done.stderr
    report = triage([str(tmp_path / "out" / "profile.sqlite")])
    (rank,) = report.ranks
    assert rank.steps.n == int(marked[2]) - int(marked[1]) + 1
    assert rank.steps.n >= 6
    usual = sorted(rank.steps.durations_ns)[rank.steps.n // 2]
    assert max(rank.steps.durations_ns) < 10 * usual, "a step with the end of the process in it"
    assert report.verdict.bottleneck.value == "data-bound"
    said = " ".join(item.statement for finding in report.verdict.findings for item in finding.evidence)
    assert "num_workers=0" in said
    assert re.search(r"of these waits, clock_nanosleep takes \d\d", said)


def test_a_script_that_fails_keeps_its_exit_code_and_its_report(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("import sys, time; time.sleep(0.1); sys.exit(7)")
    done = recorded(tmp_path, str(script))
    assert done.returncode == 7
    assert f"profkit triage {tmp_path}/out/profile.sqlite" in done.stderr
    refused = subprocess.run(
        [sys.executable, "-m", "profkit", "triage", str(tmp_path / "out" / "profile.sqlite")],
        check=False, capture_output=True, text=True, env=ENVIRONMENT, cwd=ROOT,
    )  # fmt: skip
    assert refused.returncode == 3
    assert "marks the steps of a PyTorch job" in refused.stderr


@pytest.mark.usefixtures("heeds_interrupts")
@pytest.mark.parametrize("n_signals", [1, 2])
def test_an_interrupt_of_the_group_leaves_a_report_and_two_leave_nothing(tmp_path: Path, n_signals: int) -> None:
    """On the second one nsys gives up, and may leave its recording, with the environment in it."""
    script = tmp_path / "sleeps.py"
    script.write_text(SLEEPER.replace("SystemExit(3)", "SystemExit(time.sleep(3) or 3)"))
    env = {**ENVIRONMENT, "TMPDIR": str(tmp_path)}
    line = [*NSYS, str(tmp_path / "out"), "--", sys.executable, str(script)]
    with subprocess.Popen(
        line, env=env, cwd=ROOT, process_group=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout.readline() == "begun\n"
        for _ in range(n_signals):
            os.killpg(job.pid, signal.SIGINT)
            time.sleep(0.25)
        _, said = job.communicate(timeout=_LONG_S)
    assert (tmp_path / "out" / "profile.sqlite").exists() is (n_signals == 1), said
    assert not list(tmp_path.glob("**/*.qdstrm")), said
    assert "--whole waits" not in said


def test_control_c_ends_the_script_and_leaves_a_report(tmp_path: Path) -> None:
    """As a terminal sends it: once to each process of the group."""
    script = tmp_path / "sleeps.py"
    script.write_text(SLEEPER)
    line = [*NSYS, str(tmp_path / "out"), "--", sys.executable, str(script)]
    code, said = typed_into(line, (b"begun", b"\x03"), within_s=_LONG_S)
    assert code == 3, said
    assert (tmp_path / "out" / "profile.sqlite").exists(), said


def test_the_command_of_the_capture_is_the_next_one_where_this_user_made_it(tmp_path: Path) -> None:
    """An export names the program inside; of another user's, and of a file that is not of it, that is all."""
    script = tmp_path / "fails.py"
    script.write_text("import time; time.sleep(0.1)")
    folder = tmp_path / "out"
    shell = ("sh", "-c", 'exec "$@"', "sh", sys.executable, str(script))
    line = [*NSYS, str(folder), "--", *shell]
    env = {**ENVIRONMENT, "XDG_DATA_HOME": os.environ["XDG_DATA_HOME"]}
    done = subprocess.run(line, check=False, capture_output=True, env=env, cwd=ROOT, timeout=_LONG_S)
    assert done.returncode == 0
    told = command_beside(folder / "profile.sqlite")
    assert shlex.split(told["profkit_command"]) == list(shell)
    assert signing.holds(signing.COMMAND, told["profkit_command"].encode(), told["profkit_command_mark"])
    assert command_beside(folder / "other.sqlite") == {}
    manifest = folder / "capture.json"
    manifest.write_text(manifest.read_text().replace("fails.py", "others.py"))
    assert command_beside(folder / "profile.sqlite") == {}
