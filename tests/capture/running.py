"""Scripts run plain and captured, and what their traces hold."""

import gzip
import json
import os
import pty
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).resolve().parent / "scripts"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}

FORKING = """
import atexit, gc, json, os, runpy, sys, threading
import torch._dynamo  # an optimizer imports it: once for all of them
for name, module in list(sys.modules.items()):
    if name.endswith("capture.options"):
        module.ENOUGH_NS = 0  # of short steps as many are recorded as of long ones
gc.freeze()  # else a child's collector copies the pages of all that, in the middle of a step
for number, line in enumerate(sys.stdin):
    script, *arguments = json.loads(line)
    if os.fork() == 0:
        os.dup2(os.open(f"{sys.argv[1]}/{number}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(os.open(f"{sys.argv[1]}/{number}.err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        sys.stdin = open(os.devnull)
        print(os.getpid(), flush=True)
        sys.argv = [script, *arguments]
        runpy.run_path(script, run_name="__main__")
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(0)  # Python's own end but for taking torch's modules apart, which takes a second
    with open(f"{sys.argv[1]}/{number}.code", "w") as file:
        file.write(str(os.waitstatus_to_exitcode(os.wait()[1])))
"""
"""Runs scripts one by one, each in a child forked from a Python that has imported torch: seconds less for each.

Whole processes, with the end that Python gives them, are `test_ends`' and `test_session`'s.
"""


@dataclass
class Done:
    """How a process ended and what it wrote."""

    code: int
    out: str
    err: str = ""


@dataclass
class Forked:
    """A script that `run_forked` ran."""

    pid: int
    code: int
    out: str
    err: str


def run_forked(
    folder: Path, scripts: list[tuple[str, ...]], *, out: Path | None = None, options: tuple[str, ...] = ()
) -> list[Forked]:
    """Run scripts to their ends, under one `profkit capture` if `out` names its folder; give what they wrote."""
    folder.mkdir()
    lines = "".join(json.dumps([str(SCRIPTS / script), *arguments]) + "\n" for script, *arguments in scripts)
    command = [sys.executable, "-c", FORKING, str(folder)]
    if out is not None:
        command = [sys.executable, "-m", "profkit", "capture", "-o", str(out), *options, "--", *command]
    subprocess.run(command, env=ENVIRONMENT, input=lines, text=True, check=False, capture_output=True, timeout=300)
    return [_forked(folder / str(number)) for number in range(len(scripts))]


def _forked(place: Path) -> Forked:
    out, err, code = (place.with_suffix(f".{kind}").read_text() for kind in ("out", "err", "code"))
    pid, _, out = out.partition("\n")
    return Forked(pid=int(pid), code=int(code), out=out, err=err)


def trace_path(folder: Path, pid: int) -> Path:
    """Give the file that holds a process' trace."""
    return folder / next(one["trace"] for one in manifest(folder)["ranks"] if one["pid"] == pid)


def trace_of(folder: Path, pid: int) -> dict[str, Any]:
    """Give the trace of a process, as JSON."""
    with gzip.open(trace_path(folder, pid)) as file:
        return json.load(file)


def capture(folder: Path, *command: str, options: tuple[str, ...] = (), **environment: str) -> Done:
    """Run a command under `profkit capture`."""
    line = [sys.executable, "-m", "profkit", "capture", "-o", str(folder), *options, "--", *command]
    return run(*line, **environment)


def run(*command: str, cwd: Path | None = None, **environment: str) -> Done:
    """Run a command."""
    done = subprocess.run(
        command, env={**ENVIRONMENT, **environment}, cwd=cwd, capture_output=True, text=True, check=False, timeout=120
    )
    return Done(code=done.returncode, out=done.stdout, err=done.stderr)


def trace(folder: Path, rank: int = 0) -> dict[str, Any]:
    """Give the trace of a rank as JSON."""
    with gzip.open(folder / f"rank{rank}.pt.trace.json.gz") as file:
        return json.load(file)


def manifest(folder: Path) -> dict[str, Any]:
    """Give capture.json."""
    return json.loads((folder / "capture.json").read_text())


def line_of(marked: str, path: str | Path) -> int:
    """Give the number of the line of a file that ends in such a comment."""
    lines = Path(path).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {marked}"))


def typed_into(command: list[str], *exchange: tuple[bytes, bytes], within_s: float) -> tuple[int, bytes]:
    """Run a command on a terminal of its own, typing what follows once something was said; gives its code and words."""
    terminal, inner = pty.openpty()
    line = ["setsid", "--ctty", "--wait", *command]
    child = subprocess.Popen(line, stdin=inner, stdout=inner, stderr=inner, env=ENVIRONMENT, cwd=ROOT)
    os.close(inner)
    said, left, until = b"", [*exchange], time.monotonic() + within_s
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                said += os.read(terminal, 4096)
            except OSError:  # how a terminal ends
                break
        if left and left[0][0] in said:
            os.write(terminal, left.pop(0)[1])
    os.close(terminal)
    code = child.wait(timeout=within_s)
    assert not left, said
    return code, said


def steps(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Give the step markers in order of time."""
    found = [event for event in content["traceEvents"] if str(event.get("name", "")).startswith("ProfilerStep#")]
    return sorted(found, key=lambda event: event["ts"])


def names(content: dict[str, Any]) -> list[str]:
    """Give the names of the step markers."""
    return [event["name"] for event in steps(content)]


def per_step(content: dict[str, Any], name: str) -> list[int]:
    """Give how many ranges of this name begin in each step."""
    ranges = [event for event in content["traceEvents"] if event.get("name") == name and event["ph"] == "X"]
    return [sum(step["ts"] <= event["ts"] < step["ts"] + step["dur"] for event in ranges) for step in steps(content)]


def crossing(content: dict[str, Any]) -> list[str]:
    """Give the names of the host's ranges that lie across a step's edge."""
    kinds = ("cpu_op", "user_annotation")
    found: list[str] = []
    for step in steps(content):
        begin, end, row = step["ts"], step["ts"] + step["dur"], (step["pid"], step["tid"])
        for event in content["traceEvents"]:
            if event.get("cat") in kinds and event["ph"] == "X" and (event["pid"], event["tid"]) == row:
                first, last = event["ts"], event["ts"] + event["dur"]
                if first < begin < last < end or begin < first < end < last:
                    found.append(event["name"])
    return found
