"""The next captures, as commands that run as printed.

Order of cost of evidence: torch.profiler knows operators and Python, nsys the OS and dependencies, ncu one kernel.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from profkit.analyzers.base import Scope, Vendor
from profkit.model.finding import NextTool
from profkit.model.names import WHOLE_GRAPH, function_name
from profkit.shell import CommandLine, line_of, path_word
from profkit.timeline.launch_order import MOST_TYPED, Typical
from profkit.units import format_ns

_STEPS: Final = re.compile(r" --(?:warmup-)?steps \d+")
"""What counts steps that only a program with PyTorch has."""


def recapture(scope: Scope, purpose: str, look_for: str, *, flags: str = "") -> NextTool:
    """A better capture of the same job with the same tool; `flags` are further options of `profkit capture`."""
    traits = scope.traits
    more = _whole(scope, traits.recapture) if traits.is_system_wide else (*_n_steps(scope), *flags.split())
    own = traits.recapture if scope.is_of_torch else _STEPS.sub("", traits.recapture)
    line = scope.command.under(own, *more)
    return NextTool(name=traits.tool, line=line, purpose=purpose, look_for=look_for)


def after_change(scope: Scope, look_for: str, *, flags: str = "") -> NextTool:
    """The same capture once the fix is in: what is expected of it, and what it gave."""
    return recapture(
        scope,
        "change that, then record again: how much shorter is the step?",
        f"{look_for}; profkit compare OLD NEW says what it gave",
        flags=flags,
    )


def _n_steps(scope: Scope) -> tuple[str, ...]:
    """The option for how many steps: for ranks as many as `profkit capture` takes of short ones, however long each is."""
    return ("--steps", "20" if scope.is_of_ranks else "12")


def steps_alone(source: str, n_steps: int) -> NextTool:
    """The triage of the same file without what lies beside its steps."""
    return NextTool(
        name="profkit",
        line=line_of("profkit triage", path_word(source), "--step-range", f"0:{n_steps}"),
        purpose="judge the steps alone, without start-up",
        look_for="a verdict over these steps only",
    )


def late_steps(scope: Scope, before: int) -> NextTool:
    """A recording that begins after so many steps, to set beside one of early steps."""
    return NextTool(
        name="profkit run",
        line=scope.command.under("profkit run", "--unprofiled-steps", str(before), "--folder", "late"),
        purpose="record steps late in the run: what takes longer there?",
        look_for="profkit compare OLD late says which operators and lines take more",
    )


def operators(scope: Scope, purpose: str, look_for: str, *, flags: str = "") -> NextTool:
    """A torch.profiler capture: it knows operators, and the Python around them."""
    return NextTool(
        name="torch.profiler",
        line=scope.command.under(
            "profkit capture --unprofiled-steps 10 --warmup-steps 5", *_n_steps(scope), *flags.split()
        ),
        purpose=purpose,
        look_for=look_for,
    )


def metal_timeline(command: CommandLine) -> NextTool:
    """Apple's timeline of the whole run, which holds what torch.profiler does not record."""
    own = "xcrun xctrace record --output profkit.trace --template"
    return NextTool(
        name="xctrace",  # which takes what follows --launch as the program
        line=line_of(own, "Metal System Trace", "--launch", "--", "/usr/bin/env", *command.words),
        purpose="what does the GPU work on, and when is it idle?",
        look_for="gaps in the GPU's row, and what the main thread does above them",
    )


def py_spy_loader(command: CommandLine) -> NextTool:
    """A sampling of the loader's processes: CPU, disk or decode?"""
    return NextTool(
        name="py-spy",
        line=command.under("py-spy record --subprocesses --duration 30 --output loader.svg"),
        purpose="does the loader decode, read or wait for locks?",
        look_for="wide frames below Dataset.__getitem__ and collate: read() means storage, numpy or PIL means CPU",
    )


def py_spy_main(command: CommandLine) -> NextTool:
    """A sampling of the main process's Python, or of the processes that a launcher starts."""
    children = "--subprocesses " if command.starts_others else ""
    return NextTool(
        name="py-spy",
        line=command.under(f"py-spy record {children}--native --rate 500 --duration 30 --output host.svg"),
        purpose="which Python and C++ frames take the time between operators?",
        look_for="wide frames outside torch operators: logging, hooks, list and dict work, locks",
    )


def py_spy_operators(command: CommandLine) -> NextTool:
    """A sampling of the main process for where operators themselves spend their time."""
    return replace(
        py_spy_main(command),
        purpose="in which native code do the hottest operators spend their time?",
        look_for="wide frames below the hottest operators (-v lists them): matrix libraries compute, loops and copies move memory",
    )


_LOOK_FOR: Final = {
    Vendor.AMD: "gaps between kernels, and the HIP calls of the host above them; Python and the operating system are not"
    " in it: py-spy record --subprocesses shows Python",
    Vendor.INTEL: "gaps in the GPU's row, and what the host's threads call meanwhile",
}
"""Of timelines of others than NVIDIA's, whose rows are others."""


