"""Values by the keys that the JSON gives them, which pages for agents and other tools name as well."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any


def keyed(value: object, keys: str) -> dict[str, Any]:
    """Some of a value's attributes by their keys, in that order; what they hold is left as it is.

    `keys`: `key`, `key=attribute` where the two differ (dots lead into an attribute's own), `key?` of what is None
    where it is empty or 0.
    """
    return {
        key: (get(value) or None) if is_null_if_empty else get(value) for key, is_null_if_empty, get in _parsed(keys)
    }


@cache
def _parsed(keys: str) -> tuple[tuple[str, bool, Callable[[object], Any]], ...]:
    pairs = (word.partition("=") for word in keys.split())
    return tuple(
        (key.removesuffix("?"), key.endswith("?"), attrgetter(attribute or key.removesuffix("?")))
        for key, _, attribute in pairs
    )
