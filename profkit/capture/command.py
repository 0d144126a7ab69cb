"""The user's command as one line that can be shown and pasted, and other texts of a capture: without secrets.

Runs in the traced process too where no runner has told it the command: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

REDACTED: Final = "[redacted]"


def redacted_command(arguments: Sequence[str]) -> str:
    """Give the command line quoted for a shell, secrets replaced."""
    return shlex.join(_rules().redacted_command(list(arguments)))


def redacted_text(text: str) -> str:
    """Give a text, as a reason that quotes what somebody raised, with the secrets in it replaced; raises nothing."""
    try:
        return str(_rules().redacted_text(text))
    except Exception:  # noqa: BLE001 - it runs where a capture has failed already, inside somebody's script
        return REDACTED


@lru_cache(maxsize=1)
def _rules() -> Any:
    """Give profkit.redact, by its path: the package may not be installed in the traced interpreter."""
    path = Path(__file__).resolve().parent.parent / "redact.py"
    spec = spec_from_file_location("_profkit_redact", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is gone")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
