"""Reports to text. A renderer is `(Report) -> str`; it formats and decides nothing. Imported when asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final

from profkit.errors import UsageError

if TYPE_CHECKING:
    from profkit.model.report import Report

RENDERERS: Final = {"terminal": ".txt", "json": ".json", "markdown": ".md"}
"""Format name to the suffix of its files."""


def renderer_for(name: str) -> Callable[[Report], str]:
    """Give the renderer of a format, or of the format that a path's suffix names; raises UsageError."""
    by_suffix = {suffix: fmt for fmt, suffix in RENDERERS.items()}
    fmt = name if name in RENDERERS else by_suffix.get("." + name.rpartition(".")[2], "")
    if not fmt:
        raise UsageError(f"no format is known for {name!r}", hint=f"one of {', '.join(RENDERERS)}")
    renderer: Callable[[Report], str] = import_module(f"profkit.render.{fmt}").render
    return renderer
