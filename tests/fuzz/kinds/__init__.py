"""The kinds of input, each a function of a random generator."""

import hashlib
import random
from collections.abc import Callable, Iterable

from tests.fuzz.documents import Case
from tests.fuzz.kinds import folders, kineto, native, ncu, nsys, tables

KINDS: dict[str, Callable[[random.Random], Case]] = {
    "kineto": kineto.drawn,
    "native": native.drawn,
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


def digest(seed: str, indices: Iterable[int]) -> str:
    """All that these inputs of every kind are."""
    told = hashlib.sha256()
    for kind in KINDS:
        for index in indices:
            case = case_of(seed, kind, index)
            told.update(repr((kind, case.commands, case.done, case.secrets)).encode("utf-8", "surrogatepass"))
            for name, file in case.files.items():
                told.update(name.encode("utf-8", "surrogatepass") + file.data())
    return told.hexdigest()
