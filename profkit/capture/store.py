"""The files of a capture between the traced processes and whoever puts the traces together.

A process leaves `<label>.raw` (the exported JSON) and `<pid>.facts` in the work folder of its capture (see `place`).
Runs in the traced process.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch

from . import place
from .beside import files
from .options import Options

_HELD: Final[dict[str, place.Hold]] = {}
"""The parts that this process has in captures, by capture id."""
_RANK_VARIABLES: Final = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "LOCAL_RANK")


def join(options: Options) -> Path:
    """Have a part in the capture, if this process has none yet; give its work folder. Raises OSError."""
    if options.capture_id not in _HELD:
        _HELD[options.capture_id] = place.join(options.folder, options.capture_id)
    return work_folder(options)


def leave(options: Options) -> None:
    """End this process's part in the capture before the process ends."""
    if options.capture_id in _HELD:
        place.leave(_HELD.pop(options.capture_id))


def forget_parts() -> None:
    """In a forked child: the parent's part in the capture is not the child's, which may outlive it."""
    while _HELD:
        _HELD.popitem()[1].release()


def work_folder(options: Options) -> Path:
    """Give the folder for what is not yet a trace."""
    return place.work_folder(options.folder, options.capture_id)


@contextmanager
def raw_file(options: Options, label: str) -> Iterator[Path]:
    """Give where a process exports its trace to; it is in the work folder when the context has ended."""
    join(options)
    with _HELD[options.capture_id].hidden_folder() as folder:
        yield folder / f"{label}{place.RAW}"


def note_begun(options: Options) -> None:
    """Leave a sign that this process got as far as importing torch. Raises OSError where nothing can be written."""
    join(options)
    write_facts(options, {"reason": "the process left without its exit handlers (os._exit, or killed)"})


def note_problem(options: Options, reason: str) -> None:
    """Leave why this process cannot be captured; asks nothing of torch."""
    folder = join(options)
    facts = {"reason": reason, "is_failure": True, "pid": os.getpid()}
    files().write_whole(folder / f"{os.getpid()}.facts", json.dumps(facts).encode())


def write_facts(options: Options, facts: dict[str, Any]) -> None:
    """Write the facts of this process, whole or not at all."""
    told = {**facts, **_process(), "command": options.command}
    files().write_whole(work_folder(options) / f"{os.getpid()}.facts", json.dumps(told).encode())


def finite(value: Any) -> float:
    """Give a count as a number, 0 for what is none or not finite; of a tensor, its value."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # torch raises RuntimeError for more than one element
        return 0.0
    return number if math.isfinite(number) else 0.0


def claim_label(options: Options) -> str:
    """Give this process's name in file names: its rank, with the process id where another process has that rank."""
    folder = join(options)
    for label in (f"rank{rank()}", f"rank{rank()}_pid{os.getpid()}"):
        try:
            (folder / f"{label}.claim").touch(exist_ok=False)
        except FileExistsError:
            continue
        return label
    raise FileExistsError(f"{folder} holds a capture already")


def rank() -> int:
    """Give the rank of this process, 0 where there is but one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank())
    for name in _RANK_VARIABLES:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def world_size() -> int:
    """Give the number of ranks, 1 where this process is alone."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_world_size())
    text = os.environ.get("WORLD_SIZE", "")
    return int(text) if text.isdigit() else 1


def _process() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "rank": rank(),
        "world_size": world_size(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "device": _device(),
        "memory": _memory(),
    }


def _device() -> dict[str, Any]:
    if not torch.cuda.is_initialized():
        return {"type": "cpu", "name": platform.processor() or platform.machine(), "n_threads": torch.get_num_threads()}
    found: dict[str, Any] = {"type": "cuda", "index": torch.cuda.current_device()}
    questions: dict[str, Any] = {
        "name": torch.cuda.get_device_name,
        "driver": lambda: torch._C._cuda_getDriverVersion(),  # noqa: PLW0108, SLF001
        "cudnn": torch.backends.cudnn.version,
        "nccl": lambda: ".".join(map(str, torch.cuda.nccl.version())),
        "clock_mhz": torch.cuda.clock_rate,
        "capability": lambda: ".".join(map(str, torch.cuda.get_device_capability())),
    }
    for name, ask in questions.items():
        try:
            found[name] = ask()
        except Exception:  # noqa: BLE001 - a fact less; no fact is worth the run
            found[name] = None
    return found


def _memory() -> dict[str, Any]:
    import resource

    found: dict[str, Any] = {"peak_host_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    if torch.cuda.is_initialized():
        found["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
        found["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
        found["n_alloc_retries"] = torch.cuda.memory_stats().get("num_alloc_retries", 0)
    return found
