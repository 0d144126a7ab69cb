"""What the documents of this folder share: how one is written, and the values that several hold."""

from __future__ import annotations

import json
import math
from typing import Any

from profkit.model.code import PlaceShare
from profkit.model.finding import Evidence, NextTool


def written(document: dict[str, Any]) -> str:
    """The document as text in a fixed order of keys, with a newline at its end."""
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def number(value: float | None) -> float | int | None:
    """A number that JSON has: None for NaN and infinities."""
    return None if value is None or not math.isfinite(value) else value


def evidence_to_dict(item: Evidence) -> dict[str, Any]:
    """What was seen; a finding's says what was expected, and where, as well."""
    return {"statement": item.statement, "metric": item.metric, "value": number(item.value), "unit": item.unit}


def tool_to_dict(tool: NextTool) -> dict[str, str]:
    """The next capture."""
    return {"name": tool.name, "command": tool.command, "purpose": tool.purpose, "look_for": tool.look_for}


def place_to_dict(share: PlaceShare) -> dict[str, Any]:
    """A place in the user's code and what it has of a time, as plain values."""
    place = share.place
    return {
        "where": place.words,
        "file": place.file,
        "function": place.function,
        "line": place.line or None,
        "defined": place.defined or None,
        "text": place.text or None,
        "call": place.call or None,
        "module": place.module or None,
        "n_modules": share.n_modules,
        "library": place.library or None,
        "inside": place.inside or None,
        "compiled": place.is_generated,
        "phase": share.phase.word,
        "ns": share.ns,
        "share": share.share,
        "share_of": share.of or "self",
        "count": share.count,
    }
