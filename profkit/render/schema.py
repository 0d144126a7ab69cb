"""The JSON Schema of each document that profkit prints, as shipped in the package."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, Final

from profkit.errors import UsageError

SCHEMAS: Final = ("triage", "where", "compare", "compare_kernels", "scaling", "ladder", "kernels", "probe", "trial")
"""Names of the documents with a schema."""


def schema(name: str) -> dict[str, Any]:
    """The schema (draft 2020-12) of a document, by the name of its command; raises UsageError."""
    if name not in SCHEMAS:
        raise UsageError(f"no schema is known for {name!r}", hint=f"one of {', '.join(SCHEMAS)}")
    file = resources.files("profkit.render") / "schema" / f"{name}.schema.json"
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if name == "triage":
        _add_sources(document["$defs"]["rank"]["properties"])
    if name == "where":
        document["$defs"]["place"] = schema("triage")["$defs"]["place"]
    return document


def _add_sources(rank: dict[str, Any]) -> None:
    """What kinds of files there are, as they say themselves."""
    from profkit.ingest.sources import SOURCES
    from profkit.model.trace import DEVICE_STEPS, RANGED_STEPS

    kinds = [kind for kind in reversed(SOURCES) if kind.step_source]
    rank["format"] = {"enum": [kind.name for kind in kinds]}
    rank["window"]["properties"]["step_source"] = {
        "enum": [*(kind.step_source for kind in kinds), DEVICE_STEPS, RANGED_STEPS, "period", "span"]
    }
