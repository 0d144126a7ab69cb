"""Names with their values in a text: `name=value`, `name: value`, `"name": "value"`, `--name value`.

A value ends at quotes, brackets, a space, or the end of its line.
"""

from __future__ import annotations

import re
from typing import Final

from .later import later
from .names import NO, STRONG, WEAK, strength_of
from .values import REDACTED, is_secret

_PAIR: Final = later(
    r"(?<![\w.\-])([\w.\-]+|(?:api|access|secret|private|account|session)[ ](?:key|token|secret|id))"
    r"""((?:\\*["'\]]){0,3}\s{0,4}(?:=>|:=|==?|:)(?!:)\s{0,4})""",
    re.IGNORECASE,
)
_FLAG: Final = later(r"(?<![\w.\-])(--?[A-Za-z][\w.\-]*)(\s{1,8})(?=[^\s\-])")
_WHOLE_LINE: Final = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie", "x-authorization"})
_LOOKED_AT: Final = 128
_OPENING: Final = later(r"""[bBrRuUfF]{0,2}(\\*)(["'`])""")
_PIECE: Final = later(r"""[^\s"'`,;&|]+""")
_GAP: Final = later(r"[,;&|]+")
_NEXT_KEY: Final = later(r"""\s{0,4}["'\\]{0,2}[\w.\-]{1,64}["'\\]{0,3}\s{0,2}[=:]""")
_SCHEME_WORDS: Final = later(
    r"(?:bearer|basic|digest|negotiate|token|apikey|aws4-hmac-sha256)\s{1,4}(?=\S)", re.IGNORECASE
)
_CLOSERS: Final = ")]}>.,;:"


def without_assigned(text: str) -> str:
    """A text without the values whose names tell that they are secrets."""
    return _without_values(_FLAG, _without_values(_PAIR, text))


def _without_values(names: re.Pattern[str], text: str) -> str:
    parts: list[str] = []
    place = done = 0
    while (found := names.search(text, place)) is not None:
        place = found.end()
        strength = _strength(found[1], found[2])
        if strength == NO:
            continue
        begin, end = secret_span(text, place, strength, _line_ends(found))
        if begin < end:
            parts += [text[done:begin], REDACTED]
            place = done = end
    return "".join(parts) + text[done:] if parts else text


def _strength(name: str, separator: str) -> int:
    short = name.lower()
    if short == "pass" or (short == "sig" and "=" in separator):
        return STRONG if "=" in separator else WEAK  # forward pass: ...
    return strength_of(name)


def _line_ends(found: re.Match[str]) -> str:
    """The characters that end the line of a header, "" for any other name: quotes, or the one it stands behind."""
    if found[1].lower() not in _WHOLE_LINE:
        return ""
    before = found.string[found.start() - 1 : found.start()]
    return f"{before}\n" if before and before in "\"'`" else "\"'\n"


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
