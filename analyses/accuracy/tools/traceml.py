"""Ask TraceML about the cells: a run of its own for each, with the steps of the program marked for it.

    pip install traceml-ai                                            # no part of profkit's environment
    python -m analyses.accuracy.tools.traceml [--only PATTERN] [--limit-minutes 60]

Writes answers/traceml.jsonl beside the results, which the scores and the page take in. A cell that has a line there is
not asked again. A run takes a minute, since TraceML starts processes of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from analyses.accuracy.cell import Said
from analyses.accuracy.results import ANSWERS, HERE, Answer, read_answers
from analyses.accuracy.truth import HEALTHY

WORDS: Final[Mapping[str, str]] = {
    "INPUT_BOUND": "data-bound",
    "H2D_BOUND": "copy-bound",
    "COMPUTE_BOUND": "kernel-bound",
    "RESIDUAL_HEAVY": "overhead-bound",
    "STRAGGLER": "straggler-bound",
    "INPUT_STRAGGLER": "straggler-bound",
    "COMPUTE_STRAGGLER": "straggler-bound",
    "H2D_STRAGGLER": "straggler-bound",
    "BALANCED": HEALTHY,
    "NO_CLEAR_PERFORMANCE_BOTTLENECK": HEALTHY,
}
"""TraceML's diagnoses as verdicts; the others say that it has too little data."""
N_STEPS: Final = 120
TIMEOUT_S: Final = 240
_PROGRAM: Final = Path(__file__).with_name("traceml_program.py")
_ROOT: Final = Path(__file__).resolve().parents[3]


def from_summary(summary: Mapping[str, Any]) -> Said:
    """The primary diagnosis of a final_summary.json, then the issues of its steps; shares are of the step."""
    primary = summary["primary_diagnosis"]
    issues = summary.get("step_time", {}).get("issues", [])
    shares = [issue.get("share_pct") for issue in issues]
    word = WORDS.get(primary["kind"], "inconclusive")
    lead = next((issue for issue in issues if issue["kind"] == primary["kind"]), {})
    ranks = lead.get("ranks") or [None]
    return Said(
        bottleneck="kernel-bound" if word == HEALTHY else word,
        is_healthy=word == HEALTHY,
        gain=None if word in {"kernel-bound", HEALTHY} else lead.get("share_pct"),
        finding_ids=tuple(issue["kind"] for issue in issues),
        classes=tuple(_class_of(issue["kind"]) for issue in issues),
        finding_gains=() if None in shares else tuple(map(float, shares)),
        headline=f"{primary['status']}: {primary['summary']}",
        rank=ranks[0] if word == "straggler-bound" else None,
    )


def asked(flags: Sequence[str], n_ranks: int, folder: Path) -> Said:
    """What TraceML says of a program with these flags; "" and the reason where its run fails."""
    run = [sys.executable, "-m", "traceml_ai.launcher.cli", "run", "--run-name", "cell", "--logs-dir", str(folder)]
    ranks = ["--nproc-per-node", str(n_ranks)] if n_ranks > 1 else []
    command = [*run, *ranks, str(_PROGRAM), "--args", *flags, "--steps", str(N_STEPS)]
    try:
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        summary = json.loads((folder / "cell" / "final_summary.json").read_text(encoding="utf-8"))
    except subprocess.TimeoutExpired:
        return Said(bottleneck="", headline=f"failed: no answer in {TIMEOUT_S} s")
    except (OSError, ValueError):
        return Said(bottleneck="", headline=f"failed: {done.stderr.strip()[-200:]}")
    return from_summary(summary)


def _class_of(kind: str) -> str:
    word = WORDS.get(kind, "")
    return "" if word == HEALTHY else word


def main() -> None:
    """Asks TraceML about each cell that has no answer yet, and appends the answers."""
    from analyses.accuracy.cells import cells

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--answers", type=Path, default=HERE / ANSWERS / "traceml.jsonl", help="write here (%(default)s)"
    )
    parser.add_argument("--only", default="", metavar="PATTERN", help="cells whose key contains this")
    parser.add_argument("--limit-minutes", type=float, default=float("inf"), help="start no cell after so long (never)")
    chosen = parser.parse_args()
    known = {one.key for one in read_answers(chosen.answers)} if chosen.answers.exists() else set()
    chosen.answers.parent.mkdir(exist_ok=True)
    end_s = time.monotonic() + 60 * chosen.limit_minutes
    for cell in cells():
        if chosen.only not in cell.key or cell.key in known or time.monotonic() > end_s:
            continue
        with tempfile.TemporaryDirectory() as name:
            answer = Answer(key=cell.key, said=asked(cell.flags(), cell.n_ranks, Path(name)))
        with chosen.answers.open("ab") as file:
            file.write(msgspec.json.encode(answer) + b"\n")
        print(f"{cell.key}: {answer.said.headline}", flush=True)


if __name__ == "__main__":
    main()
