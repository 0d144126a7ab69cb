"""Nsight Systems and Nsight Compute as they are installed here: their flags are asked for, never looked up by version.

Names and defaults of flags moved often (docs/nsight.md). A wish is a list of ways to say one thing, the newest
first; the first that the installed help text knows is taken, and a wish that none fulfils is left out and reported.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from profkit.errors import MissingCapabilityError

_ASK_S: Final = 60
_FLAG: Final = re.compile(r"^\s*(?:-\w\b,?\s*)?(?:\[\s*)?(--[a-z][\w-]*)", re.MULTILINE)
_VERSION: Final = re.compile(r"[Vv]ersion (\d+(?:\.\d+)+)")
_GPU_FILES: Final = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia/version")
_SYS_ADMIN: Final = 21  # bit of CAP_SYS_ADMIN in CapEff (linux/capability.h)
INSTALL: Final = {
    "nsys": "apt-get install nsight-systems-cli, or https://developer.nvidia.com/nsight-systems",
    "ncu": "apt-get install nsight-compute, or https://developer.nvidia.com/nsight-compute",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One thing a command line should say, in the words of newer and older versions, and why."""

    ways: tuple[tuple[str, ...], ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """An Nsight tool: where it is ("" if nowhere) and which flags its help text knows (None: could not be asked)."""

    name: str
    path: str = ""
    version: str = ""
    flags: frozenset[str] | None = None
    text: str = ""

    def can(self, flag: str) -> bool:
        """Whether the installed version has the flag; unknown counts as the newest, which has all."""
        return self.flags is None or flag in self.flags

    def names(self, value: str) -> bool:
        """Whether the help text names a value; unknown counts as the newest."""
        return self.flags is None or value in self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The flags that the wishes came to, with the reason of each, and what this version cannot say."""

    flags: tuple[str, ...]
    reasons: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]


def find_tool(name: str, help_words: Sequence[str]) -> Tool:
    """The tool on PATH with the flags of its help text, or one without a path."""
    path = shutil.which(name)
    if path is None:
        return Tool(name=name)
    text = _said([path, *help_words])
    version = _VERSION.search(_said([path, "--version"]))
    flags = frozenset(_FLAG.findall(text)) or None
    return Tool(name=name, path=path, version=version[1] if version else "", flags=flags, text=text)


def flags_of(tool: Tool, help_words: Sequence[str]) -> Tool:
    """The same tool with the flags of another of its commands (`nsys export`)."""
    flags = frozenset(_FLAG.findall(_said([tool.path, *help_words]))) if tool.path else None
    return replace(tool, flags=flags or None, text="")


def spoken(tool: Tool, wishes: Iterable[Wish]) -> Line:
    """The wishes in the words of the installed version."""
    flags: list[str] = []
    reasons: list[tuple[str, str]] = []
    left_out: list[str] = []
    for wish in wishes:
        way = next((way for way in wish.ways if tool.can(way[0].partition("=")[0])), None)
        if way is None:
            left_out.append(wish.ways[0][0].partition("=")[0])
            continue
        flags += way
        reasons.append((" ".join(way), wish.why))
    return Line(flags=tuple(flags), reasons=tuple(reasons), left_out=tuple(left_out))


def wish(why: str, *ways: str) -> Wish:
    """A wish whose ways are written as on a command line; a value with spaces takes `Wish` itself."""
    return Wish(ways=tuple(tuple(way.split()) for way in ways), why=why)


def require(tool: Tool, *, needs_gpu: bool, needs_counters: bool) -> None:
    """Raise MissingCapabilityError for what is not here: the tool, a GPU, the right to read its counters."""
    if not tool.path:
        hint = f"{INSTALL[tool.name]}; --dry-run prints the command for another machine"
        raise MissingCapabilityError(f"there is no {tool.name} on PATH", hint=hint)
    if needs_gpu and not has_gpu():
        on_cpu = "--whole records a job on the CPU; " if tool.name == "nsys" else ""
        raise MissingCapabilityError(
            f"{tool.name} needs an NVIDIA GPU for steady steps alone, but this machine has none"
            if on_cpu
            else f"{tool.name} needs an NVIDIA GPU, but this machine has none",
            hint=f"{on_cpu}run it where the job runs; --dry-run prints the command; in docker: --gpus all",
        )
    if needs_counters and counters_are_closed():
        raise counters_error()


def counters_error() -> MissingCapabilityError:
    """The error for a GPU whose counters may not be read, with every way out."""
    return MissingCapabilityError(
        "the GPU's performance counters are closed to this user (ERR_NVGPUCTRPERM)",
        hint="run as root, or docker --cap-add=SYS_ADMIN, or let the admin set"
        " 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' in /etc/modprobe.d and reload the driver",
    )


def has_gpu() -> bool:
    """Whether an NVIDIA GPU can be seen: by the driver's files, or by what nvidia-smi lists."""
    if any(Path(name).exists() for name in _GPU_FILES):
        return True
    path = shutil.which("nvidia-smi")
    return path is not None and "GPU " in _said([path, "-L"])


def counters_are_closed(
    parameters: Path = Path("/proc/driver/nvidia/params"), status: Path = Path("/proc/self/status")
) -> bool:
    """Whether the driver keeps counters to administrators and this process is none; unknown is taken for open."""
    try:
        is_for_admins = "RmProfilingAdminOnly: 1" in parameters.read_text(encoding="utf-8")
        held = re.search(r"^CapEff:\s*([0-9a-f]+)", status.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return False
    return is_for_admins and held is not None and not int(held[1], 16) >> _SYS_ADMIN & 1


def _said(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_ASK_S)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    return done.stdout + done.stderr
