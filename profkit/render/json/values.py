"""What the documents of this folder share: how values become plain ones, and how a document is written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from numbers import Integral, Real
from typing import Any, Final

import msgspec

from profkit.model.code import PlaceShare
from profkit.model.finding import Evidence, Finding, NextTool
from profkit.render.words.keys import keyed
from profkit.version import __version__

Shape = str | Callable[[Any], dict[str, Any]]
"""The keys of a kind of value in the JSON, in their order, as `keyed` takes them, or what gives keys with values."""
Shapes = Mapping[type, Shape]


def written(document: dict[str, Any]) -> str:
    """The document as text in a fixed order of keys, with a newline at its end."""
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def document_of(schema_id: str, value: object, shapes: Shapes) -> dict[str, Any]:
    """A document as plain values, under its schema and the version that wrote it."""
    return {"schema": schema_id, "profkit_version": __version__, **plain(value, shapes)}


def plain(value: Any, shapes: Shapes) -> Any:
    """A value as JSON has it, with all that it holds; of a Struct without a shape, every field under its own name.

    Enums, tuples and numpy's numbers become JSON's own kinds, NaN and infinities null.
    """
    if value is None or type(value) in (str, bool, int):
        return value
    if isinstance(value, msgspec.Struct):
        every_field = " ".join(value.__struct_fields__)
        shape = next((shapes[kind] for kind in type(value).__mro__ if kind in shapes), every_field)
        fields = keyed(value, shape) if isinstance(shape, str) else shape(value)
        return {key: plain(item, shapes) for key, item in fields.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item, shapes) for key, item in value.items()}
    if isinstance(value, Iterable):
        return [plain(item, shapes) for item in value]
    if hasattr(value, "item"):  # a scalar of numpy
        return plain(value.item(), shapes)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    return str(value)


def _place(share: PlaceShare) -> dict[str, Any]:
    keys = (
        "where=place.words file=place.file function=place.function line?=place.line defined?=place.defined"
        " text?=place.text call?=place.call module?=place.module n_modules library?=place.library inside?=place.inside"
        " compiled=place.is_generated phase=phase.word ns share share_of=of count"
    )
    return keyed(share, keys) | {"share_of": share.of or "self"}


SHAPES: Final[Shapes] = {
    Finding: "id title severity confidence recoverable_ns most_recoverable_ns fraction rank evidence fix next_tools"
    " device places",
    NextTool: "name command purpose look_for",
    PlaceShare: _place,
}
"""What several documents hold."""
BRIEF_EVIDENCE: Final[Shapes] = {Evidence: "statement metric value unit"}
"""Of evidence that is no finding's: without what was expected, and when."""
