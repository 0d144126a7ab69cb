"""Named ranges around the phases of a step, seen by torch.profiler and, where it makes sense, by Nsight."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

from torch.profiler import record_function

PHASES: Final = ("data_loader", "h2d", "forward", "backward", "optimizer")
NVTX_VARIABLE: Final = "WORKLOADS_NVTX"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """The two context managers of a loop: `phase(name)` inside a step, `step(index)` around it.

    `step` marks NVTX only, by the name `ProfilerStep#N` of torch.profiler, which writes its own step rows.
    """

    phase: Callable[[str], AbstractContextManager[None]]
    step: Callable[[int], AbstractContextManager[None]]


def has_nvtx(device_type: str) -> bool:
    """True if the nvtx package is there and CUDA is in use or `WORKLOADS_NVTX=1` asks for it."""
    is_wanted = device_type == "cuda" or os.environ.get(NVTX_VARIABLE) == "1"
    return is_wanted and importlib.util.find_spec("nvtx") is not None


def make_ranges(device_type: str) -> Ranges:
    """Gives the ranges for a run on this device type ("cpu" or "cuda")."""
    if has_nvtx(device_type):
        return _profiler_and_nvtx_ranges()
    return Ranges(phase=_profiler_range, step=lambda _index: nullcontext())


@contextmanager
def _profiler_range(name: str) -> Iterator[None]:
    with record_function(name):
        yield


def _profiler_and_nvtx_ranges() -> Ranges:
    nvtx = importlib.import_module("nvtx")

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        with record_function(name), nvtx.annotate(name):
            yield

    @contextmanager
    def step(index: int) -> Iterator[None]:
        with nvtx.annotate(f"ProfilerStep#{index}"):
            yield

    return Ranges(phase=phase, step=step)
