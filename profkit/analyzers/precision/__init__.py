"""In which number format are matrices multiplied? (docs/method.md)

In: `Facts`. Out: `ANALYZER`. Begin with `kernels`, which reads names of kernels; `operators` is its twin for a CPU, where
only recorded types tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from profkit.analyzers.base import Analyzer
from profkit.analyzers.precision import kernels, operators
from profkit.analyzers.precision.kernels import MatmulPrecision
from profkit.analyzers.precision.operators import OperatorPrecision
from profkit.model.documents.rank_report import Section
from profkit.model.finding import Finding, Skipped
from profkit.timeline import Facts
from profkit.timeline.code import Rows

Formats = MatmulPrecision | OperatorPrecision


def measure(facts: Facts) -> Formats | Skipped:
    """The formats of the busiest device's kernels; without a device, of operators."""
    return operators.measure(facts) if facts.main_device is None else kernels.measure(facts)


def judge(result: Formats) -> tuple[Finding, ...]:
    """`precision.fp64`, `precision.fallback` and `precision.no_tf32`."""
    return operators.judge(result) if isinstance(result, OperatorPrecision) else kernels.judge(result)


def rows(facts: Facts, result: Formats) -> Mapping[str, Rows]:
    """What runs in full precision."""
    return operators.rows(facts, result) if isinstance(result, OperatorPrecision) else kernels.rows(facts, result)


def present(result: Formats) -> Section:
    """Show the formats."""
    return operators.present(result) if isinstance(result, OperatorPrecision) else kernels.present(result)


ANALYZER: Final[Analyzer[Formats]] = Analyzer(
    name="precision",
    question="are matrices multiplied in the intended number format?",
    needs="kernel names; on a CPU types of arguments",
    measure=measure,
    judge=judge,
    rows=rows,
    present=present,
)

__all__ = ["ANALYZER", "MatmulPrecision", "OperatorPrecision", "judge", "measure"]
