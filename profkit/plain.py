"""Text that a terminal only shows: a file's name, an exception, another program's words may hold what it would obey.

Runs in the traced process too, loaded by its path: standard library only, Python 3.9 syntax, nothing of profkit's.
"""

from __future__ import annotations


def clean(text: str) -> str:
    """Text on one line without control characters: names come from files, and a terminal obeys what it is sent."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in text)
