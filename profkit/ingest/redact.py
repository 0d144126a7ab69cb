"""Secrets out of a trace's metadata, on load: nothing downstream ever sees them.

A public trace was found that carried its job's whole environment, an access token in it.
"""

from __future__ import annotations

import re
from typing import Any, Final

REDACTED: Final = "[redacted]"

_SECRET_KEY: Final = re.compile(
    r"token|secret|passw|passphrase|api_?key|access_?key|private_?key|credential|auth|cookie|session_?id|signature|"
    r"webhook|dsn\b|connection_?string|(?:^|_)key$|(?:^|_)pat$",
    re.IGNORECASE,
)
_ENVIRONMENT_KEY: Final = re.compile(r"^env(?:iron(?:ment)?)?(?:_?vars?|_?variables?)?$", re.IGNORECASE)
_SECRET_VALUE: Final = re.compile(
    r"(?:\b(?:hf|ghp|gho|ghs|ghu|glpat|xox[abprs]|sk|pk|rk|npm|pypi|dop_v1|github_pat|AKIA|ASIA|wandb|nvapi|AIza|ya29|eyJ)"
    r"[-_.]?[A-Za-z0-9_\-.]{16,})|-----BEGIN [A-Z ]*PRIVATE KEY-----|\bBearer\s+\S+|://[^/\s:@]+:[^/\s@]+@|"
    r"^[0-9a-f]{40}$",
    re.IGNORECASE,
)
# Identifiers of profiling, not of people; the pattern for keys would catch them ("key" alone, "auth" in "author").
_HARMLESS: Final = frozenset({"trace_id", "group_trace_id", "author", "authors"})


def redacted(value: Any, key: str = "") -> tuple[Any, int]:
    """Give a copy of a JSON value without secrets, and how many were taken out.

    An environment is taken out whole: it is never needed, and a pattern cannot know every name.
    """
    if key.lower() in _HARMLESS:
        return value, 0
    if value not in (None, "", [], {}) and _ENVIRONMENT_KEY.match(key):
        return REDACTED, 1
    if isinstance(value, dict):
        pairs = {name: redacted(item, str(name)) for name, item in value.items()}
        return {name: item for name, (item, _) in pairs.items()}, sum(count for _, count in pairs.values())
    if isinstance(value, list):
        items = [redacted(item, key) for item in value]
        return [item for item, _ in items], sum(count for _, count in items)
    if value in (None, "") or isinstance(value, bool):
        return value, 0
    if _SECRET_KEY.search(key) or (isinstance(value, str) and _SECRET_VALUE.search(value)):
        return REDACTED, 1
    return value, 0
