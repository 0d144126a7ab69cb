"""What the documents of this folder share: how one is written, and the values that several hold."""

from __future__ import annotations

import json
import math
from typing import Any

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
