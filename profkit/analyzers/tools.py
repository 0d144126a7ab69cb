"""The next captures, as commands that run as printed.

Order of cost of evidence: torch.profiler knows operators and Python, nsys the OS and dependencies, ncu one kernel.
"""

from __future__ import annotations

import re
import shlex

from profkit.model.finding import NextTool


def recapture(purpose: str, look_for: str) -> NextTool:
    """Give the way to a better torch.profiler capture: `explain` prints the code to paste."""
    return NextTool(
        name="torch.profiler", command="profkit explain capture.quality", purpose=purpose, look_for=look_for
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


def nsys(command: str, purpose: str, look_for: str) -> NextTool:
    """Give a system timeline of the whole run; `--kill=none` leaves the job alone when the window closes."""
    return NextTool(
        name="nsys",
        command=(
            "nsys profile --trace=cuda,nvtx,osrt --sample=process-tree --cpuctxsw=process-tree "
            f"--delay=30 --duration=20 --kill=none --output=profkit_nsys --force-overwrite=true {command}"
        ),
        purpose=purpose,
        look_for=look_for,
    )


def ncu(command: str, kernel: str, purpose: str, look_for: str) -> NextTool:
    """Give a profile of three launches of one kernel by its base name; it replays the kernel and destroys timing."""
    return NextTool(
        name="ncu",
        command=(
            f"ncu --target-processes all --kernel-name-base function -k {shlex.quote('regex:' + base_name(kernel))} "
            f"--launch-skip 20 --launch-count 3 --set full -o profkit_ncu {command}"
        ),
        purpose=purpose,
        look_for=look_for,
    )


def base_name(kernel: str) -> str:
    """Give a kernel's function name as `ncu --kernel-name-base function` knows it: no templates, no namespaces."""
    flat = kernel.replace("(anonymous namespace)::", "").removeprefix("void ")
    head = re.split(r"[<(]", flat, maxsplit=1)[0].strip()
    name = re.sub(r"\W", "", head.split("::")[-1].split(" ")[-1])
    return f"^{name}$" if name else "."
