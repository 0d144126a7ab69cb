"""Places in the user's code as JSON: `profkit schema where` prints its schema."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import asdict

from profkit.model.documents.where import Where
from profkit.render.json.values import place_to_dict, written
from profkit.version import __version__

SCHEMA_ID: Final = "profkit.where/1"


def render(where: Where, *, width: int | None = None, color: bool | None = None, verbose: bool = False) -> str:
    """The document as text."""
    return written(where_to_dict(where))


def where_to_dict(where: Where) -> dict[str, Any]:
    """The document as plain values: times integer ns, shares 0-1, what is absent None."""
    return {
        "schema": SCHEMA_ID,
        "profkit_version": __version__,
        "source": where.source,
        "rank": where.rank,
        "n_ranks": where.n_ranks,
        "chosen": where.chosen or None,
        "window_ns": where.window_ns,
        "n_steps": where.n_steps,
        "subjects": [
            {
                "kind": one.kind,
                "name": one.name,
                "title": one.title,
                "share": one.share,
                "ns": one.ns or None,
                "places": [place_to_dict(share) for share in one.places],
            }
            for one in where.subjects
        ],
        "phase_ns": dict(where.phase_ns),
        "modules": [asdict(use) for use in where.modules],
    }
