"""A lie in strong scaling, told again: the published FSDP study from its raw runs, and the same study on this machine.

    python -m analyses.fsdp_scaling.run                 all of it: about eleven minutes on two cores
    python -m analyses.fsdp_scaling.run --blocks 0      from the committed timings, in a second

Writes timings.csv and twins.csv (one row per run), results.json, the verdicts as text, the charts, and the tables of
README.md, all beside itself.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from analyses.fsdp_scaling import charts, here, published, runs, tables

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Run the study and write what it found."""
    parser = argparse.ArgumentParser(prog="python -m analyses.fsdp_scaling.run", description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=4, help="runs of every cell, 0 to keep those of timings.csv (4)")
    parser.add_argument("--steps", type=int, default=24, help="training steps of a run, the first five untimed (24)")
    options = parser.parse_args()
    if options.blocks:
        rows, twins = runs.measure(n_blocks=options.blocks, n_steps=options.steps)
        runs.write_rows(HERE / "timings.csv", rows)
        runs.write_rows(HERE / "twins.csv", twins)
    values, text = here.analysed(HERE / "timings.csv", HERE / "twins.csv")
    results = {"published": _published(), "here": values}
    (HERE / "verdict_here.txt").write_text(text, encoding="utf-8")
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    known = results["published"]
    drawn = charts.of_runs(values, known) | (charts.of_published(known) if known else {})
    for name, chart in drawn.items():
        (HERE / name).write_text(chart, encoding="utf-8")
    tables.put_between_marks(HERE / "README.md", tables.results_text(results))
    print(f"{(HERE / 'verdict_published.txt').read_text(encoding='utf-8') if known else ''}\n   HERE\n\n{text}")


def _published() -> dict[str, Any] | None:
    """Gives the published study anew where its runs lie beside the project, else as it was last written down."""
    again = published.reanalysed()
    if again is not None:
        (HERE / "verdict_published.txt").write_text(again[1], encoding="utf-8")
        values: dict[str, Any] = json.loads(json.dumps(again[0]))  # tuples as lists: as results.json gives them back
        return values
    print("fsdp_scaling: the published runs are not here (shared/data/seeds): what was found is kept", file=sys.stderr)
    path = HERE / "results.json"
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return kept.get("published")


if __name__ == "__main__":
    main()
