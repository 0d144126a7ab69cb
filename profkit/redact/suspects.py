"""A quick look, before any search: what a text must hold to hold a secret, in what disguises, how much is searched."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from unicodedata import normalize
from urllib.parse import unquote

from .later import later
from .tokens import MARKS

_DISGUISE: Final = later(r"%[0-9A-Fa-f]{2}|\\u00[0-9A-Fa-f]{2}|[\u200b-\u200f\u2060\ufeff\uff01-\uff5e]")
"""Percent-encoding, JSON's escapes, characters without width, and the wide forms of ASCII."""
_NO_WIDTH: Final = later("[\u200b-\u200f\u2060\ufeff]")
_ESCAPE: Final = later(r"\\u00([0-9A-Fa-f]{2})")
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
# Each alternative begins with a character: `re` skips to one of those, five times as fast.
_SEPARATED: Final = later(
    r"=|:(?<!::)(?!:)|:/|-(?<![\w.]-)-?(?i:[A-Z])|b(?i:earer|asic)|B(?i:earer|asic)|\]",
)
"""What stands between a name and its value, or makes a value known without a name."""
_ASKED: Final = later(r"\s\S{1,200}\s{1,8}passw", re.IGNORECASE)
"""As above, in a .netrc."""


def is_disguised(text: str) -> bool:
    """Whether a text holds characters written in another way."""
    may_be = "%" in text or "\\u00" in text or not text.isascii()
    return may_be and _DISGUISE.search(text) is not None


def undisguised(text: str) -> str:
    """A text as a reader takes it: decoded twice, as an address within an address is."""
    bare = _NO_WIDTH.sub("", normalize("NFKC", text))
    bare = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), bare)
    return unquote(unquote(bare))


def is_suspect(text: str, stems: Iterable[str] = STEMS, marks: Iterable[str] = MARKS) -> bool:
    """Whether a text may hold a secret, told quickly: one that is not suspect is sure to hold none."""
    lower = text.lower()
    for stem in stems:  # asked of each name of a trace: `any` of a generator takes twice as long
        if stem in lower:
            if _is_separated(text):
                return True
            break
    for mark in marks:
        if mark in text:
            return True
    return is_disguised(text)


def _is_separated(text: str) -> bool:
    if _SEPARATED.search(text) is not None:
        return True
    return "passw" in text.casefold() and _ASKED.search(text) is not None
