"""Exports that are pictures of a recording: what they hold is no job to judge."""

from __future__ import annotations

from typing import Final

from profkit.errors import UnsupportedTraceError
from profkit.model.trace import Trace
from profkit.plain import clean

EXPORT: Final = "profkit_export"
"""The key under which a file says that `profkit export` wrote it, and of what."""


def refuse_drawn(trace: Trace) -> None:
    """Raise UnsupportedTraceError for an export that is a picture: of one chosen moment, or of another tool's rows."""
    told = trace.meta.metadata.get(EXPORT)
    if not isinstance(told, dict):
        return
    if told.get("around"):
        raise UnsupportedTraceError(
            f"{trace.meta.source} holds the moments around {clean(str(told['around']))} that `profkit export --around`"
            " chose, which are no usual step",
            hint="profkit triage on the whole trace; profkit open shows these moments",
        )
    if told.get("drawn_from"):
        raise UnsupportedTraceError(
            f"{trace.meta.source} holds what `profkit export` drew of a recording by {clean(str(told['drawn_from']))}",
            hint="profkit triage on that recording; profkit open shows this file",
        )
