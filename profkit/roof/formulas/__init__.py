"""What an operator computes and moves, by its name and the shapes it was given: one table."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from profkit.model.signature import Signature
from profkit.roof.formulas.memory import MEMORY, fused
from profkit.roof.formulas.products import ATTENTION, CONVOLUTION, MATMUL
from profkit.roof.formulas.work import Formula, Work

FORMULAS: Final[dict[str, Formula]] = {**MATMUL, **CONVOLUTION, **ATTENTION, **MEMORY}
"""By the operator's name as traces write it."""

PRODUCTS: Final = frozenset({*MATMUL, *CONVOLUTION, *ATTENTION})
"""Names of operators that multiply matrices."""

_COMPILED: Final[tuple[tuple[str, Formula], ...]] = (
    ("triton_poi_", lambda signature: fused(signature, 1)),
    ("triton_red_", lambda signature: fused(signature, 2)),
    ("triton_per_", lambda signature: fused(signature, 2)),
)
"""Kernels of torch.compile, by the start of their names."""
_MOST: Final = 2**62
"""No operator does more: 50 days of the fastest device."""


def has_formula(name: str) -> bool:
    """Whether the work of an operator may be known."""
    return _formula(name) is not None


def _formula(name: str) -> Formula | None:
    return FORMULAS.get(name) or next((made for start, made in _COMPILED if name.startswith(start)), None)


def work_of(name: str, signature: Signature) -> Work | None:
    """The work of one call of an operator; None without a formula, or where its shapes were not recorded."""
    formula = _formula(name)
    if formula is None:
        return None
    try:
        work = formula(signature)
    except (IndexError, TypeError, ValueError, ZeroDivisionError):
        return None  # a stranger's file: fewer arguments, or other kinds of them
    if work is None or not all(0 <= (value or 0) <= _MOST for value in (work.flops, work.n_bytes)):
        return None
    # without strides an expanded tensor, of which little is in memory, looks like any other: factors of products are
    # expanded rarely, operands of elementwise operators often
    return work if signature.strides or work.is_matrix else replace(work, n_bytes=None)
