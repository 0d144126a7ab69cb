"""The files of a capture between the traced processes and whoever puts the traces together.

A process leaves `<label>.raw` (the exported JSON) and `<process>.facts` in the work folder of its capture (see
`place`).
Runs in the traced process.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch

from .. import place
from ..beside import files
from ..options import Options

_HELD: Final[dict[str, place.Hold]] = {}
"""The parts that this process has in captures, by capture id."""
_SAID: Final[set[str]] = set()
"""What this process has said, in whatever capture."""
_RANK_VARIABLES: Final = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "LOCAL_RANK")


def join(options: Options) -> Path:
    """Have a part in the capture, if this process has none yet; give its work folder. Raises OSError."""
    _let_children_go()
    if options.capture_id not in _HELD:
        _HELD[options.capture_id] = place.join(options.folder, options.capture_id)
    return _HELD[options.capture_id].work


def leave(options: Options) -> None:
    """End this process's part in the capture before the process ends."""
    if options.capture_id in _HELD:
        place.leave(_HELD.pop(options.capture_id))


@cache
def _let_children_go() -> None:
    """See to it that a forked child has no part, whatever became of the capture in this process."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget_parts)


def forget_parts() -> None:
    """In a forked child: the parent's part in the capture is not the child's, which may outlive it."""
    while _HELD:
        _HELD.popitem()[1].release()


@contextmanager
def _work(options: Options) -> Iterator[Path]:
    """The work folder, by a name that leads to it alone; this process has a part in the capture meanwhile."""
    held = _HELD.get(options.capture_id)
    hold = held or place.join(options.folder, options.capture_id)
    try:
        with hold.pinned_work() as work:
            yield work
    finally:
        if held is None:
            hold.release()


@contextmanager
def raw_file(options: Options, label: str) -> Iterator[Path]:
    """Where a process exports its trace to; it is in the work folder when the context has ended."""
    join(options)
    with _HELD[options.capture_id].hidden_folder() as folder:
        yield folder / f"{label}{place.RAW}"


def drop_raw(options: Options, label: str) -> None:
    """Remove what this process has exported: the next recording takes its place."""
    with _work(options) as work, suppress(FileNotFoundError):
        (work / f"{label}{place.RAW}").unlink()


def note_begun(options: Options) -> None:
    """Leave a sign that this process got as far as importing torch. Raises OSError where nothing can be written."""
    join(options)
    write_facts(options, {"reason": "the process left without its exit handlers (os._exit, or killed)"})


def note_problem(options: Options, reason: str) -> None:
    """Leave why this process cannot be captured; asks nothing of torch."""
    join(options)
    _write(options, {"reason": reason, "is_failure": True, **_who()})


def write_facts(options: Options, facts: dict[str, Any]) -> None:
    """Write the facts of this process, whole or not at all."""
    told = {**facts, **_process(), "command": options.command}
    os.lstat(place.work_folder(options.folder, options.capture_id))  # of a capture that is over none is made again
    _write(options, told)


def _write(options: Options, facts: dict[str, Any]) -> None:
    with _work(options) as work:
        files().write_whole(work / f"{place.process_name(os.getpid())}.facts", json.dumps(facts).encode())


def finite(value: Any) -> float:
    """A count as a number, 0 for what is none or not finite; of a tensor, its value."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # torch raises RuntimeError for more than one element
        return 0.0
    return number if math.isfinite(number) else 0.0


def claim_label(options: Options) -> str:
    """How this process is named in file names: its rank, with the process id where another process has that rank."""
    folder = join(options)
    for label in (f"rank{rank()}", f"rank{rank()}_pid{os.getpid()}"):
        if _is_first(options, f"{label}.claim"):
            return label
    raise FileExistsError(f"{folder} already holds a capture")


def _is_first(options: Options, name: str) -> bool:
    """Whether no process of the capture has left a sign of this name before; leaves it."""
    with _work(options) as work:
        try:
            (work / name).touch(exist_ok=False)
        except FileExistsError:
            return False
    return True


def agreed(options: Options, name: str, value: int) -> int:
    """The number that the first process of the capture has settled for; this one, where that is this process."""
    with suppress(OSError, ValueError), _work(options) as work:
        mine, common = work / f"{name}{place.process_name(os.getpid())}.said", work / f"{name}.said"
        files().write_whole(mine, str(value).encode())
        with suppress(FileExistsError):
            os.link(mine, common)
        return int(files().read_small(common, 16, follow=False))
    return value


def say_once(options: Options, name: str, line: str) -> None:
    """Say something on stderr that holds for every process of a capture, from one of them."""
    if name in _SAID:
        return
    _SAID.add(name)
    with suppress(OSError):
        if not _is_first(options, f"{name}.said"):
            return
    print(f"profkit: {line}", file=sys.stderr, flush=True)  # noqa: T201


def rank() -> int:
    """The rank of this process, 0 where there is but one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank())
    for name in _RANK_VARIABLES:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def world_size() -> int:
    """The number of ranks, 1 where this process is alone."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_world_size())
    text = os.environ.get("WORLD_SIZE", "")
    return int(text) if text.isdigit() else 1


def _who() -> dict[str, Any]:
    return {"pid": os.getpid(), "process": place.process_name(os.getpid())}


def _process() -> dict[str, Any]:
    return {
        **_who(),
        "rank": rank(),
        "world_size": world_size(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "device": _device(),
        "memory": _memory(),
        "cores": cores(),
        "machine": place.machine(),
        "gpu_uuid": _gpu_uuid(),
    }


def _gpu_uuid() -> str:
    """The current GPU's own id; "" where this torch has none."""
    if not torch.cuda.is_initialized():
        return ""
    with suppress(Exception):  # a fact less
        return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    return ""


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_bf16() -> bool | None:
    """Whether the CPU multiplies in bfloat16; None where this torch cannot tell, as for others than x86."""
    asked = [getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")]
    known = [ask for ask in asked if ask is not None]
    if sys.platform == "linux" and platform.machine() == "x86_64" and len(known) == len(asked):
        with suppress(Exception):  # a fact less
            return any(bool(ask()) for ask in known)
    return None


def _device() -> dict[str, Any]:
    if not torch.cuda.is_initialized():
        return {
            "type": "cpu",
            "name": platform.processor() or platform.machine(),
            "n_threads": torch.get_num_threads(),
            "has_bf16": has_bf16(),
        }
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
