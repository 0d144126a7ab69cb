"""The toy's files as a source: one that the recipe in docs/architecture.md adds, and no more than it must be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profkit import files
from profkit.errors import TraceFormatError
from profkit.ingest.kind import How, Part, Source

if TYPE_CHECKING:
    from profkit.ingest.assemble.raw import Columns
    from profkit.model.trace import Trace, Traits

_MAGIC: Final = b"toy 1\n"


def traits() -> Traits:
    """What the toy's files hold."""
    from profkit.model.trace import Traits

    return Traits(
        format=TOY.name,
        tool=TOY.tool,
        step_source=TOY.step_source,
        step_marks="ranges named step N",
        has_host_calls=False,
        is_system_wide=False,
        recapture="toy record",
        how_to_mark_steps="name a range step N",
        how_to_mark_input="name a range data_loader",
        how_to_have_operators="switch the toy's operators on",
        how_to_be_steady="record later",
    )


def _read(path: Path, how: How) -> Iterator[Trace]:
    from profkit.ingest.assemble.build import build_trace
    from profkit.ingest.assemble.raw import Batch, RawTrace

    with files.open_file(path) as file:
        _, *lines = file.read().decode().splitlines()
    rows = [line.split() for line in lines]
    names = sorted({row[1] for row in rows if len(row) == 4})
    try:
        tables = {table: _columns([row for row in rows if row[0] == table], names) for table in ("ops", "spans")}
    except (ValueError, OverflowError):
        raise TraceFormatError(f"{how.source}: a row is no table, name, start and length") from None
    batch = Batch(n_events=len(rows), tables=tables, strings=names, threads=[("1", "1")])
    yield build_trace(RawTrace(source=how.source, traits=traits(), batches=[batch], n_bytes=path.stat().st_size))


def _columns(rows: list[list[str]], names: list[str]) -> Columns:
    import numpy as np

    start, length = (np.array([1_000 * int(row[place]) for row in rows], np.int64) for place in (2, 3))
    name = np.array([names.index(row[1]) for row in rows], np.int32)
    columns: Columns = {"start_ns": start, "end_ns": start + length, "name": name, "thread": np.zeros_like(name)}
    return columns | ({"external_id": np.full_like(start, -1)} if rows and rows[0][0] == "ops" else {})


TOY: Final = Source(
    name="toy",
    tool="toy",
    part=Part.OPERATORS,
    step_source="step",
    suffixes=(".toy",),
    is_one=lambda head, _path, _source: head.startswith(_MAGIC),
    read=_read,
)
