"""Let profkit judge the kept recordings of cells again, as it is now.

    python -m analyses.accuracy.again [results.jsonl] [--recordings out/accuracy] [--keep-as before]

Labels and recordings stay: only what profkit says of them is new, with confidences as made, before the curve of
`profkit/verdict/calibrated.py`, which is fitted to them. With `--keep-as NAME` what it said before is kept in
answers/NAME.jsonl, and stands as a tool of its own beside it on the page. A cell without a recording keeps its answer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from unittest.mock import patch

import msgspec
from msgspec.structs import replace

from analyses.accuracy.cell import CellResult, Said
from analyses.accuracy.cells import Cell
from analyses.accuracy.cells import cells as planned_cells
from analyses.accuracy.reports import said
from analyses.accuracy.results import ANSWERS, RESULTS, Answer, read_rows
from profkit.api import triage
from profkit.errors import ProfkitError
from profkit.render.json.triage import report_to_dict
from profkit.verdict import calibrated

RECORDINGS: Final = Path(__file__).resolve().parent.parent.parent / "out" / "accuracy"
TOOL: Final = "profkit"


def recording_of(cell: CellResult, folder: Path) -> Path:
    """Where `analyses.accuracy.run --keep` leaves the traces of a cell."""
    return folder / cell.key.replace("/", "-") / "traces"


def judged(traces: Path) -> Said | None:
    """What profkit says of some traces now; None where there are none, or they are refused."""
    if not traces.is_dir():
        return None
    try:
        with patch.object(calibrated, "calibrated", lambda made: made):
            return said(report_to_dict(triage([str(traces)])))
    except ProfkitError as refused:
        print(f"{traces.parent.name}: {refused.message}", file=sys.stderr)
        return None


def again(cells: Sequence[CellResult], folder: Path, tell: Callable[[str], None] = print) -> list[CellResult]:
    """The cells with what profkit says now; tells of each verdict that is another than before."""
    rows = []
    for cell in refreshed(cells):
        now = None if cell.error else judged(recording_of(cell, folder))
        before = cell.tools.get(TOOL)
        if now is not None and before is not None and now.bottleneck != before.bottleneck:
            tell(f"{cell.key}: {before.bottleneck} -> {now.bottleneck}")
        rows.append(cell if now is None else replace(cell, tools={**cell.tools, TOOL: now}))
    return rows


def refreshed(cells: Sequence[CellResult]) -> list[CellResult]:
    """Rows with what the registry says today of their pathologies and programs; what was measured stays."""
    planned = {one.key: one for one in planned_cells()}
    return [_with_registry(row, planned[row.key]) if row.key in planned else row for row in cells]


def _with_registry(row: CellResult, cell: Cell) -> CellResult:
    now = cell.row()
    return replace(
        row,
        kind=now.kind,
        expected=now.expected,
        base=now.base,
        late_rank=now.late_rank,
        expected_finding=now.expected_finding,
    )


def write_rows(rows: Sequence[msgspec.Struct], path: Path) -> None:
    """Writes a line for each row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


def main() -> None:
    """Judges again what is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--recordings", type=Path, default=RECORDINGS, help="the folder of kept recordings")
    parser.add_argument("--keep-as", default="", metavar="NAME", help="keep what was said before as another tool's")
    asked = parser.parse_args()
    cells = read_rows(asked.results)
    if asked.keep_as:
        before = [Answer(key=cell.key, said=cell.tools[TOOL]) for cell in cells if TOOL in cell.tools]
        write_rows(before, asked.results.parent / ANSWERS / f"{asked.keep_as}.jsonl")
    write_rows(again(cells, asked.recordings), asked.results)


if __name__ == "__main__":
    main()
