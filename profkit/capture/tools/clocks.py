"""Clock samples beside a command: taken in profkit's own process, never in the job's.

Of NVIDIA GPUs by `nvidia-smi`, where it is on PATH; of the CPU from Linux' cpufreq files, where they are there. Without
them nothing is sampled and nothing is said.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from profkit.capture.beside import files
from profkit.capture.options import Options
from profkit.capture.place import RAW, machine, work_folder

PERIOD_MS: Final = 100
"""Chosen: ten samples a second, of which a window of half a second has five."""
_MOST_SAMPLES: Final = 30_000
"""Kept, the newest: five minutes of eight GPUs and the CPU. Chosen."""
_MOST_CHARACTERS: Final = 500
_MOST_CORES: Final = 64
_MOST_BYTES: Final = 64
_LINGERS_S: Final = 10.0
"""Sampling ends so long after the first rank has written its recording: the others record the same steps (chosen)."""
_LOOK_S: Final = 1.0
_LONGEST_S: Final = 10.0
_LATE_S: Final = 60.0
_REASONS: Final = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""The field's name, and that of drivers before 535."""
_FIELDS: Final = ("temperature.gpu", "power.draw", "enforced.power.limit", "power.default_limit")
_IDLE: Final = 0x1
_KINDS: Final = {"power": 0x4, "thermal": 0x20 | 0x40, "hardware": 0x8 | 0x80}
"""NVML's bits: the software's power cap; thermal slowdowns; the hardware's slowdown and power brake. A slowdown of the
hardware by heat has its own bit and is thermal."""
_ORDER: Final = ("thermal", "hardware", "power")
"""The worst first."""
_CPU: Final = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Sample:
    """A device's clock at one moment, MHz; None where that is not told."""

    unix_ns: int
    device: str
    """The GPU's UUID, or "" for the CPU: the clock is then that of its fastest core."""
    mhz: int
    highest_mhz: int
    reasons: int = 0
    temperature_c: int | None = None
    power_mw: int | None = None
    limit_mw: int | None = None
    default_limit_mw: int | None = None
    throttled_ms: int | None = None
    """How long the CPU has been throttled by heat since it was switched on."""


