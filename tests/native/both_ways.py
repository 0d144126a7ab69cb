"""Times worked on by the compiled library, whatever their number, and by numpy alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from profkit.native import algebra
from tests.ingest.both_ways import exact


@contextmanager
def compiled() -> Iterator[None]:
    """As if all columns were large."""
    with mock.patch.object(algebra, "LEAST", 0):
        yield


@contextmanager
def numpy_alone() -> Iterator[None]:
    """As where nothing was compiled."""
    with mock.patch.object(algebra, "_used", return_value=None):
        yield


def both(work: Callable[[], Any]) -> tuple[Any, Any]:
    """What the compiled library's way and numpy's make of something, to the bit."""
    with compiled():
        quick = exact(work())
    with numpy_alone():
        plain = exact(work())
    return quick, plain
