"""The command line of Nsight Compute for one hot kernel of a training job."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profkit.capture.tools.nsight import Line, Tool, Wish, spoken, wish
from profkit.errors import UsageError
from profkit.model.names import WHOLE_GRAPH, function_name, kind_of
from profkit.model.trace import Kind

HELP: Final = ("--help",)
REPORTS: Final = ("*.ncu-rep",)
NO_COLLECTIVES: Final = (
    "^(?!.*(nccl|nvshmem|cross_device|[Aa]ll_?[Rr]educe|[Rr]educe_?[Ss]catter|[Aa]ll_?[Gg]ather"
    "|[Aa]ll_?([Tt]o|2)_?[Aa]ll))"
)
"""Every function but those that wait for other ranks: replayed alone, they wait for ever."""
MANY: Final = 50
"""Launches profiled where no kernel was named (chosen: a step of a small model, a minute of replay)."""

MOST_NAMED: Final = 300
"""Characters of a function's name that ncu is asked for, the first ones. Chosen: without its arguments, torch's longest
name has about a hundred, and the command stays one that can be read and pasted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which launches are profiled: those whose function matches, from the `skip`-th in the steady steps on."""

    pattern: str
    skip: int
    count: int


def target_of(kernel: str | None, *, skip: int | None, count: int | None) -> Target:
    """The target for a kernel by its name in any tool's words, or `regex:...`; without one, all but collectives.

    Raises UsageError for a collective and for what holds no name.
    """
    if kernel is None:
        return Target(pattern=NO_COLLECTIVES, skip=skip or 0, count=count or MANY)
    if kernel.startswith("regex:"):
        return Target(pattern=kernel.removeprefix("regex:"), skip=skip or 0, count=count or 1)
    if kernel.startswith(WHOLE_GRAPH):
        raise UsageError(
            f"{kernel} is a whole CUDA graph, not a kernel", hint="profkit nsys --also graphs records its kernels"
        )
    function = function_name(kernel)
    if not function:
        raise UsageError(f"{kernel!r} is not a kernel name", hint="copy one of: profkit triage TRACE -v")
    if kind_of(kernel, is_copy=False) is not Kind.COMPUTE:
        raise UsageError(
            f"{function} is communication or a copy: ncu runs it alone, but it waits for others",
            hint="profkit nsys shows collectives on the timeline; ncu is for kernels that compute",
        )
    end = r"(\[|$)" if f"{function}[" in kernel else "$"  # Numba's names go on in brackets
    if len(function) > MOST_NAMED:
        function, end = function[:MOST_NAMED], ""
    return Target(pattern=f"^{re.escape(function)}{end}", skip=skip or 0, count=count or 1)


def ncu_line(tool: Tool, *, target: Target, output: str, log: Path | None, section_set: str, is_whole: bool) -> Line:
    """The flags of `ncu`; `output` is the report without its suffix."""
    wishes = [
        wish("follow the launcher to the process that has the GPU", "--target-processes all"),
        *(() if is_whole else (wish("only inside the calls that profkit makes", "--profile-from-start off"),)),
        wish("run each kernel again with its memory put back", "--replay-mode kernel"),
        wish("which metrics: basic needs about 10 passes, full about 40", f"--set {section_set}"),
        wish("no sources in the report", "--import-source no"),
        wish("match bare function names", "--kernel-name-base function", "--kernel-regex-base function"),
        Wish(
            ways=(("--kernel-name", f"regex:{target.pattern}"), ("--kernel-regex", target.pattern)),
            why="the kernel; never a collective, which would wait for its peers",
        ),
        wish("the launch that is typical of a step", f"--launch-skip {target.skip}"),
        wish("how many launches", f"--launch-count {target.count}"),
        wish("names as torch and nsys write them", "--rename-kernels off"),
        wish("the clocks of the training run, not the base clock", "--clock-control none"),
        wish("note the ranges a kernel was launched in", "--nvtx"),
        wish("the script's own exit code counts", "--check-exit-code no"),
        wish("ignore a config.ncu-cfg that changes defaults", "--config-file off"),
        *(
            ()
            if log is None
            else (Wish(ways=(("--log-file", str(log)),), why="ncu's output, apart from the script's"),)
        ),
        wish("a second run replaces the first", "--force-overwrite"),
        Wish(ways=(("--export", output),), why="where the report goes"),
    ]
    return spoken(tool, wishes)


def page_line(tool: Tool, report: Path) -> tuple[str, ...]:
    """The command that prints a report's raw page as CSV in base units, which needs no reader but profkit."""
    units = ("--print-units", "base") if tool.can("--print-units") else ()
    return (tool.path or "ncu", "--import", str(report), "--csv", "--page", "raw", *units)
