"""The most memory a run has held."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import torch

_STATUS: Final = Path("/proc/self/status")


def peak_bytes(device: torch.device) -> int:
    """Gives the most memory this process has held: torch's on a CUDA device, else resident; 0 where unknown."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if not sys.platform.startswith("linux"):
        return 0
    # Not getrusage: its ru_maxrss begins with what the parent held when it forked.
    lines = _STATUS.read_text(encoding="utf-8").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def reset_peak(device: torch.device) -> None:
    """Forgets the most memory that was held so far, on a CUDA device; of a process the system keeps it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
