"""The user's command as one line that can be shown and pasted, and other texts of a capture: without secrets.

Runs in the traced process too where no runner has told it the command: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from . import beside

REDACTED: Final = "[redacted]"


def redacted_command(arguments: Sequence[str]) -> str:
    """Give the command line quoted for a shell, secrets replaced."""
    return shlex.join(beside.redact().redacted_command(list(arguments)))


def redacted_text(text: str) -> str:
    """Give a text, as a reason that quotes what somebody raised, with the secrets in it replaced; raises nothing."""
    try:
        return str(beside.redact().redacted_text(text))
    except Exception:  # noqa: BLE001 - it runs where a capture has failed already, inside somebody's script
        return REDACTED
