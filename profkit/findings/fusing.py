"""What to do about kernels that memory limits, by what they are and by what the job does already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.findings.kernels import UNFUSED
from profkit.model.names import is_inductors
from profkit.redact.later import later
from profkit.units import format_ns

_COPIES: Final = later(r"direct_copy_kernel|float(?:8|16)\w{0,20}_copy_kernel")
"""Kernels of torch that compute nothing: they copy, to another number format or to another order."""
_CASTS: Final = later(r"LoadWithCast|StoreWithCast|float(?:8|16)\w{0,20}_copy_kernel")
_MOVES: Final = later(r"gpu_kernel_impl_nocast")
_SPARED: Final = (
    (_CASTS, "cast less often: copies to another number format"),
    (_MOVES, "keep tensors in one layout: copies in the same format"),
)
_SHORT: Final = {"bfloat16": "bf16", "float16": "fp16"}
_MOST: Final = 3
"""Kernels that decide whether the job is compiled. Chosen: as many as the finding names."""
_BY_HAND: Final = "hand-written kernels (Triton, Liger)"


def fix_of_unfused(
    memory: Sequence[tuple[str, int]], *, each: str, half_name: str, is_compiled: bool, is_cpu: bool
) -> tuple[str, str]:
    """What to do about memory-bound kernels and its proof; "" is the kind's own: compile it.

    `memory` are names with their time per step, ns, the longest first; `each` is what that is per. `half_name` is the
    device's format of half precision, "" where the job is in it.
    """
    if is_cpu:
        return "fuse them with torch.compile; use in-place operations, and bfloat16 if this CPU computes in it", ""
    short = _SHORT.get(half_name, half_name)
    if memory and all(is_inductors(name) for name, _ in memory[:_MOST]):
        if not half_name:
            return (
                f"already compiled: remove graph breaks, or use {_BY_HAND}",
                "Replace the longest of these kernels by a hand-written one and compare the step.",
            )
        return (
            f"already compiled: remove graph breaks, use half-precision activations or {_BY_HAND}",
            f"Run the module in {short}: with half the bytes, memory-bound time halves.",
        )
    spared = _spared(memory, each)
    if is_compiled:
        return (
            f"{spared}part of the job is compiled, these are not: find the graph breaks (TORCH_LOGS=graph_breaks) and"
            f" compile the modules that launch them, or use {_BY_HAND}",
            "Compile the module that launches the longest of them: the time of its group falls towards its longest member.",
        )
    activations = "half-precision activations, and " if half_name else ""
    halves = f" Or use {short}: with half the bytes, memory-bound time halves." if half_name else ""
    return (
        f"{spared}fuse them with torch.compile or {_BY_HAND}; use {activations}in-place operations where allowed",
        UNFUSED.proof_on_cpu + halves,
    )


def _spared(memory: Sequence[tuple[str, int]], each: str) -> str:
    """What to say first where kernels that only copy lead: whether they convert numbers or move them."""
    if not memory or not _COPIES.search(memory[0][0]):
        return ""
    said = ""
    for pattern, words in _SPARED:
        ns = sum(ns for name, ns in memory if _COPIES.search(name) and pattern.search(name))
        said += f"{words} take at least {format_ns(ns)} {each}; " if ns else ""
    return said
