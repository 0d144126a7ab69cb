"""The changes that can be made to a run from outside; what each is for stands in `profkit/trial/catalogue.py`.

Runs in the tried process: standard library and torch only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import ablations, job, numerics
from .base import Change

_ALL = {**job.CHANGES, **numerics.CHANGES, **ablations.CHANGES}


def change_of(name: str, how: Mapping[str, Any]) -> Change:
    """The change of a name, "" for none. Raises KeyError."""
    return _ALL[name](how) if name else Change(how)


def names() -> list[str]:
    """The names of all changes."""
    return list(_ALL)
