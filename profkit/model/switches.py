"""What people write for on and off."""

from __future__ import annotations

from typing import Final

_ON: Final = frozenset({"true", "yes", "on"})
_OFF: Final = frozenset({"false", "no", "off"})


def says_on(value: str) -> bool:
    """Whether a word says on; a number does not, for it may count something."""
    return value.lower() in _ON


def says_off(value: str) -> bool:
    """Whether a word says off, or nothing is said."""
    return not value or value.lower() in _OFF


def is_on(value: str) -> bool:
    """Whether the value of a switch says on, by a word or by 1."""
    return says_on(value) or value == "1"


def is_off(value: str) -> bool:
    """Whether the value of a switch says off, by a word, by 0 or by nothing."""
    return says_off(value) or value == "0"
