"""Workers, kept at work: replaced when they have done much, crash, hang or run out of memory; counts what they tell."""

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Any

from tests.fuzz import finds
from tests.fuzz.bases import ROOT
from tests.fuzz.documents import Case
from tests.fuzz.finds import Find
from tests.fuzz.kinds import case_of
from tests.fuzz.oracles import Fault
from tests.fuzz.target import LIMIT_S

WEIGHTS = {"kineto": 5, "native": 2, "nsys": 4, "ranks": 1, "compare": 2, "handover": 1, "tables": 3, "ncu": 3}
CHUNK = 25
_RECYCLED_AFTER = 4000
_FROM_OUTSIDE = ("SIGTERM", "SIGKILL", "SIGHUP", "SIGINT")
"""Signals that others send: an input is a find only where its process gets one again."""


@dataclass
class Plan:
    """What to try: `minutes` or `n_inputs` end it, whichever is first."""

    seed: str
    kinds: list[str]
    minutes: float
    jobs: int = 1
    start: int = 0
    n_inputs: int = 0
    out: Path = ROOT / "out" / "fuzz"
    minimise_s: float = 15.0
    weights: Mapping[str, int] = field(default_factory=lambda: WEIGHTS)
    limit_s: float = 2 * LIMIT_S + 10
    """How long one input may take before its process is killed: two commands, and some grace."""
    command: tuple[str, ...] = (sys.executable, "-m", "tests.fuzz.worker")


@dataclass
class Tally:
    """What has come of one kind."""

    n: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    cpu_s: float = 0.0
    slowest: tuple[float, int] = (0.0, -1)
    peak_mb: tuple[int, int] = (0, -1)


@dataclass
class _Process:
    """A worker: what it is at, until when it may be, and what it has still to do."""

    child: subprocess.Popen[bytes]
    place: int
    begun: tuple[str, int] | None = None
    until: float = 0.0
    todo: tuple[str, int, int] | None = None
    n_done: int = 0
    rest: bytes = b""


