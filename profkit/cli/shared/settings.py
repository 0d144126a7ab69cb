"""`[tool.profkit]` of the nearest pyproject.toml: what the gates of CI stop at, where no flag says it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from profkit.errors import UsageError
from profkit.files import read_small
from profkit.model.finding import Severity

FILE: Final = "pyproject.toml"
NEVER: Final = "never"
_MOST_BYTES: Final = 2**20
_KEYS: Final = ("fail-on", "fail-on-regression", "limits")
_MAY_TELL: Final = re.compile(
    rb"""tool["']?[ \t]*\.[ \t]*["']?profkit|(?:^|\[)[ \t]*["']?tool["']?[ \t]*[\]=]""", re.MULTILINE
)
"""How TOML names the table: at once, or within one that is called tool."""
_PERCENT: Final = re.compile(r"(\d{1,3}(?:\.\d+)?)\s*%")


def fraction_of(text: str) -> float | None:
    """A percentage, up to 100, as a fraction: `3%` is 0.03; None for anything else."""
    match = _PERCENT.fullmatch(text.strip())
    return None if match is None or float(match[1]) > 100 else float(match[1]) / 100


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the table says; all of it absent where there is no table."""

    fail_on: Severity | None = None
    """From which severity on a finding fails `profkit triage`."""
    limits: Mapping[str, float | None] = {}
    """Of findings by their ids: the share of the window (0-1) above which one fails, None for never."""
    regression: float | None = None
    """The loss (0-1) beyond which `profkit compare` fails."""
    origin: str = ""
    """The file, as seen from the working folder."""


def settings() -> Settings:
    """The settings for the working folder: of it, or of the first folder above it whose pyproject.toml has the table.

    Raises UsageError for a file that cannot be read, and for what the table cannot hold.
    """
    for path in _files():
        table = _table(path)
        if table is not None:
            return _settings(table, os.path.relpath(path))
    return Settings()


def _files() -> Iterator[Path]:
    try:
        here = Path.cwd()
    except OSError:  # it was deleted
        return
    yield from (path for folder in (here, *here.parents) if os.path.lexists(path := folder / FILE))


def _table(path: Path) -> dict[str, Any] | None:
    try:
        data = read_small(path, _MOST_BYTES)
    except OSError as error:
        raise UsageError(f"cannot read {os.path.relpath(path)}: {error.strerror}", hint=_HINT) from None
    if b"profkit" not in data or _MAY_TELL.search(data) is None:  # most are not about it, and need not be understood
        return None
    import tomllib

    try:
        read = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"{os.path.relpath(path)} is no TOML: {reason}", hint=_HINT) from None
    tool = read.get("tool")
    table = tool.get("profkit") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{os.path.relpath(path)}: tool.profkit is no table", hint=_HINT)
    return table


_HINT: Final = "docs/ci.md says what [tool.profkit] may hold"


def _settings(table: Mapping[str, Any], origin: str) -> Settings:
    where = f"{origin}: [tool.profkit]"
    for key in table:
        if key not in _KEYS:
            raise UsageError(f"{where} has no key {key!r}{_near(key, _KEYS)}", hint=f"it knows {', '.join(_KEYS)}")
    limits = table.get("limits", {})
    if not isinstance(limits, dict):
        raise UsageError(f"{where} limits is no table", hint='[tool.profkit.limits] "input.starved" = "10%"')
    return Settings(
        fail_on=_severity(table.get("fail-on", NEVER), where),
        limits={name: _limit(name, value, where) for name, value in _flat(limits)},
        regression=_fraction(table.get("fail-on-regression", NEVER), f"{where} fail-on-regression"),
        origin=origin,
    )


def _flat(limits: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Ids with their limits: `input.starved` without quotes is a table in a table."""
    for key, value in limits.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _severity(value: Any, where: str) -> Severity | None:
    known = [*(one.value for one in Severity), NEVER]
    if value not in known:
        raise UsageError(f"{where} fail-on is {value!r}", hint=f"one of {', '.join(known)}")
    return None if value == NEVER else Severity(value)


def _limit(name: str, value: Any, where: str) -> float | None:
    from profkit.findings import KINDS

    if name not in KINDS:
        hint = "profkit explain lists all findings"
        raise UsageError(f"{where} limits: there is no finding {name!r}{_near(name, KINDS)}", hint=hint)
    return _fraction(value, f"{where} limits: {name}")


def _fraction(value: Any, what: str) -> float | None:
    if value == NEVER:
        return None
    fraction = fraction_of(value) if isinstance(value, str) else None
    if fraction is None:
        raise UsageError(f"{what} is {value!r}, no percentage", hint=f'write "10%", or "{NEVER}"')
    return fraction


def _near(name: str, known: Any) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
