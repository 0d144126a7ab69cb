"""Trials as JSON: `profkit schema trial` prints its schema."""

from __future__ import annotations

from typing import Any, Final

from msgspec import to_builtins

from profkit.model.documents.trial import TrialReport
from profkit.render.json.values import written
from profkit.render.words import trial as words
from profkit.version import __version__

SCHEMA_ID: Final = "profkit.trial/1"


def render(report: TrialReport, **_: object) -> str:
    """The document as text."""
    plain: dict[str, Any] = to_builtins(report)
    for trial, row in zip(report.trials, plain["trials"], strict=True):
        row["speedup"], row["sentence"] = trial.speedup, words.sentence(trial)
    head = {"schema": SCHEMA_ID, "profkit_version": __version__, "headline": words.headline(report)}
    return written({**head, **plain})
