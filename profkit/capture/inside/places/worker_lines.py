# ruff: noqa: PTH112, PTH113 - texts and descriptors, once per batch
"""Which lines of the script's own code DataLoader workers spend their time on, looked at while they make batches.

In each worker a thread looks at the stack every 2 ms while batches are wanted to be watched, and adds up the time
between looks by the innermost line of the script's own. A batch counts whole or not at all: its first part alone would
say too much of what is done first. Nothing of the script's is called or held; what was seen goes into a file in a
folder of ours, as times of fetches do (`loader`). Runs in the traced process and its workers: standard library and
torch only.
"""

from __future__ import annotations

import json
import linecache
import os
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

from ...beside import files
from ...place import fetch_folder
from .looked import Lines, Moment, frames_now, nothing_collected
from .owners import LONGEST_PATH, MOST_CHARS, is_own_path, place_of, shown_path
from .stream_runs import Runs

_EVERY_S: Final = 0.002
_SWITCH_S: Final = 0.0001
"""How long a look waits for Python code to let it go on: with the usual 5 ms it mostly saw the next call into torch,
which lets others go on as well. Measured once with `tests/capture/slow/workers.py` (torch 2.13): of a line that runs
nearly all of the time it said 88 %, now 99 %."""
_PROMPT_NS: Final = 80_000
"""A look that comes sooner has not waited for the interval to pass. Chosen: a little below it."""
_MOST_LINES: Final = 200
"""Distinct lines of one batch. Chosen: a dataset has a dozen."""
_MOST_BATCHES: Final = 500
"""Watched of one worker (chosen): the second window lasts seconds."""
_ENOUGH_LOOKS: Final = 200
"""Of one worker, after which it is left alone (chosen): half of the time is then 43 to 57 % (95 %)."""
_COUNTED: Final = 3
"""Batches of a stream of which lines are counted, and not looked at. Chosen: 96 samples of usual batches."""
_MOST_WORKERS: Final = 1024
_MOST_BYTES: Final = 4 * 2**20
_MOST_TOLD: Final = 20
_NS: Final = 10**15
_NOWHERE: Final = ("", "", 0, 0, "")
"""In place of a line: none of the script's own ran."""
_WRAPPERS: Final = frozenset(("wrapper", "inner", "_fn", "decorate_context", "<listcomp>", "<genexpr>"))


class Line(NamedTuple):
    """A line of the script's own that runs, and the function that it has called."""

    code: CodeType
    line: int
    """0 where it is one of several lines of the function."""
    called: CodeType | None


def lines_folder(process: int, capture_id: str) -> Path:
    """The folder of what a process's workers were seen to do."""
    return fetch_folder(process, f"lines-{capture_id}")


class LineLog:
    """The lines of all workers of this process, in a temporary folder that is there while they are wanted."""

    def __init__(self, capture_id: str) -> None:
        self._folder = lines_folder(os.getpid(), capture_id)
        self._pid = os.getpid()
        self.is_made = self._is_open = False

    def open(self) -> None:
        """From now on workers look at the batches that they begin."""
        with suppress(OSError):
            self._folder.mkdir(mode=0o700)  # not one that is there: whose is it?
            self.is_made = True
            (self._folder / "open").mkdir()
            self._is_open = True

    def shut(self) -> None:
        """From now on they begin none; those that they have begun they end."""
        if self._is_open:
            self._is_open = False
            with suppress(OSError):
                (self._folder / "open").replace(self._folder / "shut")

    def delete(self) -> None:
        """Remove the files, in the process that made them."""
        self.shut()
        if self.is_made and self._pid == os.getpid():
            shutil.rmtree(self._folder, ignore_errors=True)
            self.is_made = False

    def told(self) -> dict[str, Any]:
        """What the workers did in whole batches so far: times in ns, `lines` with most of it first; {} of none."""
        found: dict[tuple[Any, ...], list[int]] = {}
        fetch_ns = seen_ns = n_batches = n_looks = n_workers = 0
        counted: list[dict[str, Any]] = []
        folder = self._folder / ("open" if self._is_open else "shut")
        for path in islice(sorted(folder.glob("*.lines")), _MOST_WORKERS):
            rows = _batches(path)
            batches = [row for row in rows if _is_whole(row)]
            counted += [row for row in rows if _is_counted(row)]
            n_workers += bool(batches)
            for batch in batches:
                n_batches, fetch_ns = n_batches + 1, fetch_ns + batch["ns"]
                for *line, ns, looks in batch["lines"]:
                    n_looks, seen_ns = n_looks + looks, seen_ns + ns
                    seen = found.setdefault(tuple(line), [0, 0])
                    seen[0], seen[1] = seen[0] + ns, seen[1] + looks
        if not seen_ns:
            return {}
        found.pop(_NOWHERE, None)
        most = sorted(found.items(), key=lambda item: -item[1][0])[:_MOST_TOLD]
        lines = [{**as_told(*line), "ns": ns, "n_looks": looks} for line, (ns, looks) in most]
        counts = {"n_workers": n_workers, "n_batches": n_batches, "n_looks": n_looks}
        told = {"fetch_ns": fetch_ns, "seen_ns": seen_ns, **counts, "lines": lines}
        return {**told, "stream": _stream(counted)} if counted else told


