"""Trials as JSON: `profkit schema trial` prints its schema."""

from __future__ import annotations

from typing import Final

from msgspec.structs import asdict

from profkit.model.documents.trial import Trial, TrialReport
from profkit.render.json.values import Shapes, document_of, written
from profkit.render.words import trial as words

SCHEMA_ID: Final = "profkit.trial/1"
_SHAPES: Final[Shapes] = {
    TrialReport: lambda report: {"headline": words.headline(report), **asdict(report)},
    Trial: lambda trial: {**asdict(trial), "speedup": trial.speedup, "sentence": words.sentence(trial)},
}


def render(report: TrialReport, **_: object) -> str:
    """The document as text."""
    return written(document_of(SCHEMA_ID, report, _SHAPES))
