"""The work per step that a script told `profkit.capture.step`: rows that a capture writes at the head of its trace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from profkit.errors import ProfkitError
from profkit.ingest.bytes.bytesource import read_chunks

KINDS: Final = ("tokens", "samples")
"""What is counted, the best measure first: padding is no work."""
_CAPTURED: Final = "profkit_step_source"  # a key of every trace that profkit captured
_HEAD_BYTES: Final = 4 * 2**20  # ten thousand steps
_ROW: Final = re.compile(
    rb'"name": "profkit\.(tokens|samples)"[^{}]{0,200}"args": \{"\w+": ([0-9]{1,18}(?:\.[0-9]{1,18})?)\}'
)


def recorded_work(source: str, metadata: Mapping[str, Any]) -> dict[str, float]:
    """The mean work per step by kind, over all steps that told theirs; empty for a trace of another origin."""
    if _CAPTURED not in metadata or not Path(source).is_file():
        return {}
    try:
        head = next(iter(read_chunks(Path(source), source=source, chunk_bytes=_HEAD_BYTES)), b"")
    except ProfkitError:  # the reader has said what is wrong with the file
        return {}
    told: dict[str, list[float]] = {}
    for kind, value in _ROW.findall(head):
        told.setdefault(kind.decode(), []).append(float(value))
    return {kind: sum(values) / len(values) for kind, values in told.items()}


def work_of_run(ranks: Iterable[tuple[object, Mapping[str, float]]]) -> dict[str, float]:
    """A run's work per step: the sum over its ranks of the mean over a rank's traces; empty if one told none."""
    by_rank: dict[object, list[Mapping[str, float]]] = {}
    for rank, work in ranks:
        by_rank.setdefault(rank, []).append(work)
    out: dict[str, float] = {}
    for kind in KINDS:
        if all(kind in work for traces in by_rank.values() for work in traces):
            out[kind] = sum(sum(work[kind] for work in traces) / len(traces) for traces in by_rank.values())
    return out
