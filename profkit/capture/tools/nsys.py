"""The command line of Nsight Systems for a training job: a few steady steps, and nothing that may stop the job."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from profkit import files
from profkit.capture.tools.nsight import Line, Tool, Wish, spoken, wish

HELP: Final = ("profile", "--help")
EXPORT_HELP: Final = ("export", "--help")
REPORTS: Final = ("*.nsys-rep", "*.qdrep")
ALSO: Final = {
    "waits": "what the host waits for in the operating system (osrt)",
    "samples": "which functions the CPUs run, by sampling with call chains: needs perf_event_paranoid <= 2",
    "python": "Python stacks by sampling, and who holds the GIL",
    "operators": "torch's operators as ranges (autograd-nvtx): heavy",
    "graphs": "each kernel of a CUDA graph, not the graph as one: heavy",
    "memory": "allocations on the device: heavy",
    "libraries": "calls of cuBLAS and cuDNN",
    "counters": "GPU counters over time: needs the permission of ncu",
}
"""What one may ask for beside kernels, copies, CUDA calls and ranges."""
_TRACED: Final = {"waits": "osrt", "python": "python-gil", "libraries": "cublas,cudnn"}
_OLD_SAMPLING: Final = re.compile(r"'cpu'\s+or\s+'none'")
"""In the help before 2021, where the samples of the job's own processes are called "cpu"."""
_MOST_BEFORE_ENVIRONMENT: Final = 2**20
"""Bytes of a recording in which the environment stands (chosen; in those of 2022.4 it begins after some thousand)."""
_SWITCHES: Final = {"none": "none", "process-tree": "process-tree", "cpu": "process-tree"}
"""Thread switches by how CPUs are sampled."""


def nsys_line(
    tool: Tool, *, target: str, also: Collection[str] = (), trace: str | None = None, is_whole: bool = False
) -> Line:
    """The flags of `nsys profile`; `target` is the report without its suffix, `is_whole` takes the whole run."""
    more = [_TRACED[name] for name in ALSO if name in also and name in _TRACED]
    traced = trace or ",".join(["cuda", "nvtx", *(name for name in more if name != "python-gil" or tool.names(name))])
    sampled = "none" if "samples" not in also else "cpu" if _OLD_SAMPLING.search(tool.text) else "process-tree"
    why = "as asked" if "samples" in also else "no CPU sampling: it needs permissions and costs time"
    graphs = "node" if "graphs" in also else "graph"
    wishes = [
        wish("what is recorded (the default depends on the version)", f"--trace={traced}"),
        wish(why, f"--sample={sampled}"),
        wish("thread switches as CPU samples: nsys takes both or neither", f"--cpuctxsw={_SWITCHES[sampled]}"),
        *(() if is_whole else _WINDOW),
        wish("the job goes on when the recording ends (the default is SIGTERM)", "--kill=none"),
        wish("do not wait for processes that the job leaves behind (loader workers, wandb)", "--wait=primary"),
        wish("CUDA graphs as a whole, or by node", f"--cuda-graph-trace={graphs}"),
        wish("reports would hold every environment variable, including secrets", "--discard-environment=true"),
        *_also(also),
        wish("a second run replaces the first", "--force-overwrite=true"),
        Wish(ways=((f"--output={target}",),), why="where the report goes"),
    ]
    return spoken(tool, wishes)


_WINDOW: Final = (
    wish("record between the calls that profkit makes around steady steps", "--capture-range=cudaProfilerApi"),
    wish("at its end, stop recording and nothing else", "--capture-range-end=stop", "--stop-on-range-end=true"),
)


def _also(also: Collection[str]) -> list[Wish]:
    wishes = {
        "python": wish("Python stacks", "--python-sampling=true"),
        "operators": wish("torch's operators as NVTX ranges", "--pytorch=autograd-nvtx"),
        "memory": wish("allocations on the device", "--cuda-memory-usage=true"),
        "counters": wish(
            "counters of the GPUs that the job sees",
            "--gpu-metrics-devices=cuda-visible",
            "--gpu-metrics-device=all",
        ),
    }
    return [wishes[name] for name in ALSO if name in also and name in wishes]


def export_line(tool: Tool, report: Path) -> tuple[str, ...]:
    """The command that turns a report into the SQLite file that profkit reads: all tables, NCCL's payloads."""
    line = spoken(
        tool,
        [
            wish("", "--type=sqlite"),
            wish("", "--lazy=false"),
            wish("", "--include-blobs=true"),
            wish("", "--force-overwrite=true"),
            Wish(ways=((f"--output={report.with_suffix('.sqlite')}",),), why=""),
        ],
    )
    return (tool.path or "nsys", "export", *line.flags, str(report))


def remove_orphans(folder: Path, mark: str, since_s: float) -> tuple[Path, ...]:
    """Remove the recordings that nsys made no report of, and give their names.

    They lie in the temporary folder, in old versions in that of the report. Ours are those which hold the environment
    of the run, and with it `mark`.
    """
    removed = []
    for path in {*folder.glob("*.qdstrm"), *Path(tempfile.gettempdir()).glob("*.qdstrm")}:
        with suppress(OSError):
            with files.open_file(path, follow=False) as file:
                found = os.fstat(file.fileno())
                files.refuse_foreign(found, path)
                is_ours = found.st_mtime >= since_s and mark.encode() in file.read(_MOST_BEFORE_ENVIRONMENT)
            if is_ours:
                path.unlink()
                removed.append(path)
    return tuple(removed)
