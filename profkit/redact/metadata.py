"""JSON values, as metadata and environments are: each string by the name it stands under."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from . import commands, texts
from .later import later
from .names import NO, OF_CONTENT, STRONG, listed, strength_of, words_of
from .suspects import LONGEST, SEARCHED, is_suspect
from .tokens import PEM
from .values import HEX40, REDACTED, is_harmless, is_secret

_DEEPEST: Final = 128  # the reader refuses metadata nested more deeply than 100
_COMMANDS: Final = listed("command cmd cmdline commandline entrypoint launcher invocation")
_VARIABLES: Final = r"env(?:s|iron(?:ment)?)?(?:_?vars?|_?variables?)?"
_ENVIRONMENT: Final = later(_VARIABLES, re.IGNORECASE)
_OF_ENVIRONMENT: Final = later(r".*(?:_|-|\.|(?<=[a-z])(?=E))" + _VARIABLES, re.IGNORECASE)
_NAME_KEYS: Final = ("name", "key", "variable", "var", "env", "header", "option", "flag", "k")
_VALUE_KEYS: Final = ("value", "val", "v", "content", "data")


def redacted(value: Any, key: str = "") -> tuple[Any, int]:
    """A copy of a JSON value without secrets, and how many were taken out.

    An environment is taken out whole: it is never needed, and a pattern cannot know every name. So is a string with a
    secret in it, but a command and JSON, which go without the secret alone.
    """
    cleaner = _Cleaner()
    return cleaner.cleaned(value, key, 0), cleaner.n_taken


def redacted_json(text: str) -> str | None:
    """JSON without secrets, None for what is no JSON; as it was where it held none."""
    value = _json_value(text)
    if value is None:
        return None
    clean, n_taken = redacted(value)
    return json.dumps(clean) if n_taken else text


class _Cleaner:
    """One value under way: how many secrets were taken out, and how many characters may still be searched."""

    def __init__(self) -> None:
        self.n_taken = 0
        self._n_left = SEARCHED

    def cleaned(self, value: Any, key: str, depth: int) -> Any:
        """The value that stands under `key`, cleaned."""
        if value is None or isinstance(value, bool) or value in ("", [], {}):
            return value
        is_container = isinstance(value, (dict, list, tuple))
        if depth > _DEEPEST or _is_environment(value, key) or (is_container and strength_of(key) == STRONG):
            return self._taken()
        if isinstance(value, dict):
            return self._dict(value, depth)
        if isinstance(value, (list, tuple)):
            return self._list(value, key, depth)
        if isinstance(value, str):
            return self._string(value, key, depth)
        return self._taken() if strength_of(key) == STRONG and not is_harmless(str(value)) else value

    def _taken(self) -> str:
        self.n_taken += 1
        return REDACTED

    def _dict(self, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
        names = {str(name).lower(): name for name in value}
        told = next((names[name] for name in _NAME_KEYS if isinstance(value.get(names.get(name)), str)), None)
        given = next((names[name] for name in _VALUE_KEYS if name in names), None)
        under: dict[Any, str] = {}
        if told is not None and given is not None:  # {"name": "HF_TOKEN", "value": ...}
            under = {given: value[told], told: ""}
        clean: dict[Any, Any] = {}
        for name, item in value.items():
            shown = self._text(name) if isinstance(name, str) else name
            clean[shown] = self.cleaned(item, under.get(name, str(name)), depth + 1)
        return clean

    def _list(self, value: Sequence[Any], key: str, depth: int) -> list[Any]:
        if len(value) == 2 and isinstance(value[0], str) and not value[0].startswith("-") and strength_of(value[0]):
            return [value[0], self.cleaned(value[1], value[0], depth + 1)]  # ["HF_TOKEN", "..."]
        strings = [item for item in value if isinstance(item, str)]
        if len(strings) == len(value) and sum(map(len, strings)) <= LONGEST:
            return self._words(strings, key)
        clean: list[Any] = []
        awaited = NO
        for item in value:
            name = item if isinstance(item, str) and item.startswith("-") and "=" not in item else ""
            clean.append(self.cleaned(item, "token" if awaited == STRONG and not name else key, depth + 1))
            awaited = strength_of(name) if name else NO
        return clean

    def _words(self, strings: Sequence[str], key: str) -> list[str]:
        """A list of strings, which may be the words of a command, lines of a file, or variables with values."""
        if strength_of(key):
            return [self._string(text, key, _DEEPEST) for text in strings]
        whole = "\n".join(strings)
        if (begin := PEM.search(whole)) is not None and "\n" in whole[begin.start() :]:
            return [self._taken() for _ in strings]
        clean = commands.redacted_command(strings)
        self._n_left -= len(whole)
        self.n_taken += sum(new != old for new, old in zip(clean, strings))  # noqa: B905 - Python 3.9
        return clean

    def _string(self, value: str, key: str, depth: int) -> str:
        if is_secret(value, strength_of(key)):
            return self._taken()
        words = words_of(key)
        if HEX40.fullmatch(value) is not None and not OF_CONTENT.intersection(words):
            return self._taken()
        is_command = bool(words) and words[-1] in _COMMANDS
        if not is_command and not is_suspect(value):
            return value
        self._n_left -= len(value)
        if self._n_left < 0 or len(value) > LONGEST:
            return self._taken()
        if value[:1] in ("{", "["):
            inner = _json_value(value)
            if inner is not None:
                before = self.n_taken
                clean = self.cleaned(inner, "", depth + 1)
                return json.dumps(clean) if self.n_taken > before else value
        if is_command:
            line = commands.redacted_line(value)
            self.n_taken += line != value
            return line
        return value if texts.cleaned(value) == value else self._taken()

    def _text(self, value: str) -> str:
        clean = texts.redacted_text(value) if is_suspect(value) else value
        self.n_taken += clean != value
        return clean


def _is_environment(value: Any, key: str) -> bool:
    if _ENVIRONMENT.fullmatch(key) is not None:
        return True
    is_whole = isinstance(value, (dict, list, tuple)) or (isinstance(value, str) and "=" in value)
    return is_whole and len(key) <= 200 and _OF_ENVIRONMENT.fullmatch(key) is not None


def _json_value(text: str) -> Any:
    """The container that a text writes in JSON, None if it writes none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, (dict, list)) else None
