"""Amounts as options' values (`3%`, `16GB`, `500ms:1.5s`), and the options by which changes are judged."""

from __future__ import annotations

import math
import re
from typing import Any, Final

import click
import msgspec

from profkit.cli.shared.settings import NEVER, fraction_of, settings
from profkit.units import format_fraction

_SIZES: Final = {"mb": 1e6, "gb": 1e9, "tb": 1e12, "mib": 2.0**20, "gib": 2.0**30}
_UNITS_NS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_TIME: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*(ns|us|ms|s)")


class Percent(click.ParamType):  # type: ignore[type-arg]
    """A percentage, up to 100: `3%` is 0.03. The sign must be there, since a bare 0.03 could mean either."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The fraction."""
        if isinstance(value, float):
            return value
        fraction = fraction_of(str(value))
        if fraction is None:
            self.fail(f"{value!r} is not a percentage: write 3%", param, ctx)
        return fraction


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """The regression that a gate stops at; infinite for none."""

    fraction: float
    asked: str
    """How that was asked for."""


class Limit(Percent):
    """A percentage, or `never`."""

    name = "limit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The loss, an infinite one for `never`."""
        if isinstance(value, Loss):
            return value
        fraction = math.inf if value == NEVER else super().convert(value, param, ctx)
        return Loss(fraction=fraction, asked=f"--fail-on-regression {format_fraction(fraction)}")


def limit_of(given: Loss | None) -> Loss | None:
    """The gate's limit: the one given, else that of the settings; None where there is none. Raises UsageError."""
    if given is not None:
        return given if math.isfinite(given.fraction) else None
    found = settings()
    if found.regression is None:
        return None
    asked = f"fail-on-regression = {format_fraction(found.regression)} of {found.origin}"
    return Loss(fraction=found.regression, asked=asked)


class Size(click.ParamType):  # type: ignore[type-arg]
    """An amount of memory: `16GB`, `80 GiB`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The amount in bytes; fails on what is no amount."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]i?b)", str(value).strip().lower())
        if match is None or match[2] not in _SIZES or float(match[1]) == 0:
            self.fail(f"{value!r} is not an amount of memory: write 16GB", param, ctx)
        return float(match[1]) * _SIZES[match[2]]


class Stretch(click.ParamType):  # type: ignore[type-arg]
    """From one time to a later one, each with its unit: `500ms:1.5s` is (500_000_000, 1_500_000_000) ns."""

    name = "stretch"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """The two times, ns."""
        if isinstance(value, tuple):
            return value
        parts = [_TIME.fullmatch(part.strip()) for part in str(value).split(":")]
        times = [round(float(part[1]) * _UNITS_NS[part[2]]) for part in parts if part is not None]
        if len(parts) != 2 or len(times) != 2:
            self.fail(f"{value!r} is not a stretch of time: write 500ms:1.5s", param, ctx)
        if times[0] >= times[1]:
            self.fail(f"{value!r} ends before it begins", param, ctx)
        return times[0], times[1]


margin_option: Final = click.option(
    "--margin",
    type=Percent(),
    default="2%",
    show_default=True,
    help="Ignore smaller changes; choose this before measuring.",
)
"""`--margin`."""
metric_option: Final = click.option(
    "--metric", metavar="COLUMN", help="The measured column of a table, if its name does not show it."
)
"""`--metric`, of commands that read tables."""
