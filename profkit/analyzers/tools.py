"""The next captures, as commands that run as printed.

Order of cost of evidence: torch.profiler knows operators and Python, nsys the OS and dependencies, ncu one kernel.
"""

from __future__ import annotations

import re
import shlex

from profkit.analyzers.base import Scope
from profkit.model.finding import NextTool

_NSYS_WINDOW = "--delay=30 --duration=20 --kill=none --output=profkit_nsys --force-overwrite=true"


def recapture(scope: Scope, purpose: str, look_for: str, *, flags: str = "") -> NextTool:
    """Give a better capture of the same job with the same tool; `flags` are further options of `profkit capture`."""
    if scope.is_nsys:
        command = f"nsys profile --trace=cuda,nvtx,osrt --sample=none --cpuctxsw=none {_NSYS_WINDOW} {scope.command}"
        return NextTool(name="nsys", command=command, purpose=purpose, look_for=look_for)
    return operators(scope, purpose, look_for, flags=flags)


def operators(scope: Scope, purpose: str, look_for: str, *, flags: str = "") -> NextTool:
    """Give a torch.profiler capture: it knows operators, and the Python around them."""
    options = f"--baseline 10 --warmup 5 --steps 12{flags and ' ' + flags}"
    return NextTool(
        name="torch.profiler",
        command=f"profkit capture {options} -- {scope.command}",
        purpose=purpose,
        look_for=look_for,
    )


def py_spy_loader(command: str) -> NextTool:
    """Give a sampling of the loader's processes: CPU, disk or decode?"""
    return NextTool(
        name="py-spy",
        command=f"py-spy record --subprocesses --duration 30 --output loader.svg -- {command}",
        purpose="see what the input pipeline does while the step waits: decoding, reading or waiting for locks",
        look_for="wide frames below Dataset.__getitem__ and collate; read() means storage, numpy or PIL means CPU",
    )


def py_spy_main(command: str) -> NextTool:
    """Give a sampling of the main process's Python."""
    return NextTool(
        name="py-spy",
        command=f"py-spy record --native --rate 500 --duration 30 --output host.svg -- {command}",
        purpose="see which Python and C++ frames fill the time between operators",
        look_for="wide frames outside torch operators: logging, hooks, list and dict work, locks",
    )


def system_timeline(scope: Scope, purpose: str, look_for: str) -> NextTool:
    """Give a timeline of host, device and operating system over the whole run.

    nsys: `--kill=none` leaves the job alone when the window closes; where nsys has been, it samples Python as well.
    rocprofv3 on AMD devices.
    """
    if scope.is_amd:
        command = f"rocprofv3 --sys-trace --output-format pftrace -d profkit_rocprof -- {scope.command}"
        return NextTool(name="rocprofv3", command=command, purpose=purpose, look_for=look_for)
    python = " --cudabacktrace=all --python-backtrace=cuda --python-sampling=true" if scope.is_nsys else ""
    command = (
        f"nsys profile --trace=cuda,nvtx,osrt --sample=process-tree --cpuctxsw=process-tree{python} "
        f"{_NSYS_WINDOW} {scope.command}"
    )
    return NextTool(name="nsys", command=command, purpose=purpose, look_for=look_for)


def kernel_profile(scope: Scope, kernel: str, purpose: str, look_for: str) -> NextTool:
    """Give a profile of a few launches of one kernel by its base name; it replays the kernel and destroys timing."""
    if scope.is_amd:
        function = base_name(kernel).strip("^$")
        command = f"rocprof-compute profile --name profkit --kernel {function} -- {scope.command}"
        return NextTool(name="rocprof-compute", command=command, purpose=purpose, look_for=look_for)
    command = (
        f"ncu --target-processes all --kernel-name-base function -k {shlex.quote('regex:' + base_name(kernel))} "
        f"--launch-skip 20 --launch-count 3 --set full -o profkit_ncu {scope.command}"
    )
    return NextTool(name="ncu", command=command, purpose=purpose, look_for=look_for)


def base_name(kernel: str) -> str:
    """Give a kernel's function name as `ncu --kernel-name-base function` knows it: no templates, no namespaces."""
    flat = kernel.replace("(anonymous namespace)::", "").removeprefix("void ")
    head = re.split(r"[<(]", flat, maxsplit=1)[0].strip()
    name = re.sub(r"\W", "", head.split("::")[-1].split(" ")[-1])
    return f"^{name}$" if name else "."
