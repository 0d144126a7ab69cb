"""Places in the user's code as JSON: `profkit schema where` prints its schema."""

from __future__ import annotations

from typing import Final

from profkit.model.documents.where import PlacesOf, Where
from profkit.render.json.values import SHAPES, Shapes, document_of, written

SCHEMA_ID: Final = "profkit.where/1"
_SHAPES: Final[Shapes] = {
    **SHAPES,
    Where: "source rank n_ranks chosen? window_ns n_steps subjects phase_ns modules",
    PlacesOf: "kind name title share ns? places",
}


def render(where: Where, **_: object) -> str:
    """The document as text: times integer ns, shares 0-1, what is absent None."""
    return written(document_of(SCHEMA_ID, where, _SHAPES))
