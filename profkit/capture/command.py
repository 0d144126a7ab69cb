"""The user's command as one line that can be shown and pasted: without secrets.

Runs in the traced process too where no runner has told it the command: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

REDACTED: Final = "[redacted]"

_FLAG: Final = re.compile(r"^(-{0,2})([A-Za-z_][\w.-]*)=(.*)$", re.DOTALL)
_WORDS_OF_TEXT: Final = re.compile(r"tokeni[sz]|tokens|author", re.IGNORECASE)  # --tokenizer, --max-tokens


def redacted_command(arguments: Sequence[str]) -> str:
    """Give the command line quoted for a shell, values that look like secrets replaced."""
    shown: list[str] = []
    is_secret_next = False
    for argument in arguments:
        pair = _FLAG.match(argument)
        if is_secret_next and not argument.startswith("-"):
            shown.append(REDACTED)
        elif pair is not None:
            shown.append(f"{pair[1]}{pair[2]}={_value(pair[3], pair[2])}")
        else:
            shown.append(_value(argument, ""))
        name = argument.lstrip("-")
        is_secret_next = argument.startswith("-") and pair is None and _value("x", name) == REDACTED
    return shlex.join(shown)


def _value(text: str, name: str) -> str:
    """Give the value, or what stands for a secret; an existing path or a plain word is none."""
    key = "" if _WORDS_OF_TEXT.search(name) else name.replace("-", "_")
    is_path = os.path.exists(text)  # noqa: PTH110 - pathlib raises for what is longer than a name may be: -c's program
    if not key and (is_path or not any(character.isdigit() for character in text)):
        return text
    return str(_rules().redacted(text, key)[0])


@cache
def _rules() -> Any:
    """Give profkit.ingest.redact, by its path: the package may not be installed in the traced interpreter."""
    path = Path(__file__).resolve().parent.parent / "ingest" / "redact.py"
    spec = spec_from_file_location("_profkit_redact", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is gone")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
