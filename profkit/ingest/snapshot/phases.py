"""What runs in a frame of an allocation's stack: forward, backward, the optimizer, or the making of the model."""

from __future__ import annotations

from typing import Any, Final

from profkit.model.snapshot import MemoryPhase

MOST_FRAMES: Final = 512
"""Frames of a stack that are looked at, from the innermost. Chosen: torch records 64 or so."""
_MODULES: Final = "/torch/nn/modules/"
_MODULE: Final = "/torch/nn/modules/module.py"
_CALLS: Final = frozenset({"_call_impl", "_wrapped_call_impl", "_slow_forward"})
_MOVES: Final = frozenset({"_apply", "convert", "to", "cuda", "to_empty"})
_BACKWARD: Final = frozenset({"_engine_run_backward", "backward"})
_ENGINE: Final = ("torch::autograd::Engine::", "torch::autograd::python::PythonEngine::")
"""Of C++ frames: the threads that run the backward pass have no Python frames."""


def phase_in(frame: Any) -> MemoryPhase | None:
    """The phase that a frame tells; None where it tells none."""
    if not isinstance(frame, dict):
        return None
    file, function = frame.get("filename"), frame.get("name")
    if not isinstance(file, str) or not isinstance(function, str):
        return None
    file = file.replace("\\", "/")
    if "/torch/optim/" in file:
        return MemoryPhase.OPTIMIZER
    if function.startswith(_ENGINE) or (
        "/torch/autograd/" in file and function in {"_engine_run_backward", "backward"}
    ):
        return MemoryPhase.BACKWARD
    if file.endswith(_MODULE) and function in _CALLS:
        return MemoryPhase.FORWARD
    if file.endswith(_MODULE) and function in _MOVES:
        return MemoryPhase.MODEL
    return MemoryPhase.MODEL if _MODULES in file and function == "__init__" else None
