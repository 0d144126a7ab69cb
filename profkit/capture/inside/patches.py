"""Functions of torch and of the standard library that are replaced for a while, and their return to what they were.

Runs in the traced process and its workers: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class Patches:
    """The wrappers of one watcher: `wrap` puts one in, `take_out` all of them out."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace a function of a class or module by `make(function)`, which looks like it."""
        original, own = getattr(owner, name), vars(owner).get(name)
        wrapper = functools.wraps(original)(make(original))
        setattr(owner, name, wrapper)
        self._done.append((owner, name, own, wrapper))

    def take_out(self) -> None:
        """Put back what was there, unless somebody has wrapped it since; what was inherited is again."""
        while self._done:
            owner, name, own, wrapper = self._done.pop()
            if vars(owner).get(name) is not wrapper:
                continue
            if own is None:
                delattr(owner, name)
            else:
                setattr(owner, name, own)
