"""Equal values as one object: what thousands of ranks say alike is held, and sent, once."""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import Any, Final

import msgspec

_LEAVES: Final = (str, bytes, int, float, bool, type(None))


class Interned:
    """Gives for each value one that is equal to it, bit for bit, and the same object for all that are.

    Of strings, numbers, tuples, frozen sets and frozen structs of these. Everything else, as a list or an array, stays
    what it is, and so does what holds one. Equal is stricter than `==`, by which 1, 1.0 and True are one.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}
        self._others: list[Any] = []
        """Kept, so that no other value takes their identity, by which what holds them is known."""

    def of(self, value: Any) -> Any:
        """The value that stands for all equal ones."""
        kind = type(value)
        if kind in _LEAVES:
            return self._known.setdefault((kind, repr(value) if kind is float else value), value)
        if kind is tuple:
            parts = tuple(map(self.of, value))
            return self._known.setdefault((kind, *map(id, parts)), parts)
        if kind is frozenset:
            key = (kind, frozenset(id(self.of(part)) for part in value))
            return self._known.setdefault(key, value)
        if isinstance(value, msgspec.Struct) and kind.__struct_config__.frozen:
            return self._struct(value)
        if not isinstance(value, Enum):
            self._others.append(value)
        return value

    def _struct(self, value: msgspec.Struct) -> Any:
        names = value.__struct_fields__
        before = [getattr(value, name) for name in names]
        parts = [self.of(part) for part in before]
        key = (type(value), *map(id, parts))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = type(value)(**dict(zip(names, parts, strict=True)))
        return known
