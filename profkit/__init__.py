"""profkit: where the time of a PyTorch training step goes, what the bottleneck is, and what to run next.

    import profkit

    report = profkit.triage("trace.json.gz")  # or a folder, or all ranks' traces; a notebook draws it
    report.verdict.bottleneck, report.verdict.headline, report.verdict.next_tool.command

    profkit.compare("before/", "after/").judgement.answer
    profkit.scaling("results.csv").series[0].largest.efficiency
    profkit.ladder("runs.csv").ladders[0].total

    trace = profkit.read_trace("trace.json.gz")
    trace.to_pandas("gpu")[["name", "duration_ns", "stream"]]
    ranks = list(profkit.read_traces("nsys.sqlite"))

Importing this loads neither numpy nor anything else: names are resolved when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from profkit.version import __version__ as __version__

if TYPE_CHECKING:
    from profkit.api import scaling, triage
    from profkit.compare.paths import compare_paths as compare
    from profkit.compare.paths import ladder
    from profkit.errors import ProfkitError
    from profkit.ingest.kineto.reader import read_trace
    from profkit.ingest.read import read_traces
    from profkit.model.documents.comparison import Comparison
    from profkit.model.documents.ladder import LadderReport
    from profkit.model.documents.report import Report
    from profkit.model.documents.scaling import ScalingReport
    from profkit.model.trace import Trace
    from profkit.pipeline import triage_trace

__all__ = [
    "Comparison",
    "LadderReport",
    "ProfkitError",
    "Report",
    "ScalingReport",
    "Trace",
    "compare",
    "ladder",
    "read_trace",
    "read_traces",
    "scaling",
    "triage",
    "triage_trace",
]

_HOME: Final = {
    "Comparison": "profkit.model.documents.comparison",
    "LadderReport": "profkit.model.documents.ladder",
    "ProfkitError": "profkit.errors",
    "Report": "profkit.model.documents.report",
    "ScalingReport": "profkit.model.documents.scaling",
    "Trace": "profkit.model.trace",
    "compare": "profkit.compare",
    "ladder": "profkit.compare.paths",
    "read_trace": "profkit.ingest.kineto.reader",
    "read_traces": "profkit.ingest.read",
    "scaling": "profkit.api",
    "triage": "profkit.api",
    "triage_trace": "profkit.pipeline",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'profkit' has no attribute {name!r}")
    if name != "ProfkitError":
        _let_notebooks_draw()
    module = import_module(_HOME[name])
    return module if module.__name__ == f"profkit.{name}" else getattr(module, name)  # a package that can be called


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def _let_notebooks_draw() -> None:
    """Tell documents what draws them: `model` cannot import `render`, and this is above both."""
    from profkit.model.documents.shown import show_with

    show_with(_html_of)


def _html_of(document: object) -> str:
    from profkit.render.notebook import html_of

    return html_of(document)
