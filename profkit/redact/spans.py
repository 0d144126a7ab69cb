"""Where the value behind a name begins and ends in a text: at quotes, brackets, a space, or the end of its line."""

from __future__ import annotations

import re
from typing import Final

from .later import later
from .values import REDACTED, is_secret

_LOOKED_AT: Final = 128
_OPENING: Final = later(r"""[bBrRuUfF]{0,2}(\\*)(["'`])""")
_PIECE: Final = later(r"""[^\s"'`,;&|]+""")
_GAP: Final = later(r"[,;&|]+")
_NEXT_KEY: Final = later(r"""\s{0,4}["'\\]{0,2}[\w.\-]{1,64}["'\\]{0,3}\s{0,2}[=:]""")
_SCHEME_WORDS: Final = later(
    r"(?:bearer|basic|digest|negotiate|token|apikey|aws4-hmac-sha256)\s{1,4}(?=\S)", re.IGNORECASE
)
_CLOSERS: Final = ")]}>.,;:"


def secret_span(text: str, start: int, strength: int, line_ends: str) -> tuple[int, int]:
    """Where the secret at `start` begins and ends, (start, start) where the value is none.

    `line_ends` are the characters that end a value which may hold spaces, "" for any other value. Its beginning tells;
    to the end of the value is gone only where it is taken out, so that all of it is gone once.
    """
    begin, end = _value_span(text, start, min(start + _LOOKED_AT, len(text)), line_ends)
    if begin == end or not is_secret(text[begin:end], strength):
        return start, start
    return _value_span(text, start, len(text), line_ends)


def _value_span(text: str, start: int, stop: int, line_ends: str) -> tuple[int, int]:
    """Where the value at `start` begins and ends, `stop` at the latest; its quotes left out."""
    opening = _OPENING.match(text, start, stop)
    if opening is not None:
        return opening.end(), _closing(text, opening.end(), stop, opening[1] + opening[2])
    if text[start : start + 1] in ("[", "{", "(") and not text.startswith(REDACTED, start):
        return start + 1, _first_of("]})\n", text, start + 1, stop)
    if line_ends:
        return start, _first_of(line_ends, text, start, stop)
    scheme = _SCHEME_WORDS.match(text, start, stop)
    end = _word_end(text, start if scheme is None else scheme.end(), stop)
    while end > start and text[end - 1] in _CLOSERS and not text.endswith(REDACTED, start, end):
        end -= 1
    return start, end


def _first_of(closers: str, text: str, start: int, stop: int) -> int:
    return min((end for end in (text.find(closer, start, stop) for closer in closers) if end >= 0), default=stop)


def _closing(text: str, start: int, stop: int, quote: str) -> int:
    """Where a quoted value ends: at its quote, escaped as the opening one was, or at `stop`."""
    end = text.find(quote, start, stop)
    while end > start and len(quote) == 1 and _is_escaped(text, end):
        end = text.find(quote, end + 1, stop)
    return stop if end < 0 else end


def _is_escaped(text: str, place: int) -> bool:
    before = text[max(place - 8, 0) : place]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _word_end(text: str, start: int, stop: int) -> int:
    """Where an unquoted value ends: at a space, a quote, or a comma (or the like) with another name behind."""
    end = start
    while (piece := _PIECE.match(text, end, stop)) is not None:
        end = piece.end()
        gap = _GAP.match(text, end, stop)
        if gap is None or gap.end() == len(text) or _NEXT_KEY.match(text, gap.end()) or text[gap.end()].isspace():
            break
        end = gap.end()
    return end
