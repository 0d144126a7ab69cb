"""`3%` as an option's value, and the options by which changes are judged."""

from __future__ import annotations

import re
from typing import Any

import click


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
