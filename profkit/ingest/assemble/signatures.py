"""The recorded arguments of operators: texts as profilers write them to `Signature`s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from profkit.ingest.numbers import MOST_BYTES
from profkit.ingest.texts import LONGEST_LABEL, LONGEST_TEXT, MOST_TEXT
from profkit.model.trace import Signature

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
    found: list[Signature | None] = []
    for text in texts:
        length = sum(map(len, text))
        room -= length
        found.append(_signature(text) if length <= LONGEST_TEXT and room >= 0 else None)
    return tuple(found)


def _signature(text: tuple[bytes, ...]) -> Signature | None:
    dims, types, strides, concrete = text
    try:
        return Signature(
            dims=_SIZES.decode(dims),
            types=_TYPES.decode(types) if types else (),
            strides=_SIZES.decode(strides) if strides else (),
            concrete=tuple(map(_value, _VALUES.decode(concrete))) if concrete else (),
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _value(given: Any) -> str:
    """A number, a flag or a list of them, as text; "" for any other, which may be a user's own words."""
    if not isinstance(given, str):
        given = "" if isinstance(given, list | dict) else str(given)
    if not given or given in _WORDS:
        return str(given)
    return given if len(given) <= LONGEST_LABEL and _OF_NUMBERS.issuperset(given) else ""