def system_timeline(
    scope: Scope, purpose: str, look_for: str, *, ranks: Sequence[int] = (), is_for_any: bool = False
) -> NextTool:
    """A timeline of host, device and operating system: of steady steps, on a CPU of the whole run.

    Where nsys has been, it samples Python as well, and where some `ranks` are asked for. AMD's and Intel's tools take
    the whole run. What to look for is nsys' rows, unless it `is_for_any` tool.
    """
    if not is_for_any:
        look_for = _LOOK_FOR.get(scope.vendor, look_for)
    if scope.vendor is Vendor.INTEL:
        line = scope.command.under("vtune -collect gpu-offload -result-dir profkit_vtune")
        return NextTool(name="vtune", line=line, purpose=purpose, look_for=look_for)
    if scope.vendor is Vendor.AMD:
        line = scope.command.under("rocprofv3 --sys-trace --output-format pftrace -d profkit_rocprof")
        return NextTool(name="rocprofv3", line=line, purpose=purpose, look_for=look_for)
    whole = ("--whole",) if scope.is_cpu else _whole(scope)  # without CUDA nothing opens nsys' capture range
    # what a CPU computes on, samples alone show; where nsys has been, Python's own stacks are worth more
    is_compiled = not scope.is_of_torch and not scope.command.may_run_python
    is_deep = scope.traits.is_system_wide or (ranks and not scope.is_cpu)
    also = "waits,samples" if is_compiled or (scope.is_cpu and not is_deep) else "waits,python" if is_deep else "waits"
    only = ("--ranks", ",".join(map(str, ranks))) if ranks else ()
    line = scope.command.under("profkit nsys", *whole, *only, "--also", also)
    return NextTool(name="nsys", line=line, purpose=purpose, look_for=look_for)


def _whole(scope: Scope, said: str = "") -> tuple[str, ...]:
    """The option for a program that is not Python, or has no PyTorch: nothing opens the range that the tools wait for.

    What torch.profiler traced is Python, whatever the command is called.
    """
    has_steps = not scope.traits.is_system_wide or (scope.is_of_torch and scope.command.may_run_python)
    return () if has_steps or "--whole" in said.split() else ("--whole",)


def graph_timeline(scope: Scope) -> NextTool:
    """A timeline with the kernels inside CUDA graphs, for a job whose graphs nsys recorded as wholes."""
    return NextTool(
        name="nsys",
        line=scope.command.under("profkit nsys", *_whole(scope), "--also", "graphs"),
        purpose="which kernels run inside the CUDA graph, and does it wait?",
        look_for="the longest kernels, collectives and gaps between the nodes of the graph",
    )


def kernel_profile(
    scope: Scope, kernel: str, purpose: str, look_for: str, *, launch: int | None = None, lasts_ns: int = 0
) -> NextTool:
    """A profile of one launch of a kernel; it replays the kernel and destroys timing.

    `launch` is how many launches of the same function come before it in a step, None where that is not known; without
    steps, in the trace. `lasts_ns` is how long that launch takes in the trace, 0 where that is not known.
    """
    if kernel.startswith(WHOLE_GRAPH):
        return graph_timeline(scope)
    function = function_name(kernel)
    if scope.vendor is Vendor.INTEL:
        line = scope.command.under("vtune -collect gpu-hotspots -result-dir profkit_vtune")
        return NextTool(name="vtune", line=line, purpose=purpose, look_for=look_for)
    if scope.vendor is Vendor.AMD:
        # which takes a part of a name
        line = scope.command.under("rocprof-compute profile --name profkit --kernel", function[:MOST_TYPED])
        return NextTool(name="rocprof-compute", line=line, purpose=purpose, look_for=look_for)
    alone = scope.long_kernels.get(function)
    which = ("--kernel", f"regex:{alone}" if alone else function) if function else ()
    skip = ("--skip", str(launch)) if function and launch else ()
    # a launch of a step is counted from the step's start, which a job without steps does not have
    whole = ("--whole",) if skip and not scope.has_steps else _whole(scope)
    if lasts_ns and not scope.has_steps:
        look_for = (
            f"{look_for}; a launch of {format_ns(lasts_ns)}: if a far shorter one was profiled, try another --skip"
        )
    line = scope.command.under("profkit ncu", *which, *skip, *whole)
    return NextTool(name="ncu", line=line, purpose=purpose, look_for=look_for)


def typical_profile(scope: Scope, kernel: str, typical: Typical | None, purpose: str, look_for: str) -> NextTool:
    """The same of the launch that is typical of the kernel, where one is known."""
    launch, lasts_ns = (None, 0) if typical is None else (typical.before, typical.duration_ns)
    return kernel_profile(scope, kernel, purpose, look_for, launch=launch, lasts_ns=lasts_ns)


def equal_batches(scope: Scope) -> NextTool:
    """The job against itself with batches of equal length, in turns."""
    words = scope.command.words
    return NextTool(
        name="profkit bench",
        line=line_of("profkit bench -n 8 --", *words, "--vs", *words),
        purpose="make lengths equal in the second command",
        look_for="real tokens per second: padding changes what a step is",
    )
