"""A quick look, before any search: what a text must hold to hold a secret, and how much is searched."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from .disguises import is_disguised
from .tokens import MARKS

LONGEST: Final = 2**18
"""Characters (chosen): a longer text is kept whole or not at all."""
SEARCHED: Final = 2**21
"""Suspect characters searched in one value or one table of names (chosen: some seconds at worst, far more than any real
trace has); what is beyond is taken out whole."""

STEMS: Final = (
    *("pass", "pw", "secret", "token", "cred", "auth", "key", "cookie", "sess", "sig", "pat", "dsn", "webhook", "jwt"),
    *("otp", "mfa", "totp", "sas", "bearer", "basic", "sid", "csrf", "xsrf", "nonce", "access", "conn", ":/"),
    *("-----begin", "login", "mysql", "mariadb", "-u"),
)
"""What any text must hold, in lower case, that a name, a URL or a header in it is looked for."""
_SEPARATED: Final = re.compile(
    r"=|(?<!:):(?!:)|:/|(?<![\w.])--?[A-Za-z]|bearer|basic|\]|\s\S{1,200}\s{1,8}passw", re.IGNORECASE
)
"""What stands between a name and its value, or makes a value known without a name."""


def is_suspect(text: str, stems: Iterable[str] = STEMS, marks: Iterable[str] = MARKS) -> bool:
    """Whether a text may hold a secret, told quickly: one that is not suspect is sure to hold none."""
    lower = text.lower()
    if any(stem in lower for stem in stems) and _SEPARATED.search(text) is not None:
        return True
    return any(mark in text for mark in marks) or is_disguised(text)
