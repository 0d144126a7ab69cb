"""Any text, a text under a name, and all names of a trace.

Here are logins, too: passwords that neither a name nor a shape tells, but a program or a header before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from . import metadata
from .assignments import without_assigned
from .later import later
from .names import listed, strength_of
from .suspects import LONGEST, SEARCHED, STEMS, is_disguised, is_suspect, undisguised
from .tokens import MARKS, without_tokens
from .urls import without_urls_secrets
from .values import REDACTED, is_secret

_SCHEME: Final = later(r"(?<![A-Za-z])(bearer|basic)(\s{1,8}|%20|\+)([A-Za-z0-9+/=_\-.~]{6,})", re.IGNORECASE)
_NOT_CREDENTIALS: Final = listed("token tokens authentication authorization scheme header headers")
_NETRC: Final = later(r"(\b(?:login|account|user)\s{1,8}\S{1,200}\s{1,8}passw(?:or)?d\s{1,8})(\S+)", re.IGNORECASE)
_USER: Final = later(r"""(?<![\w\-])((?:-u|-U|--user|--proxy-user)[\s=]{1,4}["']?[^\s:"']{1,200}:)([^\s"'/]+)""")
_MYSQL: Final = later(r"\b(mysql\w*|mariadb\w*|sshpass)\b")
_SHORT: Final = later(r"""((?<!\S)-p)(\s*)([^\s"'\-][^\s"']*|"[^"]*"|'[^']*')""")


def redacted_text(text: str) -> str:
    """A text (a name, a message, a line of a log) with every secret in it replaced, the rest as it was."""
    if len(text) > LONGEST:
        return REDACTED if is_suspect(text) else text
    if text[:1] in ("{", "[") and text[-1:] in ("}", "]"):
        structured = metadata.redacted_json(text)
        if structured is not None:
            return structured
    return cleaned(text)


def redacted_cell(name: str, text: str) -> str:
    """A text that stands under a name, as a cell does under its heading, with every secret in it replaced."""
    return REDACTED if is_secret(text, strength_of(name)) else redacted_text(text)


def redacted_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names (each once in a trace) without the secrets in them; all are looked at together first."""
    given = tuple(names)
    whole = "\n".join(given)
    lower = whole.lower()
    stems = [stem for stem in STEMS if stem in lower]
    marks = [mark for mark in MARKS if mark in whole]
    if not stems and not marks and not is_disguised(whole):
        return given
    left = SEARCHED
    shown = []
    for name in given:
        if is_suspect(name, stems, marks):
            left -= len(name)
            shown.append(redacted_text(name) if left >= 0 else REDACTED)
        else:
            shown.append(name)
    return tuple(shown)


def cleaned(text: str) -> str:
    """A text that is no JSON without its secrets; whole gone is one whose secret is written in disguise."""
    clean = _cleaned_as_it_stands(text)
    if clean == text and is_disguised(text):
        bare = undisguised(text)
        return text if _cleaned_as_it_stands(bare) == bare else REDACTED
    return clean


def _cleaned_as_it_stands(text: str) -> str:
    text = without_tokens(text)
    return _without_logins(without_assigned(without_urls_secrets(text))) if is_suspect(text, marks=()) else text


def _without_logins(text: str) -> str:
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
