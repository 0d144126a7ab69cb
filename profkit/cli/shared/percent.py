"""`3%` as an option's value, and the options by which changes are judged."""

from __future__ import annotations

import math
import re
from typing import Any

import click
import msgspec

from profkit.cli.shared.settings import NEVER, settings
from profkit.units import format_fraction


class Percent(click.ParamType):  # type: ignore[type-arg]
    """A percentage, up to 100: `3%` is 0.03. The sign must be there, since a bare 0.03 could mean either."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The fraction."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d{1,3}(?:\.\d+)?)\s*%", str(value).strip())
        if match is None or float(match[1]) > 100:
            self.fail(f"{value!r} is not a percentage: write 3%", param, ctx)
        return float(match[1]) / 100


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


def margin_option(function: Any) -> Any:
    """`--margin`."""
    return click.option(
        "--margin",
        type=Percent(),
        default="2%",
        show_default=True,
        help="Ignore smaller changes; choose this before measuring.",
    )(function)


def metric_option(function: Any) -> Any:
    """`--metric`, of commands that read tables."""
    return click.option(
        "--metric", metavar="COLUMN", help="The measured column of a table, if its name does not show it."
    )(function)
