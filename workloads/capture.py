"""One window of torch.profiler inside a run, and its trace as a file that names nobody's machine."""

from __future__ import annotations

import gzip
import json
import math
import re
import shlex
import socket
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from torch.profiler import ProfilerAction, ProfilerActivity, profile, schedule

from workloads.timing import StepClock, percentile

_HOST_NAME: Final = re.compile(r'("host_name":\s*)"(?:[^"\\]|\\.)*"')
_TRACE_NAME: Final = re.compile(r'("traceName":\s*)"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Which steps are recorded: `wait` untouched ones, `warmup` recorded and dropped, `active` kept.

    The first `skip` untouched steps (allocator, first batches) are left out of the unprofiled step time.
    """

    wait: int
    warmup: int
    active: int
    skip: int

    @property
    def n_steps(self) -> int:
        """The number of steps a run needs to record the whole window."""
        return self.wait + self.warmup + self.active

    def in_periods_of(self, n_steps: int) -> Window:
        """Gives the window with its unprofiled and its active part rounded up to whole periods of `n_steps`.

        N saturated loader workers deliver in bursts of N batches: only whole bursts have an honest mean.
        """
        skip = math.ceil(self.skip / n_steps) * n_steps
        unprofiled = math.ceil(max(self.wait - skip, n_steps) / n_steps) * n_steps
        active = math.ceil(self.active / n_steps) * n_steps
        return replace(self, wait=skip + unprofiled, active=active, skip=skip)


class Recorder:
    """torch.profiler over one window of a run, as a context manager: no way out leaves it running.

    A profiler that still runs when the interpreter ends crashes torch 2.13 (return code 139).
    """

    def __init__(self, window: Window, *, clock: StepClock, device_type: str, record_shapes: bool) -> None:
        activities = [ProfilerActivity.CPU]
        if device_type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._window = window
        self._clock = clock
        self._has_metadata = False
        self._profiler = profile(
            activities=activities,
            schedule=schedule(wait=window.wait, warmup=window.warmup, active=window.active, repeat=1),
            record_shapes=record_shapes,
        )

    def __enter__(self) -> Self:
        self._profiler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._profiler.stop()

    def step(self) -> None:
        """Ends a step; call it last in the loop body, outside every range."""
        self._profiler.step()
        is_collecting = self._profiler.current_action != ProfilerAction.NONE
        if is_collecting and not self._has_metadata:
            self._has_metadata = True
            self._add_unprofiled_step_time()

    def _add_unprofiled_step_time(self) -> None:
        # Here, not before: metadata given to a profiler that does not collect yet is dropped.
        durations_ns = self._clock.durations_ns()[self._window.skip : self._window.wait]
        if not durations_ns:
            return
        facts: dict[str, int | str] = {
            "profkit_command": command_line(sys.argv[1:]),
            "profkit_unprofiled_step_ns": round(percentile(durations_ns, 0.5)),
            "profkit_unprofiled_step_mean_ns": round(sum(durations_ns) / len(durations_ns)),
            "profkit_unprofiled_steps": len(durations_ns),
        }
        for key, value in facts.items():
            self._profiler.add_metadata_json(key, json.dumps(value))

    def export(self, path: Path) -> None:
        """Writes the recorded window to `path`, gzipped if it ends in .gz; call it after the loop, once."""
        with tempfile.TemporaryDirectory(prefix="workloads-") as folder:
            raw = Path(folder) / "trace.json"
            self._profiler.export_chrome_trace(str(raw))
            text = scrub_trace(raw.read_text(encoding="utf-8"), trace_name=path.name)
        write_trace(path, text)


def command_line(arguments: list[str]) -> str:
    """Gives the command that repeats this run, without the flags that only concern the recording."""
    kept: list[str] = []
    skip_next = False
    for argument in arguments:
        if skip_next or argument in RECORDING_FLAGS or argument.startswith("--profile="):
            skip_next = argument in RECORDING_FLAGS
            continue
        kept.append(argument)
    return shlex.join(["python", "-m", "workloads.train", *kept])


RECORDING_FLAGS: Final = ("--profile", "--wait", "--warmup", "--active")


def scrub_trace(text: str, *, trace_name: str) -> str:
    """Gives the trace without the host's name and with `trace_name` in place of the exported path.

    It edits the text: reading and writing the JSON would send nanoseconds through float64. Raises
    `ValueError` if the host's name, the home or the working directory is still in it.
    """
    text = _HOST_NAME.sub(r'\1"scrubbed"', text, count=1)
    head, mark, tail = text.rpartition('"traceName"')
    text = head + _TRACE_NAME.sub(lambda found: found.group(1) + json.dumps(trace_name), mark + tail, count=1)
    for secret in (f'"{socket.gethostname()}"', f"{Path.home()}/", f"{Path.cwd()}/"):
        if secret in text:
            raise ValueError(f"the trace still holds {secret}")
    return text


def write_trace(path: Path, text: str) -> None:
    """Writes the text to `path`, gzipped without name and time if it ends in .gz; makes the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=9, mtime=0)
    path.write_bytes(data)
