"""Compute by what its rows are: groups whose changes sum to that of compute, so that no ns explains two things."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from profkit.compare.captures.counts import generator_of
from profkit.compare.captures.measured import Measured
from profkit.compare.captures.waterfall import Runs, uses
from profkit.compare.captures.work_rows import OPTIMIZER, Work
from profkit.model.documents.comparison import WorkChange
from profkit.model.names import LAYOUT, precision_of

PREFIX: Final = "compute."
GROUPS: Final = (
    "optimizer",
    "generated",
    "layout",
    "attention",
    "products_of_attention",
    "softmax",
    "matrix",
    "elementwise",
    "other",
)
"""By what is asked first; `other` has norms, reductions, embeddings, what no name tells, and what ran side by side."""
_PRODUCTS: Final = frozenset({"matmul", "attention", "convolution"})
_OF_ATTENTION: Final = re.compile(r"^aten::(?:bmm|baddbmm)")


def group_of(work: Work | WorkChange) -> str:
    """The group of a row."""
    if work.family == OPTIMIZER:
        return "optimizer"
    if generator_of(work.name):
        return "generated"
    if work.family in {LAYOUT, "attention", "softmax"}:
        return work.family
    if precision_of(work.name) is not None or work.family == "matmul":
        return "products_of_attention" if _OF_ATTENTION.match(work.operator) else "matrix"
    return "elementwise" if work.family == "elementwise" else "other"


def n_products(trace: Measured) -> int:
    """Rows that multiply matrices: of families that no compiler fuses away."""
    codes = [code for code, work in enumerate(trace.compute.works) if work.family in _PRODUCTS]
    return int(np.isin(trace.compute.work, codes).sum())


def group_changes(baseline: Runs, candidate: Runs, change_ns: int) -> dict[str, int]:
    """The change of each group, ns per step, under `PREFIX` and its name; in all `change_ns`."""
    out = dict.fromkeys((PREFIX + name for name in GROUPS), 0)
    for sign, runs in ((-1, baseline), (1, candidate)):
        for work, use in uses(runs, lambda trace: trace.compute)[0].items():
            out[PREFIX + group_of(work)] += sign * use.total_ns
    out[PREFIX + "other"] += change_ns - sum(out.values())
    return out
