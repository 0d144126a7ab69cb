"""A command in a process group of its own: signals reach it once, and the terminal is its own, as under a shell."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.capture.running import ENVIRONMENT, ROOT, typed_into

pytestmark = pytest.mark.skipif(not hasattr(signal, "sigtimedwait"), reason="signals cannot be waited for")
_LONG_S = 60
CHILD = """
import select, signal, sys, time
told = []
signal.signal(signal.SIGINT, lambda *_: told.append(1))
signal.signal(signal.SIGTERM, lambda *_: print("TERM", flush=True))
print("begun", flush=True)
until = time.monotonic() + 60
while not told and time.monotonic() < until:
    if sys.stdin.isatty() and select.select([0], [], [], 0.05)[0]:
        print("got", sys.stdin.readline(), flush=True)
    time.sleep(0.05)
time.sleep(0.6)  # a second one would come here
print("SIGINT", len(told), flush=True)
sys.exit(7)
"""
RUN = f"""
import sys
from profkit.capture.runner import run
sys.exit(run([sys.executable, "-c", {CHILD!r}], options=None, has_group=True).code)
"""
SHELL = f"""
import os, signal, subprocess, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = subprocess.Popen([sys.executable, "-c", {RUN!r}], process_group=0)
os.tcsetpgrp(0, job.pid)
while True:
    _, status = os.waitpid(job.pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        break
    os.tcsetpgrp(0, os.getpgrp())
    print("prompt", flush=True)
    os.tcsetpgrp(0, job.pid)
    os.killpg(job.pid, signal.SIGCONT)
print("terminal", os.tcgetpgrp(0) == job.pid, "code", os.waitstatus_to_exitcode(status), flush=True)
"""


@pytest.mark.usefixtures("heeds_interrupts")
@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_to_the_group_reaches_the_command_once(times: int) -> None:
    """`timeout` sends two: to its command, and to the group."""
    with subprocess.Popen(
        [sys.executable, "-c", RUN], env=ENVIRONMENT, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        text=True, process_group=0,
    ) as job:  # fmt: skip
        assert job.stdout.readline() == "begun\n"
        os.killpg(job.pid, signal.SIGTERM)
        assert job.stdout.readline() == "TERM\n"
        for _ in range(times):
            os.killpg(job.pid, signal.SIGINT)
            time.sleep(0.02)
        out, _ = job.communicate(timeout=_LONG_S)
    assert (job.returncode, out) == (7, "SIGINT 1\n")


@pytest.mark.usefixtures("heeds_interrupts")
def test_the_command_has_the_terminal_and_gives_it_back_while_it_is_stopped() -> None:
    """What is typed, Ctrl-Z, what is typed then, Ctrl-C."""
    exchange = [(b"begun", b"one\n"), (b"got one", b"\x1a"), (b"prompt", b"two\n"), (b"got two", b"\x03")]
    code, said = typed_into([sys.executable, "-c", SHELL], *exchange, within_s=_LONG_S)
    assert code == 0, said
    assert said.count(b"prompt") == 1, said
    assert b"SIGINT 1" in said
    assert b"terminal True code 7" in said
