"""The one place where what a file says becomes a name or a label: no longer than anything a name is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

LONGEST_TEXT: Final = 16_384
"""Characters kept of a text; the longest kernel names (nested templates) have a few thousand."""
MOST_TEXT: Final = 2**24
"""Characters of all distinct names of a trace, beyond which long ones are cut shorter: what a name stands for is looked
for with some forty patterns, 2 s for each million characters. Large traces with Python stacks have a quarter of it."""
LONGEST_LABEL: Final = 200
"""Characters kept of what is shown as it stands: a version, a backend, the name of a device or a category."""
_CUT: Final = "..."


def trimmed(text: str, longest: int = LONGEST_TEXT) -> str:
    """A text, of a longer one its beginning, with dots."""
    return text if len(text) <= longest else text[: longest - len(_CUT)] + _CUT


def label(value: object) -> str:
    """A value as a label, "" for none."""
    if value is None or not isinstance(value, str | int | float):
        return ""
    return trimmed(value if isinstance(value, str) else repr(value), LONGEST_LABEL)


def without_long_texts(value: Any) -> tuple[Any, int]:
    """Metadata with its texts trimmed, at any depth, and how many were."""
    if isinstance(value, str):
        short = trimmed(value)
        return short, int(short is not value)
    if isinstance(value, Mapping):
        items = [(trimmed(str(key)), *without_long_texts(item)) for key, item in value.items()]
        return {key: item for key, item, _ in items}, sum(n for _, _, n in items)
    if isinstance(value, list):
        found = [without_long_texts(item) for item in value]
        return [item for item, _ in found], sum(n for _, n in found)
    return value, 0
