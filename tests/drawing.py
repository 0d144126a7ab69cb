"""Rows of steps that many tests draw, and what triage finds in them."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import pytest
from _pytest.mark.structures import ParameterSet

from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.report import Verdict
from profkit.model.finding import Finding
from profkit.model.trace import Trace
from profkit.pipeline import triage_trace
from profkit.testing import Row, draw, kernel, launch, operator, span, trace_of
from profkit.timeline import Facts

US, MS = 1_000, 1_000_000
BASE, STEP = 10**9, 1000 * US
"""When the first step of those below begins, and how long each is."""
NODE = "autograd::engine::evaluate_function: "
ACCUMULATES = NODE + "torch::autograd::AccumulateGrad"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class Triaged(NamedTuple):
    """What triage says of one trace: its verdict, its findings by id, its rank's report."""

    verdict: Verdict
    found: dict[str, Finding]
    rank: RankReport


def triaged(drawn: Iterable[Row] | Trace, **metadata: Any) -> Triaged:
    """The triage of these rows, or of a trace."""
    rank, verdict = triage_trace(drawn if isinstance(drawn, Trace) else trace_of(drawn, **metadata))
    return Triaged(verdict, {finding.id: finding for finding in rank.findings}, rank)


def finding_in(drawn: Iterable[Row] | Trace, finding_id: str, **metadata: Any) -> Any:
    """The finding of that id in the triage of these rows, or of a trace; None where it is silent."""
    return triaged(drawn, **metadata).found.get(finding_id)


def failed_checks(rank: RankReport) -> set[str]:
    """The ids of the checks of the capture that failed."""
    return {check.id for check in rank.checks if not check.ok}


def facts_of(drawn: str | Iterable[Row] | Trace, **metadata: Any) -> Facts:
    """The facts of a picture, of rows or of a trace."""
    if isinstance(drawn, str):
        return Facts.of(draw(drawn, **metadata))
    return Facts.of(drawn if isinstance(drawn, Trace) else trace_of(drawn, **metadata))


def twins(healthy: dict[str, dict[str, Any]]) -> list[ParameterSet]:
    """A case for each healthy twin, given by finding and by what it is: the finding's id, and how the twin is drawn."""
    return [pytest.param(of, how, id=f"{of}: {what}") for of, each in healthy.items() for what, how in each.items()]


def in_steps(
    n: int, length_ns: int, drawn: Callable[[int, int], Iterable[Row]], *, begin_ns: int = 0, marked_ns: int = 0
) -> list[Row]:
    """Steps of that length, each with the rows that `drawn(at, number)` gives; markers may be shorter."""
    rows = []
    for number in range(n):
        at = begin_ns + number * length_ns
        rows += [span(f"ProfilerStep#{number}", at, at + (marked_ns or length_ns)), *drawn(at, number)]
    return rows


def steps_of(n: int, *made: Callable[[int], Iterable[Row]]) -> list[Row]:
    """Steps of 1 ms, each with the rows that these make for its number."""
    return in_steps(n, STEP, lambda _, number: [row for one in made for row in one(number)], begin_ns=BASE)


def ranged(step: int, name: str, start_us: float, end_us: float, **more: Any) -> Row:
    """A range of the host at that place of a step of 1 ms."""
    begin = BASE + step * STEP
    return span(name, begin + round(start_us * US), begin + round(end_us * US), **more)


frame = partial(ranged, cat="python_function")
"""A call of Python at that place of a step."""


def at(step: int, name: str, start_us: float, end_us: float, dims: Any = (), concrete: Any = (), **args: Any) -> Row:
    """An operator at that place of a step of 1 ms, with what it takes."""
    begin = BASE + step * STEP
    if dims:
        args["Input_Dims"] = [list(one) for one in dims]
        args["Input_type"] = ["float" if one else "Scalar" for one in dims]
        args["Concrete_Inputs"] = [*map(str, concrete), *[""] * (len(dims) - len(concrete))]
    return operator(name, begin + round(start_us * US), begin + round(end_us * US), **args)


def launched(
    name: str, at_ns: int, start_ns: int, end_ns: int, number: int, *, call_ns: int = 1000, **args: Any
) -> list[Row]:
    """A kernel, and the call at `at_ns` that launches it."""
    call = launch(at_ns, at_ns + call_ns, correlation=number)
    return [call, kernel(name, start_ns, end_ns, correlation=number, **args)]


def back_to_back(*work: tuple[str, int]) -> list[Row]:
    """Eight steps of 1 ms with the same kernels, (name, us), one after another, all launched before the first."""

    def drawn(at: int, step: int) -> list[Row]:
        rows = []
        for number, (name, us) in enumerate(work, step * len(work) + 1):
            asked = BASE - 9000 * US + number * 10 * US
            rows += launched(name, asked, at, at + us * US, number)
            at += us * US
        return rows

    return in_steps(8, STEP, drawn, begin_ns=BASE)
