"""Whether the pathology of a program is on, as every process of the program sees it."""

from __future__ import annotations

from multiprocessing import Value


class Switch:
    """One flag that the loop sets and that hooks, loader workers and side processes read."""

    def __init__(self, *, is_on: bool = True) -> None:
        self._flag = Value("b", is_on, lock=False)

    @property
    def is_on(self) -> bool:
        """Whether the pathology is on now."""
        return bool(self._flag.value)

    def set(self, *, is_on: bool) -> None:
        """Turns the pathology on or off, in all processes at once."""
        self._flag.value = is_on