def as_told(path: str, function: str, defined: int, line: int, called: str) -> dict[str, Any]:
    """A line (`words_of`) as plain values, with what stands in it."""
    is_text = is_own_path(path) and (path in linecache.cache or os.path.isfile(path))  # no pipe, which might never end
    text = linecache.getline(path, line).strip()[:MOST_CHARS] if is_text else ""
    place = {"file": shown_path(path), "function": function, "defined": defined, "line": line}
    return {**place, "text": text, "call": called}


def _batches(path: Path) -> list[Any]:
    """What a worker wrote; a line that is not whole, as where the worker was killed, counts as none."""
    try:
        with files().open_file(path, follow=False) as file:
            texts = file.read(_MOST_BYTES).split(b"\n")[:_MOST_BATCHES]
    except OSError:
        return []
    found = []
    for text in texts:
        with suppress(ValueError, RecursionError):
            found.append(json.loads(text))
    return found


def _stream(counted: list[dict[str, Any]]) -> dict[str, Any]:
    """How often lines of the generators behind a stream ran for so many samples, and for how long."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for row in counted:
        for *line, runs, given, ns in row["reads"]:
            seen = found.setdefault(tuple(line), [0, 0, 0])
            seen[:] = [one + other for one, other in zip(seen, (runs, given, ns))]  # noqa: B905 - Python 3.9
    most = sorted(found.items(), key=lambda item: -item[1][2])[:_MOST_TOLD]
    lines = [{**as_told(*line), "runs": runs, "given": given, "ns": ns} for line, (runs, given, ns) in most]
    sums = {key: sum(row[key] for row in counted) for key in ("n_samples", "ns")}
    return {**sums, "n_workers": counted[0]["n_workers"], "lines": lines}


def _is_counted(row: Any) -> bool:
    kinds = (str, str, int, int, str, int, int, int)
    return (
        isinstance(row, dict)
        and isinstance(row.get("reads"), list)
        and all(_is_number(row.get(key)) for key in ("n_samples", "n_workers", "ns"))
        and all(_is_line(line, kinds) for line in row["reads"])
    )


def _is_line(line: Any, kinds: tuple[type, ...]) -> bool:
    return (
        isinstance(line, list)
        and len(line) == len(kinds)
        and all(type(value) is kind for value, kind in zip(line, kinds))  # noqa: B905 - Python 3.9
        and all(len(value) <= LONGEST_PATH if isinstance(value, str) else _is_number(value) for value in line)
    )


def _is_whole(batch: Any) -> bool:
    if not isinstance(batch, dict) or not isinstance(batch.get("lines"), list):
        return False
    kinds = (str, str, int, int, str, int, int)
    return _is_number(batch.get("ns")) and all(_is_line(line, kinds) for line in batch["lines"])


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < _NS


class LineWatch:
    """The worker's end: made before the fork, it finds out in the worker where it is."""

    def __init__(self, capture_id: str) -> None:
        self._capture_id = capture_id
        self._pid = 0
        self._folder = ""
        self._n_left, self._n_looks, self._n_counted = _MOST_BATCHES, 0, 0
        self._looker: _Looker | None = None

    def is_wanted(self, process: int) -> bool:
        """Whether the process that reads this worker's batches wants to know now."""
        if self._pid != os.getpid():
            self._pid, self._looker = os.getpid(), None
            self._n_left, self._n_looks, self._n_counted = _MOST_BATCHES, 0, 0
            self._folder = str(lines_folder(process, self._capture_id) / "open")
        if self._n_left > 0 and os.path.isdir(self._folder):
            return True
        self._leave()
        return False

    def fetched(self, make: Callable[[], Any], n_samples: int = 0, n_workers: int = 0) -> Any:
        """What `make` gives, which makes a batch; meanwhile its stack is looked at.

        Of so many samples of a stream, which several workers share, lines are counted in the first batches instead.
        """
        if n_samples and n_workers > 1 and self._n_counted < _COUNTED and self._looker is not None:
            self._n_counted += 1
            return _counted(make, n_samples, n_workers, self._looker.descriptor)
        try:
            begun = self._begin()
        except Exception:  # noqa: BLE001 - no room for a thread, a disk that is full: the batch comes first
            self._n_left = 0
            return make()
        begun_ns = time.perf_counter_ns()
        try:
            return make()
        finally:
            seen = begun.end()
            with suppress(Exception):
                self._write(seen, time.perf_counter_ns() - begun_ns)

    def _leave(self) -> None:
        """Close the file: in the thread that writes, no other can know that it does not write now."""
        looker, self._looker = self._looker, None
        if looker is not None:
            looker.ends = True
            os.close(looker.descriptor)

    def _begin(self) -> _Looker:
        self._n_left -= 1
        if self._looker is None:
            folder = os.path.dirname(self._folder)  # noqa: PTH120
            files().refuse_foreign_folder(folder)
            descriptor = files().open_to_append(f"{self._folder}/{self._pid}.lines")
            self._looker = _Looker(self._folder, descriptor)
        self._looker.begin()
        return self._looker

    def _write(self, seen: dict[Line | None, list[int]], ns: int) -> None:
        assert self._looker is not None  # noqa: S101 - it has seen them
        lines = [[*(words_of(line) if line is not None else _NOWHERE), *times] for line, times in seen.items()]
        self._n_looks += sum(looks for _, looks in seen.values())
        if self._n_looks >= _ENOUGH_LOOKS:
            self._n_left = 0
        text = json.dumps({"ns": ns, "lines": lines}) + "\n"
        os.write(self._looker.descriptor, text.encode())


