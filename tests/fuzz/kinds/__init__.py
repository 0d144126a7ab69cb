"""The kinds of input, each a function of a random generator."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.fuzz.documents import Case
from tests.fuzz.kinds import folders, kineto, ncu, nsys, tables

KINDS: dict[str, Callable[[random.Random], Case]] = {
    "kineto": kineto.drawn,
    "nsys": nsys.drawn,
    "ncu": ncu.drawn,
    "tables": tables.drawn,
    "ranks": folders.drawn_ranks,
    "compare": folders.drawn_pair,
    "handover": folders.drawn_handover,
}
"""Every kind that `--kinds` knows."""


def case_of(seed: int | str, kind: str, index: int) -> Case:
    """Input `index` of a kind under a seed: always the same."""
    return KINDS[kind](random.Random(f"{seed}:{kind}:{index}"))  # noqa: S311 - inputs, no secrets
