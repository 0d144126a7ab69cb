"""`make demo`: capture each regime on this machine with `profkit run`, show the verdicts.

python -m workloads.demo                    all regimes
python -m workloads.demo --only data
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from workloads import own_python

EXPECTED: Final = {
    "data": "data-bound",
    "overhead": "overhead-bound",
    "kernel": "kernel-bound",
    "baseline": "kernel-bound",
}
"""What each regime was built to be; the baseline computes and has nothing to find: healthy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One regime's verdict and where its files are."""

    regime: str
    verdict: dict[str, Any]
    report: Path

    @property
    def is_right(self) -> bool:
        """Whether the verdict is what the workload was built to be."""
        is_expected = bool(self.verdict["bottleneck"] == EXPECTED[self.regime])
        return is_expected and bool(self.verdict["healthy"]) == (self.regime == "baseline")


def main() -> int:
    """Run the demo and give its exit code: 0 if every verdict is right."""
    parser = argparse.ArgumentParser(prog="python -m workloads.demo", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="where traces and reports go (out/demo)")
    parser.add_argument("--only", choices=sorted(EXPECTED), action="append", help="this regime alone; may be repeated")
    options = parser.parse_args()
    begun_s = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    regimes = options.only or list(EXPECTED)
    outcomes = [run_regime(regime, options.out, f"{n}/{len(regimes)}") for n, regime in enumerate(regimes, 1)]
    print(summary(outcomes, options.out, time.monotonic() - begun_s))
    return 0 if all(outcome.is_right for outcome in outcomes) else 1


def run_regime(regime: str, folder: Path, place: str) -> Outcome:
    """Run, capture and triage one regime; prints the report as it comes."""
    capture = folder / regime
    workload = ["python", "-m", "workloads.train", "--regime", regime]
    print(f"\n==> {place} profkit run --folder {capture} -- {' '.join(workload)}", flush=True)
    _run(["run", "--folder", str(capture), "--overwrite", "--", *workload])
    document, report = capture / "report.json", capture / "report.md"
    for path in (document, report):
        _run(["triage", str(capture), "-o", str(path)], quiet=True)
    return Outcome(regime=regime, verdict=json.loads(document.read_text())["verdict"], report=report)


def _run(arguments: list[str], *, quiet: bool = False) -> None:
    command = [sys.executable, "-m", "profkit", *arguments]
    done = subprocess.run(
        command, env=own_python.environment(), check=False, stderr=subprocess.PIPE if quiet else None, text=True
    )
    if done.returncode != 0:
        raise SystemExit(f"demo: profkit {' '.join(arguments)} ended with {done.returncode}\n{done.stderr or ''}")


def summary(outcomes: list[Outcome], folder: Path, seconds: float) -> str:
    """Give the closing table."""
    lines = ["", f"==> done in {seconds:.0f} s", ""]
    for outcome in outcomes:
        name = "healthy" if outcome.verdict["healthy"] else outcome.verdict["bottleneck"]
        mark = "right" if outcome.is_right else f"WRONG, built to be {EXPECTED[outcome.regime]}"
        lines.append(f"  {outcome.regime:9} -> {name:15} {outcome.verdict['headline'][:60]:60}  {mark}")
    lines += ["", f"  traces and reports (.md, .json): {folder}/", "  what a finding means: profkit explain"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