class Supervisor:
    """Runs a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.tallies = {kind: Tally() for kind in plan.kinds}
        self.finds: dict[str, dict[str, Any]] = {}
        self.counts: Counter[str] = Counter()
        self.n_restarts = 0
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else gettempdir()  # noqa: S108 - memory, not a disk
        self._folder = Path(mkdtemp(prefix="profkit-fuzz-", dir=base))
        self._chunks = self._planned()
        self._again: list[tuple[str, int, int]] = []
        self._died: set[tuple[str, int]] = set()
        self._selector = selectors.DefaultSelector()
        self._until = 0.0
        self._is_over = False

    def run(self) -> None:
        """Try until the time or the inputs are over."""
        self._until = time.monotonic() + self.plan.minutes * 60
        processes = [self._started(place) for place in range(self.plan.jobs)]
        try:
            for process in processes:
                self._give(process)
            while processes:
                self._listen()
                for process in [*processes]:
                    if self._is_hanging(process):
                        process.child.kill()
                    if process.child.poll() is not None:
                        self._gone(process)
                        processes.remove(process)
                        if not self._is_over_now() or self._again:
                            processes.append(self._started(process.place))
                            self._give(processes[-1])
        except KeyboardInterrupt:
            self._is_over = True
        finally:
            for process in processes:
                process.child.kill()
                process.child.wait()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _planned(self) -> Iterator[tuple[str, int, int]]:
        """Chunks of each kind by its weight, without end."""
        at = dict.fromkeys(self.plan.kinds, self.plan.start)
        while True:
            for kind in self.plan.kinds:
                for _ in range(self.plan.weights[kind]):
                    yield kind, at[kind], CHUNK
                    at[kind] += CHUNK

    def _started(self, place: int) -> _Process:
        options = {
            "seed": self.plan.seed,
            "out": str(self.plan.out),
            "folder": str(self._folder / f"w{place}"),
            "minimise_s": self.plan.minimise_s,
            "kinds": self.plan.kinds,
            "known": sorted(self.finds),
        }
        environment = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        child = subprocess.Popen(
            [*self.plan.command, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=environment,
        )
        os.set_blocking(child.stdout.fileno(), False)
        process = _Process(child=child, place=place, until=time.monotonic() + 120)
        self._selector.register(child.stdout, selectors.EVENT_READ, process)
        return process

    def _is_over_now(self) -> bool:
        n = sum(tally.n for tally in self.tallies.values())
        self._is_over |= time.monotonic() > self._until or 0 < self.plan.n_inputs <= n
        return self._is_over

    def _give(self, process: _Process) -> None:
        """Hand over the next chunk, or end the process, which leaves when its input does."""
        if (self._is_over_now() and not self._again) or process.n_done > _RECYCLED_AFTER:
            process.todo = None
            process.child.stdin.close()
            return
        kind, start, count = process.todo = self._again.pop() if self._again else next(self._chunks)
        if self.plan.n_inputs:
            left = self.plan.n_inputs - sum(tally.n for tally in self.tallies.values())
            process.todo = kind, start, min(count, left) or 1
        try:
            process.child.stdin.write("{} {} {}\n".format(*process.todo).encode())
            process.child.stdin.flush()
        except BrokenPipeError:  # it died meanwhile: `_gone` sees to it
            pass

    def _listen(self) -> None:
        for key, _ in self._selector.select(timeout=0.5):
            if not self._read(key.data):
                self._selector.unregister(key.fileobj)
                with suppress(subprocess.TimeoutExpired):
                    key.data.child.wait(timeout=10)

    def _read(self, process: _Process) -> bool:
        """Hear what a worker has said meanwhile; False where there is nothing and will be nothing."""
        try:
            data = os.read(process.child.stdout.fileno(), 2**20)
        except BlockingIOError:
            return True
        lines = (process.rest + data).split(b"\n")
        process.rest = lines.pop()
        for line in lines:
            self._hear(process, line.decode())
        return bool(data)

    def _hear(self, process: _Process, line: str) -> None:
        what, _, rest = line.partition(" ")
        now = time.monotonic()
        if what == "b":
            kind, index = rest.split()
            process.begun, process.until = (kind, int(index)), now + self.plan.limit_s
        elif what == "m":
            process.until = now + float(rest) + self.plan.limit_s
        elif what == "e":
            kind, index, *more = rest.split()
            _, start, count = process.todo or (kind, 0, 0)
            process.begun, process.todo = None, (kind, int(index) + 1, start + count - int(index) - 1)
            process.n_done += 1
            self._count(kind, index, *more)
        elif what == "f":
            told = json.loads(rest)
            if told["signature"] not in self.finds:
                self.finds[told["signature"]] = told
                sys.stdout.write(f"FIND {told['signature'][:160]}\n     --only {told['only']}   {told['place']}\n")
                sys.stdout.flush()
        elif what == "d":
            self._give(process)

    def _count(self, kind: str, index: str, code: str, cpu_s: str, wall_s: str, peak_mb: str) -> None:
        tally = self.tallies[kind]
        tally.n += 1
        tally.codes[int(code)] += 1
        tally.cpu_s += float(cpu_s)
        tally.slowest = max(tally.slowest, (float(wall_s), int(index)))
        tally.peak_mb = max(tally.peak_mb, (int(peak_mb), int(index)))

    def _is_hanging(self, process: _Process) -> bool:
        return process.child.poll() is None and process.todo is not None and time.monotonic() > process.until

    def _gone(self, process: _Process) -> None:
        """What a process that ended was at is a find, and the rest of its chunk is tried by the next one."""
        self.n_restarts += 1
        if process.child.stdout in {key.fileobj for key in self._selector.get_map().values()}:
            self._read(process)  # its last words; a child of its own may hold the pipe for longer
            self._selector.unregister(process.child.stdout)
        for pipe in (process.child.stdin, process.child.stdout):
            with suppress(OSError):  # what could not be written any more
                if pipe is not None:
                    pipe.close()
        if process.todo is None:
            return
        if process.begun is None and process.child.returncode < 0:  # stopped by somebody between two inputs
            self._again.append(process.todo)
            return
        if process.begun is None:
            raise RuntimeError(f"a worker ended with {process.child.returncode} between inputs: see its stderr")
        kind, index = process.begun
        if process.child.returncode == 1:
            raise RuntimeError(f"the fuzzer failed at {self.plan.seed}:{kind}:{index}: see the worker's traceback")
        how = "killed: hanging" if time.monotonic() > process.until else _name_of(process.child.returncode)
        _, start, count = process.todo
        if how in _FROM_OUTSIDE and (kind, index) not in self._died:  # by somebody, or by the system for its memory
            self._died.add((kind, index))
            self._again.append((kind, index, start + count - index))
            return
        self._count(kind, str(index), "70", "0", "0", "0")
        fault = Fault(oracle="process", key=f"{how} ({kind})", said=f"the process died: {how}")
        case: Case = case_of(self.plan.seed, kind, index)
        if fault.signature not in self.finds:
            find = Find(fault=fault, case=case, only=f"{self.plan.seed}:{kind}:{index}")
            place = finds.write(find, self.plan.out)
            self.finds[fault.signature] = {**finds.about(find), "place": str(place)}
            sys.stdout.write(f"FIND {fault.signature}\n     --only {find.only}   {place}\n")
        if index + 1 < start + count:
            self._again.append((kind, index + 1, start + count - index - 1))


def _name_of(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
