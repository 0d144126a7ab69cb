"""The one place that knows what a secret looks like; secrets are taken out of all that profkit shows, keeps or writes.

In come names, texts, commands, URLs and JSON values of a file. Out comes the same with `[redacted]` for each secret.
A secret is known by the name before it (`names`), by its own shape (`tokens`), or by its place (`urls`, `texts`).
Begin with `texts`, which uses these on any text; `commands` and `metadata` cut theirs into texts. A text may be JSON,
and JSON holds commands and texts: so these three import each other, as modules.

Runs in the traced process too, loaded by its path: standard library only, Python 3.9 syntax, nothing of profkit's.
Every search is linear in the length of its text.
"""

from .commands import redacted_command, redacted_line
from .metadata import redacted
from .texts import redacted_cell, redacted_names, redacted_text
from .urls import shown_url
from .values import REDACTED

__all__ = [
    "REDACTED",
    "redacted",
    "redacted_cell",
    "redacted_command",
    "redacted_line",
    "redacted_names",
    "redacted_text",
    "shown_url",
]
