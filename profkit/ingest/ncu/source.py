"""Nsight Compute's reports and pages as a source: they know single kernels, and no step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profkit.errors import UnsupportedTraceError
from profkit.ingest.kind import How, Part, Source
from profkit.ingest.ncu.sniff import is_ncu
from profkit.shell import quoted_path

if TYPE_CHECKING:
    from profkit.model.trace import Trace


def no_trace(source: str) -> UnsupportedTraceError:
    """The refusal of a report where a trace is wanted."""
    return UnsupportedTraceError(
        f"{source} is an ncu report: it holds single kernels, no steps",
        hint=f"profkit kernels {quoted_path(source)}; or triage it together with its trace",
    )


def _read(path: Path, how: How) -> Iterator[Trace]:
    raise no_trace(how.source)


NCU: Final = Source(
    name="ncu",
    tool="ncu",
    part=Part.KERNELS,
    suffixes=(".ncu-rep", ".ncu-repz"),
    is_one=lambda head, path, source: bool(head) and is_ncu(path, source),
    read=_read,
)
