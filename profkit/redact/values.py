"""What a value looks like: a placeholder, a word, or something drawn by lot."""

from __future__ import annotations

import re
from typing import Final

from .later import later
from .names import STRONG, WEAK

REDACTED: Final = "[redacted]"

HEX40: Final = later(r"[0-9a-f]{40}", re.IGNORECASE)
"""A key of wandb's, and the digest of a commit."""

_LONGEST_HARMLESS: Final = 64
_HARMLESS: Final = later(
    r"|none|null|nil|true|false|yes|no|on|off|unset|missing|required|optional|default|auto|[0-9]|\*+|x{3,}|\.\.\."
    r"|<[^<>]*>|\$\{?[A-Z_][A-Z0-9_]*\}?|\$\([^()]*\)|.{0,8}\[redacted\].{0,8}",
    re.IGNORECASE,
)
"""Values that are no secret under any name: nothing, a switch, a placeholder, the name of a variable."""
_UUID: Final = later(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_DIGIT: Final = later(r"[0-9]")
_LETTER: Final = later(r"[A-Za-z]")
_RUN: Final = later(r"[A-Za-z0-9+/=~%]{12,}")


def is_harmless(value: str) -> bool:
    """Whether a value is no secret under any name."""
    return len(value) <= _LONGEST_HARMLESS and _HARMLESS.fullmatch(value.strip()) is not None


def is_random(value: str) -> bool:
    """Whether a value looks drawn by lot: a long run of letters and digits, or of letters of both cases."""
    text = value[:200].strip()
    if text.startswith(("/", "./", "../", "~/")) or "://" in text or _UUID.fullmatch(text) is not None:
        return False
    return any(_is_random_run(run) for run in _RUN.findall(text))


def _is_random_run(run: str) -> bool:
    if _LETTER.search(run) is None:
        return False
    return _DIGIT.search(run) is not None or (len(run) >= 20 and not run.islower() and not run.isupper())


def is_secret(value: str, strength: int) -> bool:
    """Whether a value is a secret, by what its name says."""
    if strength == STRONG:
        return not is_harmless(value)
    return strength == WEAK and is_random(value)
