"""What a kind of file declares of itself, in the `source.py` of its folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from profkit.ingest.bytes.bytesource import Progress
    from profkit.model.trace import Trace


class Part(StrEnum):
    """What a kind of file tells of a job; where several kinds are given together, the first one makes the report."""

    OPERATORS = "operators"
    TIMELINE = "timeline"
    KERNELS = "kernels"


class How(msgspec.Struct, frozen=True, kw_only=True):
    """How a file is read. A reader ignores what has no meaning for its kind.

    `source` is the name that is shown, `jobs` the processes that may work on it, and `meanwhile` what this process may
    do while others work.
    """

    source: str
    lenient: bool = False
    jobs: int = 1
    progress: Progress | None = None
    meanwhile: Callable[[], object] | None = None


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of file: whose it is, how its files are called, how they are told from others, and how they are read."""

    name: str
    """As `ranks[].format` of a report has it."""
    tool: str
    part: Part
    step_source: str = ""
    """What marks steps in its files, as `steps.step_source` of a report has it; "" where nothing does."""
    suffixes: tuple[str, ...]
    """How its files are called in a folder that holds other files too."""
    is_one: Callable[[bytes, Path, str], bool]
    """Whether a file is of this kind: by its first 64 bytes, its path, the name that is shown. It raises nothing."""
    read: Callable[[Path, How], Iterator[Trace]]
    """Its traces, in the order of ranks; raises TraceError and MissingCapabilityError."""
