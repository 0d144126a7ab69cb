"""What triage finds in drawn rows."""

from collections.abc import Callable, Iterable
from typing import Any

from profkit.model.trace import Trace
from profkit.pipeline import triage_trace
from profkit.testing import Row, kernel, launch, span, trace_of


def finding_in(rows: Iterable[Row] | Trace, finding_id: str, **metadata: Any) -> Any:
    """The finding of that id in the triage of these rows, or of a trace; None where it is silent."""
    rank, _ = triage_trace(rows if isinstance(rows, Trace) else trace_of(rows, **metadata))
    return next((one for one in rank.findings if one.id == finding_id), None)


def in_steps(
    n: int, length_ns: int, drawn: Callable[[int, int], Iterable[Row]], *, begin_ns: int = 0, marked_ns: int = 0
) -> list[Row]:
    """Steps of that length, each with the rows that `drawn(at, number)` gives; markers may be shorter."""
    rows = []
    for number in range(n):
        at = begin_ns + number * length_ns
        rows += [span(f"ProfilerStep#{number}", at, at + (marked_ns or length_ns)), *drawn(at, number)]
    return rows


def launched(
    name: str, at_ns: int, start_ns: int, end_ns: int, number: int, *, call_ns: int = 1000, **args: Any
) -> list[Row]:
    """A kernel, and the call at `at_ns` that launches it."""
    call = launch(at_ns, at_ns + call_ns, correlation=number)
    return [call, kernel(name, start_ns, end_ns, correlation=number, **args)]