class ClockWatch:
    """Samples of this machine's clocks; `of` gives what they say of one process of a capture."""

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque(maxlen=_MOST_SAMPLES)
        self.tool: subprocess.Popen[bytes] | None = None

    def of(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """`clocks` of the device that this process used, over its recorded steps; {} where no sample fits."""
        window, is_here = facts.get("recorded_unix_ns"), facts.get("machine") == machine() != ""
        if not isinstance(window, list | tuple) or len(window) != 2:
            return {}
        is_cpu = (facts.get("device") or {}).get("type") == "cpu"
        device = "" if is_cpu else str(facts.get("gpu_uuid") or "")
        known = {one.device for one in self.samples if one.device}
        if not is_cpu and not device and is_here and len(known) == 1:
            (device,) = known
        if (is_cpu and not is_here) or (not is_cpu and not device):
            return {}
        found = [
            one
            for one in tuple(self.samples)
            if one.device.endswith(device) and bool(one.device) != is_cpu and window[0] <= one.unix_ns <= window[1]
        ]
        return {"clocks": summary(found)} if found else {}


def summary(samples: Sequence[Sample]) -> dict[str, int]:
    """The samples of one device as a few whole numbers: MHz, counts, degrees, mW, ms; idle ones are left out.

    `held_mhz` is of those that are held for the reason that most of them have.
    """
    busy = [one for one in samples if not one.reasons & _IDLE]
    if not busy:
        return {"n": 0}
    kinds = [_kind(one) for one in busy]
    most = max(_ORDER, key=kinds.count)
    told: dict[str, int | None] = {
        "n": len(busy),
        "mhz": _mean([one.mhz for one in busy]),
        "lowest_mhz": min(one.mhz for one in busy),
        "highest_mhz": max(one.highest_mhz for one in busy),
        "held_mhz": _mean([one.mhz for one, kind in zip(busy, kinds, strict=True) if kind == most]),
        **{f"n_{kind}": kinds.count(kind) for kind in _KINDS},
        "temperature_c": _most(one.temperature_c for one in busy),
        "power_mw": _mean([one.power_mw for one in busy if one.power_mw is not None]),
        "limit_mw": _most(one.limit_mw for one in busy),
        "default_limit_mw": _most(one.default_limit_mw for one in busy),
    }
    since = [one.throttled_ms for one in busy if one.throttled_ms is not None]
    if since:
        told["throttled_ms"], told["sampled_ms"] = since[-1] - since[0], (busy[-1].unix_ns - busy[0].unix_ns) // 10**6
    return {key: value for key, value in told.items() if value is not None}


def _kind(one: Sample) -> str:
    """Why the clock is held, the worst reason first; "" where it is not."""
    return next((kind for kind in _ORDER if one.reasons & _KINDS[kind]), "")


def _mean(values: Sequence[int]) -> int | None:
    return round(sum(values) / len(values)) if values else None


def _most(values: Iterator[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


@contextmanager
def watched(options: Options) -> Iterator[ClockWatch]:
    """Sample the clocks until the context ends, or until the recorded steps of the capture are over."""
    watch, ended = ClockWatch(), threading.Event()
    readers = []
    if options.device != "cpu" and shutil.which("nvidia-smi"):
        readers.append(_read_gpus)
    if _cores():
        readers.append(_read_cpu)
    threads = [threading.Thread(target=read, args=(watch, ended), daemon=True) for read in readers]
    if threads:
        _start([*threads, threading.Thread(target=_look, args=(options, ended), daemon=True)])
    try:
        yield watch
    finally:
        ended.set()
        if watch.tool is not None:
            watch.tool.kill()
        for thread in threads:
            thread.join(_LOOK_S)


def _start(threads: Sequence[threading.Thread]) -> None:
    """Start threads that take no signal: those sent to this process are awaited by its main thread."""
    old = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        for thread in threads:
            thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def _look(options: Options, ended: threading.Event) -> None:
    """Wait until a rank has written its recording, and a little longer."""
    folder = work_folder(options.folder, options.capture_id)
    while not ended.wait(_LOOK_S):
        with suppress(OSError):
            if next(folder.glob(f"*{RAW}"), None) is not None:
                ended.wait(_LINGERS_S)
                ended.set()


def _line() -> list[str]:
    """The command that prints a line for each GPU once; empty where there is no nvidia-smi, or it does not know how."""
    path = shutil.which("nvidia-smi")
    for reasons in _REASONS if path is not None else ():
        fields = ",".join(("timestamp", "uuid", "clocks.sm", "clocks.max.sm", reasons, *_FIELDS))
        line = [str(path), f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
        with suppress(OSError, subprocess.TimeoutExpired):
            asked = subprocess.run(  # noqa: S603 - a fixed line
                line, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=_LONGEST_S
            )
            if asked.returncode == 0 and any(map(sample_of, asked.stdout.splitlines())):
                return line
    return []


def _read_gpus(watch: ClockWatch, ended: threading.Event) -> None:
    """Keep what nvidia-smi prints, until nobody needs more.

    In a session of its own: a terminal's Ctrl-C is not for it. Its pipe ends it where profkit is killed.
    """
    line = _line()
    if not line or ended.is_set():
        return
    sampling = [*line, "-lms", str(PERIOD_MS)]
    none, pipe = subprocess.DEVNULL, subprocess.PIPE
    with (
        suppress(OSError),
        subprocess.Popen(sampling, stdin=none, stdout=pipe, stderr=none, start_new_session=True) as smi,  # noqa: S603 - a fixed line
    ):
        watch.tool = smi
        try:
            while not ended.is_set() and smi.stdout is not None and (told := smi.stdout.readline(_MOST_CHARACTERS)):
                one = sample_of(told)
                if one is not None:
                    watch.samples.append(one)
        finally:
            smi.kill()


def sample_of(line: bytes) -> Sample | None:
    """What one line of nvidia-smi says; None where it names no clock."""
    words = [word.strip() for word in line.decode(errors="replace").split(",")]
    if len(words) != 5 + len(_FIELDS):
        return None
    when, device, *numbers = words
    mhz, highest = (_whole(text) for text in numbers[:2])
    try:
        reasons = int(numbers[2], 16)
    except ValueError:
        return None
    if not mhz or not highest or not device or reasons < 0:
        return None
    temperature, *watts = numbers[3:]
    return Sample(_unix_ns(when), device, mhz, highest, reasons, _whole(temperature), *(_whole(w, 1000) for w in watts))


def _whole(text: str, scale: int = 1) -> int | None:
    """A number of nvidia-smi times a scale; None for "[N/A]" and its like."""
    return round(scale * float(text)) if re.fullmatch(r"\d{1,7}(\.\d{1,6})?", text) else None


def _unix_ns(when: str) -> int:
    """The local time that a line begins with; now where it is none, or not that of the last minute."""
    now = time.time()
    with suppress(ValueError, OverflowError):
        at = time.mktime(time.strptime(when[:19], "%Y/%m/%d %H:%M:%S")) + float(f"0{when[19:]}")
        if now - _LATE_S < at <= now:
            return int(at * 1e9)
    return int(now * 1e9)


def _cores() -> list[Path]:
    """The folders of cores whose clock can be read, at most `_MOST_CORES`."""
    found = sorted(_CPU.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"), key=lambda path: int(path.parts[-3][3:]))
    return [path.parent.parent for path in found if (path.parent / "cpuinfo_max_freq").exists()][:_MOST_CORES]


def _read_cpu(watch: ClockWatch, ended: threading.Event) -> None:
    """Keep the clock of the fastest core, which is none that idles."""
    cores = _cores()
    while not ended.wait(PERIOD_MS / 1000):
        one = _cpu_sample(cores)
        if one is not None:
            watch.samples.append(one)


def _cpu_sample(cores: Sequence[Path]) -> Sample | None:
    now_ns = time.time_ns()
    clocks = [mhz for core in cores if (mhz := _number(core / "cpufreq/scaling_cur_freq", 1000))]
    highest = [mhz for core in cores if (mhz := _number(core / "cpufreq/cpuinfo_max_freq", 1000))]
    if not clocks or not highest:
        return None
    throttled = [_number(core / "thermal_throttle/package_throttle_total_time_ms") for core in cores]
    return Sample(now_ns, "", max(clocks), max(highest), throttled_ms=_most(iter(throttled)))


def _number(path: Path, divisor: int = 1) -> int | None:
    with suppress(OSError, ValueError):
        return int(files().read_small(path, _MOST_BYTES)) // divisor
    return None
