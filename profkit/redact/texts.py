"""Any text, a text under a name, and all names of a trace."""

from __future__ import annotations

from collections.abc import Iterable

from . import metadata
from .assignments import without_assigned
from .logins import without_logins
from .names import strength_of
from .suspects import LONGEST, SEARCHED, STEMS, is_disguised, is_suspect, undisguised
from .tokens import MARKS, without_tokens
from .urls import without_urls_secrets
from .values import REDACTED, is_secret


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
    return without_logins(without_assigned(without_urls_secrets(text))) if is_suspect(text, marks=()) else text