def _counted(make: Callable[[], Any], n_samples: int, n_workers: int, descriptor: int) -> Any:
    """What `make` gives; how often lines ran for it is written to the file."""
    runs = Runs()
    begun_ns = time.perf_counter_ns()
    result = runs.during(make)
    with suppress(Exception):
        told = {"n_samples": n_samples, "n_workers": n_workers, "reads": runs.told()}
        text = json.dumps({**told, "ns": time.perf_counter_ns() - begun_ns}) + "\n"
        os.write(descriptor, text.encode())
    return result


def words_of(line: Line) -> tuple[str, str, int, int, str]:
    """Path, function, the line that it begins with, the line itself, what is called there."""
    code, called = line.code, line.called
    call = f"{called.co_name}()" if called is not None and not called.co_name.startswith("<") else ""
    return (*place_of(code), line.line, call[:MOST_CHARS])


def innermost(stack: list[Moment], lines: Lines, owns: Callable[[str], bool], *, is_prompt: bool) -> Line | None:
    """The innermost line of the script's own, None where none runs; `is_prompt`: see `Lines.line`."""
    begun = next((place for place, one in enumerate(stack) if not lines.is_at_start(one)), 0)
    called: CodeType | None = None
    for place, one in enumerate(stack[begun:]):
        if owns(one.code.co_filename):
            line = lines.line(one, is_prompt=is_prompt) if place == 0 else one.line
            return Line(one.code, line, called)
        if one.code.co_name not in _WRAPPERS:
            called = one.code
    return None


class _Looker:
    """A thread that looks at the one that makes it, while a batch is made; it ends when no more are to be watched."""

    def __init__(self, folder: str, descriptor: int) -> None:
        self.descriptor = descriptor
        self.ends = False
        self._folder = folder
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._seen: dict[Line | None, list[int]] | None = None
        self._is_own: dict[str, bool] = {}
        self._lines = Lines(self._owns)
        self._usual_s = 0.0
        self._random = random.Random(os.getpid())  # noqa: S311 - its own: the script's numbers stay as they are
        threading.Thread(target=self._look_on, name="profkit worker lines", daemon=True).start()

    def begin(self) -> None:
        """A batch begins."""
        self._usual_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        with self._lock:
            self._seen = {}

    def end(self) -> dict[Line | None, list[int]]:
        """It has ended: time in ns and looks by line, None for what is no line of the script's own."""
        if sys.getswitchinterval() < 2 * _SWITCH_S:  # else the script has chosen one meanwhile
            sys.setswitchinterval(self._usual_s)
        with self._lock:
            seen, self._seen = self._seen, None
        return seen or {}

    def _look_on(self) -> None:
        last_ns = time.perf_counter_ns()
        with suppress(Exception):
            while not self.ends and (
                os.path.isdir(self._folder) or self._seen is not None
            ):  # in this order: it may end inside a batch
                pause_s = _EVERY_S * self._random.uniform(0.5, 1.5)  # not in time with what the script repeats
                due_ns = time.perf_counter_ns() + round(pause_s * 1e9)
                time.sleep(pause_s)
                last_ns = self._look(last_ns, due_ns)

    def _look(self, last_ns: int, due_ns: int) -> int:
        """Give the line that runs now all the time since the last look.

        A look that comes late may have waited for what runs now to let Python go on.
        """
        with self._lock, nothing_collected():
            now_ns = time.perf_counter_ns()
            if self._seen is not None:
                stack = stack_of(frames_now().get(self._thread))
                is_prompt = time.perf_counter_ns() - due_ns < _PROMPT_NS
                line = innermost(stack, self._lines, self._owns, is_prompt=is_prompt)
                if line not in self._seen and len(self._seen) >= _MOST_LINES:
                    line = None
                times = self._seen.setdefault(line, [0, 0])
                times[0], times[1] = times[0] + now_ns - last_ns, times[1] + 1
            return now_ns

    def _owns(self, file: str) -> bool:
        if file not in self._is_own:
            self._is_own[file] = is_own_path(file)
        return self._is_own[file]


def stack_of(frame: FrameType | None) -> list[Moment]:
    """What runs below a batch, the innermost first: read at once, for a frame goes on when others are let."""
    found = []
    while frame is not None and frame.f_code is not LineWatch.fetched.__code__:  # a forked worker has its parent's
        code = frame.f_code
        found.append(Moment(code, frame.f_lasti, frame.f_lineno or code.co_firstlineno, frame.f_globals))
        frame = frame.f_back
    return found
