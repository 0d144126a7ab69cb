"""Logins: passwords that neither a name nor a shape tells, but a program or a header before them."""

from __future__ import annotations

import re
from typing import Final

from .later import later
from .names import listed
from .values import REDACTED

_SCHEME: Final = later(r"(?<![A-Za-z])(bearer|basic)(\s{1,8}|%20|\+)([A-Za-z0-9+/=_\-.~]{6,})", re.IGNORECASE)
_NOT_CREDENTIALS: Final = listed("token tokens authentication authorization scheme header headers")
_NETRC: Final = later(r"(\b(?:login|account|user)\s{1,8}\S{1,200}\s{1,8}passw(?:or)?d\s{1,8})(\S+)", re.IGNORECASE)
_USER: Final = later(r"""(?<![\w\-])((?:-u|-U|--user|--proxy-user)[\s=]{1,4}["']?[^\s:"']{1,200}:)([^\s"'/]+)""")
_MYSQL: Final = later(r"\b(mysql\w*|mariadb\w*|sshpass)\b")
_SHORT: Final = later(r"""((?<!\S)-p)(\s*)([^\s"'\-][^\s"']*|"[^"]*"|'[^']*')""")


def without_logins(text: str) -> str:
    """A text without the credentials of `Bearer ...`, of .netrc, of `curl -u me:...`, of `mysql -p...`."""
    text = _SCHEME.sub(_without_scheme, text)
    text = _NETRC.sub(rf"\1{REDACTED}", text)
    text = _USER.sub(rf"\1{REDACTED}", text)
    return _SHORT.sub(rf"\1\2{REDACTED}", text) if _MYSQL.search(text) else text


def _without_scheme(found: re.Match[str]) -> str:
    scheme, gap, value = found[1], found[2], found[3]
    is_plain = value.lower() in _NOT_CREDENTIALS or (scheme.lower() == "basic" and not _is_encoded(value))
    return found[0] if is_plain else f"{scheme}{gap}{REDACTED}"


def _is_encoded(value: str) -> bool:
    """Whether this is base64 rather than a word: a digit, padding, or upper case inside."""
    return len(value) >= 8 and (value.endswith("=") or any(c.isdigit() or c.isupper() for c in value[1:]))
