"""The user's command as one line that can be shown and pasted, and other texts of a capture: without secrets.

What a capture says in the script's process is said here: the script may have closed stderr, or put anything there.

Runs in the traced process too where no runner has told it the command: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from . import beside

REDACTED: Final = "[redacted]"


def redacted_command(arguments: Sequence[str]) -> str:
    """The command line quoted for a shell, secrets replaced."""
    return shlex.join(beside.redact().redacted_command(list(arguments)))


def redacted_text(text: str) -> str:
    """A text, as a reason that quotes what somebody raised, with the secrets in it replaced; raises nothing."""
    try:
        return str(beside.redact().redacted_text(text))
    except Exception:  # noqa: BLE001 - it runs where a capture has failed already, inside somebody's script
        return REDACTED


def harmless(text: str) -> str:
    """A text as one line without secrets and without characters that a terminal obeys; raises nothing."""
    try:
        return str(beside.plain().clean(redacted_text(text)))
    except Exception:  # noqa: BLE001 - as above
        return REDACTED


def raised(error: BaseException) -> str:
    """The type and the first line of an exception, harmless; raises nothing, whatever its own text does."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - somebody else's __str__
        text = type(error).__name__
    return harmless(text.splitlines()[0] if text.strip() else "an exception")[:300]


def tell(text: str, *, below: str = "") -> None:
    """Write a line to stderr under profkit's name, and one that belongs to it; raises nothing."""
    lines = f"profkit: {harmless(text)}\n" + (f"  {harmless(below)}\n" if below else "")
    with suppress(Exception):
        sys.stderr.write(lines)
