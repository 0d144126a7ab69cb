"""profkit: where the time of a PyTorch training step goes, what the bottleneck is, and what to run next.

    import profkit

    report = profkit.triage(["trace.json.gz"])
    report.verdict.bottleneck, report.verdict.headline, report.verdict.next_tool.command

    trace = profkit.read_trace("trace.json.gz")
    trace.gpu.to_pandas()
    ranks = list(profkit.read_traces("nsys.sqlite"))

Importing this loads neither numpy nor anything else: names are resolved when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from profkit.version import __version__ as __version__

if TYPE_CHECKING:
    from profkit.api import triage
    from profkit.errors import ProfkitError
    from profkit.ingest.kineto.reader import read_trace
    from profkit.ingest.read import read_traces
    from profkit.model.documents.report import Report
    from profkit.model.trace import Trace
    from profkit.pipeline import triage_trace

__all__ = ["ProfkitError", "Report", "Trace", "read_trace", "read_traces", "triage", "triage_trace"]

_HOME: Final = {
    "ProfkitError": "profkit.errors",
    "Report": "profkit.model.documents.report",
    "Trace": "profkit.model.trace",
    "read_trace": "profkit.ingest.kineto.reader",
    "read_traces": "profkit.ingest.read",
    "triage": "profkit.api",
    "triage_trace": "profkit.pipeline",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'profkit' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
