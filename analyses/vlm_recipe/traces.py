"""One capture of each cell, and what profkit says of it: verdict, line, findings with what each could save."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import profkit
from analyses.vlm_recipe.cells import Cell
from analyses.vlm_recipe.runs import ROOT, environment, tell
from profkit.verdict.on_cpu import most_share

STEPS: Final = 28
_WINDOW: Final = ("--unprofiled-steps", "5", "--warmup-steps", "2", "--steps", "5")
"""Of the capture, and steps for it, those recorded once more and those after it. Chosen: steps of half a second."""
Told = dict[str, Any]


def judge_all(cells: Sequence[Cell], path: Path, *, folder: Path) -> None:
    """Captures the cells that the file lacks; it holds what was said, by the cell's slug."""
    told: dict[str, Told] = read_told(path)
    by_slug = {cell.slug: cell for cell in cells}
    for cell in cells:
        if cell.slug not in told:
            _captured(cell, folder / cell.slug)
            told[cell.slug] = _triaged(folder / cell.slug)
            if cell.readings:
                twin = folder / cell.against
                if not twin.is_dir():  # what was said of it is kept, its trace is not
                    _captured(by_slug[cell.against], twin)
                told[cell.slug]["readings"] = _compared(twin, folder / cell.slug)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
            tell(
                f"trace of {cell.slug:24} {told[cell.slug]['bottleneck']}, {wrong(cell, told[cell.slug]) or 'as it is'}"
            )


def read_told(path: Path) -> dict[str, Told]:
    """Gives what was said so far, by slug."""
    if not path.exists():
        return {}
    known: dict[str, Told] = json.loads(path.read_text(encoding="utf-8"))
    return known


def _captured(cell: Cell, folder: Path) -> None:
    job = [sys.executable, "-m", "workloads.recipe", *cell.arguments, "--steps", str(STEPS)]
    _profkit("capture", "-o", str(folder), "--overwrite", *_WINDOW, "--", *job)


def _profkit(*arguments: str) -> None:
    command = [sys.executable, "-m", "profkit", *arguments]
    subprocess.run(command, cwd=ROOT, env=environment(), check=True, capture_output=True)


def _triaged(folder: Path) -> Told:
    _profkit("triage", str(folder), "-o", str(folder / "report.json"))
    return said_of(json.loads((folder / "report.json").read_text(encoding="utf-8")))


def _compared(before: Path, after: Path) -> dict[str, str]:
    """Gives the titles of what `profkit compare` reads from a cell's capture beside its twin's, by id."""
    return {one.id: one.title for one in profkit.compare(before, after).readings}


def said_of(report: dict[str, Any]) -> Told:
    """Gives what the study keeps of a report: times in ns per step, shares 0-1, both the most that is said."""
    verdict = report["verdict"]
    sections = report["ranks"][0]["sections"]
    tables = [table for one in sections if one["analyzer"] == "code" for table in one["tables"]]
    modules = {row[0].strip(): row[-1] for table in tables for row in table["rows"] if table["headers"][0] == "module"}
    tower = next((share for name, share in modules.items() if name.endswith(".tower")), 0.0)
    is_cpu = report["ranks"][0]["devices"][0]["kind"] == "cpu"
    return {
        "bottleneck": verdict["bottleneck"],
        "headline": verdict["headline"],
        "where": verdict["where"] or "",
        "step_ns": verdict["step_ns"],
        "findings": {
            one["id"]: {"title": one["title"], "saves_ns": one["most_recoverable_ns"] or one["recoverable_ns"]}
            for one in report["findings"]
        },
        "tower_share": most_share(tower) if is_cpu else tower,
    }


def wrong(cell: Cell, told: Told) -> str:
    """Gives how findings and verdict differ from what is true of the cell, "" if they do not."""
    said = {*told["findings"], told["bottleneck"]}
    missing = [one for one in cell.expected if one not in said]
    missing += [one for one in cell.readings if one not in told.get("readings", {})]
    extra = sorted(said.intersection(cell.excluded))
    parts = [f"not found: {', '.join(missing)}"] if missing else []
    return "; ".join([*parts, *([f"found wrongly: {', '.join(extra)}"] if extra else [])])
