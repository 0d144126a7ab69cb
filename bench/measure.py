"""Wall time, CPU time and peak memory of a command, its child processes included."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

REPO_ROOT = Path(__file__).resolve().parent.parent
SAMPLE_PERIOD_S = 0.02
"""Time between two looks at the process tree; a pool that lives shorter than this may be missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one run of a command took."""

    wall_s: float
    """From before the start of the process to its end, interpreter and imports included."""
    cpu_s: float
    """User plus system time of the process and of the children it waited for."""
    peak_bytes: int
    """The larger of: the highest peak RSS of any one process (`ru_maxrss`, exact), and the highest sum of RSS
    over the tree (sampled every 20 ms; pages that processes share count once in each)."""
    exit_code: int
    stdout: str
    stderr: str

    @property
    def last_error(self) -> str:
        """The last line on stderr: what a failed command had to say."""
        return (self.stderr.strip() or "no message").splitlines()[-1]


def measure(command: Sequence[str | Path]) -> Usage:
    """Give the usage of `command`, run in the repository root with an empty stdin.

    Linux only: it gives `ru_maxrss` in KiB, and counts the memory of the forking parent into the child's peak
    (`exec_mmap` keeps the high-water mark of the old image). The caller must therefore stay smaller than what
    it measures: inputs are built in a process of their own.
    """
    environment = os.environ | {"PYTHONHASHSEED": "0", "NO_COLOR": "1"}
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        start_s = time.perf_counter()
        process = subprocess.Popen(
            list(map(str, command)),
            cwd=REPO_ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        )
        try:
            with _TreePeak(process.pid) as tree:
                _, status, usage = os.wait4(process.pid, 0)
                wall_s = time.perf_counter() - start_s
        except BaseException:
            process.kill()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)  # reaped here: Popen must not wait again
        stdout.seek(0)
        stderr.seek(0)
        return Usage(
            wall_s=wall_s,
            cpu_s=usage.ru_utime + usage.ru_stime,
            peak_bytes=max(usage.ru_maxrss * 1024, tree.peak_bytes),
            exit_code=process.returncode,
            stdout=stdout.read().decode(errors="replace"),
            stderr=stderr.read().decode(errors="replace"),
        )


class _TreePeak:
    """A thread that watches the sum of RSS over a process and its descendants."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._root = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_PERIOD_S):
            self.peak_bytes = max(self.peak_bytes, self._tree_bytes())

    def _tree_bytes(self) -> int:
        total = 0
        with contextlib.suppress(psutil.Error):  # ended between two looks
            for process in (self._root, *self._root.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    total += process.memory_info().rss
        return total


def say(line: str) -> None:
    """Print a line of progress on stderr."""
    print(line, file=sys.stderr, flush=True)
