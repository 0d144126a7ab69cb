"""What triage finds in drawn rows."""

from collections.abc import Iterable
from typing import Any

from profkit.model.trace import Trace
from profkit.pipeline import triage_trace
from profkit.testing import Row, trace_of


def finding_in(rows: Iterable[Row] | Trace, finding_id: str, **metadata: Any) -> Any:
    """The finding of that id in the triage of these rows, or of a trace; None where it is silent."""
    rank, _ = triage_trace(rows if isinstance(rows, Trace) else trace_of(rows, **metadata))
    return next((one for one in rank.findings if one.id == finding_id), None)
