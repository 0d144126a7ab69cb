"""What each layer of a recipe for a vision-language model is worth on this machine, and what its traces say before.

    python -m analyses.vlm_recipe.run                  both stages, six runs of each: some forty minutes on two cores
    python -m analyses.vlm_recipe.run --quick          stage 2, three runs of each: about ten minutes; into out/recipe
    python -m analyses.vlm_recipe.run --device cuda    on a GPU, the larger model
    python -m analyses.vlm_recipe.run --blocks 0       from the committed runs and traces, in a second

Writes runs.csv (a row per run) and told.json (what profkit says of a trace of each cell) at once, so that it goes on
where it stopped; then results.json, charts, and the tables of README.md. `profkit ladder` reads ladder.csv.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from analyses.fsdp_scaling.tables import put_between_marks
from analyses.vlm_recipe import page, runs, traces
from analyses.vlm_recipe.cells import Cell, Machine, cells
from analyses.vlm_recipe.results import results

HERE: Final = Path(__file__).resolve().parent
OUT: Final = runs.ROOT / "out" / "recipe"
BLOCKS: Final = 6
QUICK_BLOCKS: Final = 3


def main() -> None:
    """Run what is missing and write what all of it says."""
    parser = argparse.ArgumentParser(prog="python -m analyses.vlm_recipe.run", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="stage 2 alone, into out/recipe")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="(cpu)")
    parser.add_argument(
        "--blocks", type=int, help=f"runs of each cell ({BLOCKS}; quick {QUICK_BLOCKS}); 0 keeps those there are"
    )
    parser.add_argument("--anew", action="store_true", help="forget the runs and traces there are")
    options = parser.parse_args()
    folder = OUT / options.device if options.quick else HERE / options.device
    if options.anew and folder.exists():
        shutil.rmtree(folder)
    n_blocks = options.blocks if options.blocks is not None else QUICK_BLOCKS if options.quick else BLOCKS
    result = study(folder, options.device, is_quick=options.quick, n_blocks=n_blocks)
    print(page.summary({options.device: result}))
    if not options.quick:
        put_between_marks(HERE / "README.md", page.text(of_devices()))


def study(folder: Path, device: str, *, is_quick: bool, n_blocks: int) -> dict[str, Any]:
    """Runs what the folder lacks, writes its files and gives its results."""
    known = folder / "machine.json"
    if n_blocks or not known.exists():
        about = asked(device)
        folder.mkdir(parents=True, exist_ok=True)
        known.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    about = json.loads(known.read_text(encoding="utf-8"))
    chosen = cells(Machine(device=device, has_bf16=about["has_bf16"]), is_quick=is_quick)
    if n_blocks:
        runs.measure(chosen, folder / "runs.csv", n_blocks=n_blocks)
        wanted = [cell for cell in chosen if cell.kind != "single"]
        traces.judge_all(wanted, folder / "told.json", folder=OUT / "traces" / device)
    if not runs.read_rows(folder / "runs.csv"):
        sys.exit(f"vlm_recipe: no runs to read in {folder.name}: leave --blocks 0 out")
    made = {**about, **results(chosen, runs.read_rows(folder / "runs.csv"), traces.read_told(folder / "told.json"))}
    (folder / "results.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    write_ladder(folder, chosen)
    for name, chart in page.charts(made).items():
        (folder / name).write_text(chart, encoding="utf-8")
    return made


def asked(device: str) -> dict[str, Any]:
    """Gives what decides the cells, and what the tables are headed by."""
    import torch

    from profkit.capture.inside.store import has_bf16

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if device == "cuda":
        return {
            "has_bf16": torch.cuda.is_bf16_supported(including_emulation=False),
            "gpu": torch.cuda.get_device_name(),
            "cores": cores,
        }
    return {"has_bf16": bool(has_bf16()), "gpu": None, "cores": cores}


def write_ladder(folder: Path, chosen: tuple[Cell, ...]) -> None:
    """Writes the runs of the rungs that stand on each other, in that order, as `profkit ladder` reads them."""
    rungs = [cell for cell in chosen if cell.kind == "ladder"]
    used = {cell.against for cell in rungs} | {rungs[-1].slug}
    order = [cell.slug for cell in rungs if cell.slug in used or cell.slug.endswith("/cached-features")]
    path = folder / "ladder.csv"
    path.unlink(missing_ok=True)
    rows = sorted(
        (row for row in runs.read_rows(folder / "runs.csv") if row["slug"] in order),
        key=lambda row: (order.index(row["slug"]), int(row["block"])),
    )
    for row in rows:
        runs.append(path, row)


def of_devices() -> dict[str, Any]:
    """Gives the committed results of each device."""
    paths = {device: HERE / device / "results.json" for device in ("cpu", "cuda")}
    return {device: json.loads(path.read_text(encoding="utf-8")) for device, path in paths.items() if path.exists()}


if __name__ == "__main__":
    main()
