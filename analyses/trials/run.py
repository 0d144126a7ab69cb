"""Does what the verdict predicts of a change come true? `profkit try` on six jobs, each in runs in turns.

    python -m analyses.trials.run [--only CASE] [--blocks 6] [--seed 0]

The jobs are the three regimes of `workloads.train` and three miniatures of public training scripts
(`workloads/miniatures`). A case is a document beside this file (`results/CASE.json`), written when it is done and not
run again; trials.csv has a row for each change of all. Run it on a quiet machine, and look at the column `load`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent.parent
RESULTS: Final = HERE / "results"
TABLE: Final = HERE / "trials.csv"
_TRAIN: Final = ("-m", "workloads.train", "--device", "cpu", "--steps", "2000", "--regime")
CASES: Final[dict[str, tuple[str, ...]]] = {
    "data": (*_TRAIN, "data"),
    "overhead": (*_TRAIN, "overhead"),
    "kernel": (*_TRAIN, "kernel"),
    "char_gpt": ("-m", "workloads.miniatures.char_gpt", "--steps", "2000"),
    "image_classifier": ("-m", "workloads.miniatures.image_classifier", "--steps", "2000"),
    "text_classifier": ("-m", "workloads.miniatures.text_classifier", "--steps", "2000"),
}
COLUMNS: Final = (
    "case", "change", "outcome", "predicted_low", "predicted_high", "gain", "low", "high", "step_ns", "n_runs",
    "losses", "load",
)  # fmt: skip


def measure(name: str, *, blocks: int, seed: int) -> None:
    """Try the changes of one case and keep the document."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tried.json"
        options = ["--yes", "-n", str(blocks), "--seed", str(seed), "-o", str(path)]
        line = [sys.executable, "-m", "profkit", "try", *options, "--", sys.executable, *CASES[name]]
        load = os.getloadavg()[0]
        subprocess.run(line, cwd=ROOT, check=True)
        document = json.loads(path.read_text())
    document["command"] = f"python {' '.join(CASES[name])}"  # the interpreter's own path is of this machine
    RESULTS.mkdir(exist_ok=True)
    kept = {"load_before": round(load, 2), "load_after": round(os.getloadavg()[0], 2), "document": document}
    (RESULTS / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")


def rows() -> list[dict[str, Any]]:
    """A row for each change of the cases that are done."""
    found = []
    for name in CASES:
        path = RESULTS / f"{name}.json"
        if not path.exists():
            continue
        kept = json.loads(path.read_text())
        for trial in kept["document"]["trials"]:
            predicted, interval = trial["predicted"] or (None, None), trial["interval"] or (None, None)
            losses = "" if trial["losses"] is None else "same" if trial["losses"]["is_same"] else "other"
            values = (
                name, trial["change"], trial["outcome"], *predicted, trial["gain"], *interval, trial["step_ns"],
                trial["n_runs"], losses, kept["load_before"],
            )  # fmt: skip
            found.append(dict(zip(COLUMNS, values, strict=True)))
    return found


def main() -> None:
    """Run what is lacking, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=CASES, help="one case")
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    for name in [asked.only] if asked.only else CASES:
        if not (RESULTS / f"{name}.json").exists():
            measure(name, blocks=asked.blocks, seed=asked.seed)
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows())
    for row in rows():
        print(*(f"{value:.3f}" if isinstance(value, float) else value for value in row.values()), sep="\t")


if __name__ == "__main__":
    main()
