"""A probe as JSON: `profkit schema probe` prints its schema, `triage --probe` reads it."""

from __future__ import annotations

from typing import Final

from msgspec.structs import asdict

from profkit.model.documents.probe import ProbeReport, Slope
from profkit.render.json.values import Shapes, document_of, written
from profkit.render.words import probe as words

SCHEMA_ID: Final = "profkit.probe/1"
_SHAPES: Final[Shapes] = {
    ProbeReport: lambda report: {"headline": words.headline(report), **asdict(report)},
    Slope: lambda slope: {**asdict(slope), "sentence": words.sentence(slope)},
}


def render(report: ProbeReport, **_: object) -> str:
    """The document as text: times integer ns, shares and slopes plain numbers, what is absent None."""
    return written(document_of(SCHEMA_ID, report, _SHAPES))
