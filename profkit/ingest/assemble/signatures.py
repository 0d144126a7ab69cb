"""The recorded arguments of operators: texts as profilers write them to `Signature`s."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import msgspec

from profkit.ingest.numbers import MOST_BYTES
from profkit.ingest.texts import LONGEST_LABEL, LONGEST_TEXT, MOST_TEXT
from profkit.model.signature import Signature

_Size = Annotated[int, msgspec.Meta(ge=-MOST_BYTES, le=MOST_BYTES)]
_Sizes = tuple[_Size | tuple[_Size, ...], ...]
"""Of a tensor; of a list of tensors those of each."""
_SIZES: Final = msgspec.json.Decoder(tuple[_Sizes, ...])
_TYPES: Final = msgspec.json.Decoder(tuple[str, ...])
_VALUES: Final = msgspec.json.Decoder(tuple[Any, ...])
_OF_NUMBERS: Final = frozenset("0123456789+-.eE[], ")
_WORDS: Final = frozenset(("True", "False", "inf", "-inf", "nan", "None"))


def decoded(texts: Sequence[tuple[bytes, ...]]) -> tuple[Signature | None, ...]:
    """What the texts of dimensions, types, strides and concrete values say; None where one cannot be read.

    Texts that are too long, or too many, count as not recorded: a shape has a few dozen characters.
    """
    room = MOST_TEXT
    sizes, types, values = _Read(_SIZES.decode), _Read(_TYPES.decode), _Read(_values)
    found: list[Signature | None] = []
    for text in texts:
        length = sum(map(len, text))
        room -= length
        found.append(_signature(text, sizes, types, values) if length <= LONGEST_TEXT and room >= 0 else None)
    return tuple(found)


def _signature(text: tuple[bytes, ...], sizes: _Read, types: _Read, values: _Read) -> Signature | None:
    dims, kinds, strides, concrete = text
    if not dims:
        return None
    try:
        return Signature(dims=sizes[dims], types=types[kinds], strides=sizes[strides], concrete=values[concrete])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class _Read(dict[bytes, Any]):
    """What each distinct text says, read once: operators of a few types share them. Nothing where none was recorded."""

    def __init__(self, read: Callable[[bytes], Any]) -> None:
        super().__init__({b"": ()})
        self.read = read

    def __missing__(self, text: bytes) -> Any:
        value = self[text] = self.read(text)
        return value


def _values(text: bytes) -> tuple[str, ...]:
    return tuple(map(_value, _VALUES.decode(text)))


def _value(given: Any) -> str:
    """A number, a flag or a list of them, as text; "" for any other, which may be a user's own words."""
    if not isinstance(given, str):
        given = "" if isinstance(given, list | dict) else str(given)
    if len(given) > LONGEST_LABEL:
        return ""
    parts = given.removeprefix("[").removesuffix("]").split(",")
    is_plain = all(part.strip() in _WORDS or _OF_NUMBERS.issuperset(part) for part in parts)
    return given if is_plain else ""
