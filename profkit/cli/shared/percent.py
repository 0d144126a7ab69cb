"""`3%` as an option's value."""

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
