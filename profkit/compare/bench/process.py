"""One run of a benchmarked command: a fresh process, its wall time, and what it tells of itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from profkit.compare.stats.sample import is_plausible
from profkit.errors import ProfkitError, UsageError
from profkit.files import open_file, temporary_folder, write_whole
from profkit.redact import redacted_command, redacted_text
from profkit.shell import quoted_path
from profkit.units import format_ns

SETTLING_STEPS: Final = 3
"""First steps of a run that do not count: allocator, autotuning, first batches (as `profkit capture` leaves out)."""
_MIN_STEPS: Final = 2
_GRACE_S: Final = 5.0
_MOST_LOG_BYTES: Final = 256 * 2**20  # of one process: millions of steps
_MOST_LEFT_BYTES: Final = 64 * 2**20  # of one process: its record
_MOST_PROCESSES: Final = 4096
_MOST_HEADING: Final = 1000  # characters
_MOST_OUTPUT_BYTES: Final = 64 * 2**20  # chosen: of a longer output its end is read, where the last metric is
_CAPTURE: Final = Path(__file__).resolve().parents[2] / "capture"
_TOLD: Final = "profkit.capture.step()"
_SITE: Final = """\
import importlib.util
spec = importlib.util.spec_from_file_location("_profkit_steplog", {module!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.install({folder!r}, {folder!r}, {capture!r})
"""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one run gave: `wall_ns` always, the rest where the script told it or its steps were found.

    `step_ns` is the mean step after the first ones, of the slowest process; `tokens_per_s` and `samples_per_s` are
    summed over processes. `metric` is what the pattern found last in the output, of so many matches. `step_source` says
    in words what ended a step.
    """

    wall_ns: int
    metric: float | None = None
    n_matches: int = 0
    step_ns: float | None = None
    step_source: str = ""
    tokens_per_s: float | None = None
    samples_per_s: float | None = None


def run_once(command: Sequence[str], *, metric: re.Pattern[str] | None = None) -> Outcome:
    """Run a command to its end and give what it took.

    Raises UsageError where there is no such program, ProfkitError where it fails or tells no metric. An interrupt ends
    the process before it is passed on.
    """
    with temporary_folder("bench") as folder:
        name = str(folder)
        site = _SITE.format(module=str(Path(__file__).with_name("steplog.py")), folder=name, capture=str(_CAPTURE))
        write_whole(folder / "sitecustomize.py", site.encode())
        path = os.environ.get("PYTHONPATH")
        env = {**os.environ, "PYTHONPATH": f"{name}{os.pathsep}{path}" if path else name}
        code, wall_ns, text = run_quietly(command, env, folder)
        if code:
            raise ProfkitError(
                f"{_shown(command)} {ending(code)}: {last_line(text)}", hint="run it alone until it works"
            )
        return _outcome(wall_ns, text, command, metric, folder)


class TooLongError(ProfkitError):
    """A command was ended because it took longer than it was given."""


def run_quietly(
    command: Sequence[str], env: Mapping[str, str], folder: Path, *, most_ns: int | None = None
) -> tuple[int, int, str]:
    """Run a command with all its output into a file in a folder: its exit code, wall time in ns, the output's end.

    Raises UsageError where there is no such program, TooLongError where it takes longer than `most_ns`. An interrupt
    ends the process before it is passed on.
    """
    with tempfile.TemporaryFile(dir=folder) as output:
        code, wall_ns = _waited_for(command, env, output.fileno(), most_ns)
        output.seek(max(output.seek(0, os.SEEK_END) - _MOST_OUTPUT_BYTES, 0))
        return code, wall_ns, output.read(_MOST_OUTPUT_BYTES).decode("utf-8", errors="replace")


def _waited_for(command: Sequence[str], env: Mapping[str, str], output: int, most_ns: int | None) -> tuple[int, int]:
    begun_ns = time.perf_counter_ns()
    with _interrupts_held() as let_through:
        child = _started(command, env, output)
        try:
            let_through()
            code = child.wait(None if most_ns is None else most_ns / 1e9)
        except (KeyboardInterrupt, subprocess.TimeoutExpired) as ended:
            child.terminate()
            try:
                child.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            if isinstance(ended, subprocess.TimeoutExpired):
                spent = format_ns(time.perf_counter_ns() - begun_ns)
                raise TooLongError(f"a run of it was ended after {spent}: longer than was announced") from None
            raise
    return code, time.perf_counter_ns() - begun_ns


def _started(command: Sequence[str], env: Mapping[str, str], output: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - to run the user's command is the task
            list(command), env=dict(env), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    except FileNotFoundError:
        hint = f"python {quoted_path(command[0])} ..." if command[0].endswith(".py") else "check the spelling and PATH"
        raise UsageError(f"there is no program {command[0]!r}", hint=hint) from None
    except OSError as error:
        raise UsageError(f"cannot run {command[0]!r}: {error.strerror}") from None


@contextmanager
def _interrupts_held() -> Iterator[Callable[[], None]]:
    """Keep interrupts back until what it gives is called, or the end: one while a process starts would orphan that."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))

    def let_through() -> None:
        signal.signal(signal.SIGINT, before)
        if came:
            raise KeyboardInterrupt

    try:
        yield let_through
    finally:
        signal.signal(signal.SIGINT, before)


def _outcome(wall_ns: int, text: str, command: Sequence[str], metric: re.Pattern[str] | None, folder: Path) -> Outcome:
    found, n_matches = _metric(text, command, metric) if metric is not None else (None, 0)
    told = _steps_in(folder, "*.steps")
    ranks, source = (told, _TOLD) if told else (_steps_in(folder, "*.found"), _found_by(folder))
    if not ranks:
        return Outcome(wall_ns=wall_ns, metric=found, n_matches=n_matches)
    step_ns, tokens, samples = 0.0, 0.0, 0.0
    for rank in ranks:
        steady = rank[SETTLING_STEPS:]  # a line is written where a step ends: the line before them begins the first
        spent_ns = steady[-1][0] - rank[SETTLING_STEPS - 1][0]
        step_ns = max(step_ns, spent_ns / len(steady))
        tokens += sum(step[1] for step in steady) / spent_ns * 1e9
        samples += sum(step[3] for step in steady) / spent_ns * 1e9
    return Outcome(
        wall_ns=wall_ns,
        metric=found,
        n_matches=n_matches,
        step_ns=step_ns,
        step_source=source,
        tokens_per_s=tokens or None,
        samples_per_s=samples or None,
    )


def _steps_in(folder: Path, pattern: str) -> list[list[tuple[float, ...]]]:
    """The steps of each process that has enough of them."""
    found = []
    for log in sorted(folder.glob(pattern)):
        with open_file(log, follow=False) as file:
            lines = file.read(_MOST_LOG_BYTES).decode("utf-8", errors="replace").splitlines()
        rows = [line.split() for line in lines if not line.startswith("#")]
        found.append([tuple(map(float, row)) for row in rows if len(row) == 4])
    return [steps for steps in found if len(steps) >= SETTLING_STEPS + _MIN_STEPS]


def _found_by(folder: Path) -> str:
    """What ends a step of the first process in which steps were found."""
    for log in sorted(folder.glob("*.found")):
        with open_file(log, follow=False) as file:
            first = file.readline(_MOST_HEADING).decode("utf-8", errors="replace")
        return first.removeprefix("#").strip()
    return ""


def _metric(text: str, command: Sequence[str], pattern: re.Pattern[str]) -> tuple[float, int]:
    """The number in the last match, and how many matches there are."""
    found = list(pattern.finditer(text))
    if not found:
        raise ProfkitError(
            f"the output of {_shown(command)} has no match of {pattern.pattern!r}; it ends: {last_line(text)}",
            hint="--metric-regex is a regular expression with one group, the number: --metric-regex 'tok/s: ([0-9.]+)'",
        )
    try:
        value = float(found[-1][1])
    except (ValueError, TypeError):
        raise ProfkitError(f"--metric-regex found {found[-1][1]!r} in the output, which is not a number") from None
    if not is_plausible(value):
        raise ProfkitError(f"--metric-regex found {value:g} in the output, which is not a positive number")
    return value, len(found)


Left = TypeVar("Left")


def left_in(folder: Path, pattern: str) -> Iterator[bytes]:
    """What the processes of a command left in files of a folder, by name; what cannot be read is passed over."""
    for path in islice(sorted(folder.glob(pattern)), _MOST_PROCESSES):
        try:
            with open_file(path, follow=False) as file:
                data = file.read(_MOST_LEFT_BYTES)
        except OSError:
            continue
        yield data


def records_left(folder: Path, pattern: str, kind: type[Left]) -> list[Left]:
    """The same as records in JSON; what is no such record is passed over."""
    found = []
    for data in left_in(folder, pattern):
        with suppress(msgspec.MsgspecError):
            found.append(msgspec.json.decode(data, type=kind))
    return found


def why_nothing(reasons: Iterable[str]) -> str:
    """Why a command left nothing to measure: the first reason that one of its processes gives."""
    return next(filter(None, reasons), "the command never imported torch, or left without its exit handlers")


def _shown(command: Sequence[str]) -> str:
    text = " ".join(redacted_command(command))
    return repr(text if len(text) <= 60 else text[:57] + "...")


def ending(code: int) -> str:
    """How a command that failed ended, in words."""
    return f"ended with exit code {code}" if code > 0 else f"was killed by signal {-code}"


def last_line(text: str) -> str:
    """The last line of an output, without secrets: mostly the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return redacted_text(lines[-1])[:200] if lines else "no output"
