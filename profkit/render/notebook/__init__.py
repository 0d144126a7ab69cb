"""A document as HTML for a notebook's cell: the answer, why, and what to run next, in little room.

In: a document. Out: HTML without script, style sheet or link, every name in it escaped. Begin with `html_of`; the
whole report is `profkit triage -o report.html`, or another format. No format of `-f`: notebooks ask for it themselves.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from profkit.model.documents.comparison import Comparison
from profkit.model.documents.ladder import LadderReport
from profkit.model.documents.report import Report
from profkit.model.documents.scaling import ScalingReport

_DRAWN: Final[dict[type, str]] = {
    Report: "triage",
    Comparison: "compare",
    ScalingReport: "scaling",
    LadderReport: "ladder",
}
"""The file here for each document; a notebook imports the one that it asks for."""


def html_of(document: object) -> str:
    """The document as HTML; raises TypeError for what is no document that can be shown."""
    name = next((name for kind, name in _DRAWN.items() if isinstance(document, kind)), None)
    if name is None:
        raise TypeError(f"{type(document).__name__} is not shown in notebooks")
    html: str = import_module(f"{__name__}.{name}").drawn(document)
    return html
