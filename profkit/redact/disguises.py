"""Other ways of writing the same characters: a secret is found behind them as well."""

from __future__ import annotations

from typing import Final
from unicodedata import normalize
from urllib.parse import unquote

from .later import later

_DISGUISE: Final = later(r"%[0-9A-Fa-f]{2}|\\u00[0-9A-Fa-f]{2}|[\u200b-\u200f\u2060\ufeff\uff01-\uff5e]")
"""Percent-encoding, JSON's escapes, characters without width, and the wide forms of ASCII."""
_NO_WIDTH: Final = later("[\u200b-\u200f\u2060\ufeff]")
_ESCAPE: Final = later(r"\\u00([0-9A-Fa-f]{2})")


def is_disguised(text: str) -> bool:
    """Whether a text holds characters written in another way."""
    may_be = "%" in text or "\\u00" in text or not text.isascii()
    return may_be and _DISGUISE.search(text) is not None


def undisguised(text: str) -> str:
    """A text as a reader takes it: decoded twice, as an address within an address is."""
    bare = _NO_WIDTH.sub("", normalize("NFKC", text))
    bare = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), bare)
    return unquote(unquote(bare))
