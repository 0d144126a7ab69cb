"""A document as HTML for a notebook's cell: the answer, why, and what to run next, in little room.

In: a document. Out: HTML without script, style sheet or link, every name in it escaped. Begin with `html_of`; the
whole report is `profkit triage -o report.html`, or another format. No format of `-f`: notebooks ask for it themselves.
"""

from __future__ import annotations

from profkit.model.documents.comparison import Comparison
from profkit.model.documents.ladder import LadderReport
from profkit.model.documents.report import Report
from profkit.model.documents.scaling import ScalingReport


def html_of(document: object) -> str:
    """The document as HTML; raises TypeError for what is no document that can be shown."""
    match document:
        case Report():
            from profkit.render.notebook.triage import drawn

            return drawn(document)
        case Comparison():
            from profkit.render.notebook.compare import drawn as drawn_comparison

            return drawn_comparison(document)
        case ScalingReport():
            from profkit.render.notebook.scaling import drawn as drawn_scaling

            return drawn_scaling(document)
        case LadderReport():
            from profkit.render.notebook.ladder import drawn as drawn_ladder

            return drawn_ladder(document)
        case _:
            raise TypeError(f"{type(document).__name__} is not shown in notebooks")
