"""Names with their values in a text: `name=value`, `name: value`, `"name": "value"`, `--name value`."""

from __future__ import annotations

import re
from typing import Final

from .later import later
from .names import NO, STRONG, WEAK, strength_of
from .spans import secret_span
from .values import REDACTED

_PAIR: Final = later(
    r"(?<![\w.\-])([\w.\-]+|(?:api|access|secret|private|account|session)[ ](?:key|token|secret|id))"
    r"""((?:\\*["'\]]){0,3}\s{0,4}(?:=>|:=|==?|:)(?!:)\s{0,4})""",
    re.IGNORECASE,
)
_FLAG: Final = later(r"(?<![\w.\-])(--?[A-Za-z][\w.\-]*)(\s{1,8})(?=[^\s\-])")
_WHOLE_LINE: Final = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie", "x-authorization"})


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
