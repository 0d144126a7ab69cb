"""`1.5s:2s` as an option of `profkit info`: a stretch of time."""

from __future__ import annotations

import re
from typing import Any, Final

import click

_UNITS_NS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_TIME: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*(ns|us|ms|s)")


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
