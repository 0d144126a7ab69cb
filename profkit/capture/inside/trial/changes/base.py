"""What a change is told of the run, and what it tells of itself.

Runs in the tried process: standard library and torch only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any


class Change:
    """One change to a run, or none. `done` says what was changed, `why_not` why nothing was."""

    done = ""
    why_not = "the run came by nothing that it changes"

    def __init__(self, how: Mapping[str, Any]) -> None:
        self.how = how

    def install(self) -> None:
        """Torch has been imported, the script goes on after this."""

    def first_forward(self, module: Any) -> None:
        """The outermost module with parameters is about to be called for the first time."""

    def backward_began(self) -> None:
        """A backward pass begins."""

    def backward_ended(self) -> None:
        """A backward pass, inside no other, has ended."""

    def stepped(self) -> None:
        """An optimizer has made its step."""


def wrapped(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace a function by `around(original, *args, **kwargs)`, for the whole run."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    setattr(owner, name, wrapper)
