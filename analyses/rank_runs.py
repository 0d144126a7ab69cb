"""Runs of a lab's cases: uncaptured for their timings, captured for profkit's verdict; crashed runs are made again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import profkit
from profkit import Report
from workloads.rank_cases import Case

ROOT: Final = Path(__file__).resolve().parent.parent
_MAX_RUNS: Final = 4
"""Runs of one case until one ends well. Chosen: gloo aborts about 1 run in 8 at its end (torch 2.13), 4 in a row once
in 4,000 times."""
_PHASE_METRIC: Final = "straggler.phase_excess_ns."


def timed(case: Case, *, n_steps: int) -> tuple[dict[str, Any], int]:
    """Gives the row that a run prints of itself, and how many runs crashed before it."""
    done, n_crashed = _until_it_ends(_torchrun(case.arguments("--json", "--steps", str(n_steps))))
    row: dict[str, Any] = json.loads(done.stdout)
    return row, n_crashed


def captured(case: Case, folder: Path) -> tuple[Report, int]:
    """Gives profkit's report on a captured run, and how many runs crashed before it."""
    window = ["-m", "profkit", "capture", "-o", str(folder), "--steps", str(case.n_steps), "--overwrite", "--"]
    run = _torchrun(case.arguments())
    _, n_crashed = _until_it_ends([sys.executable, *window, "python", *run[1:]])
    return profkit.triage([str(folder)]), n_crashed


def _torchrun(arguments: Sequence[str]) -> list[str]:
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]  # a free port, whoever else runs
    return [sys.executable, "-m", "torch.distributed.run", *rendezvous, *arguments]


def _until_it_ends(command: list[str]) -> tuple[subprocess.CompletedProcess[str], int]:
    """Runs a command, again if it crashes; raises `subprocess.CalledProcessError` if it always does."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": path}
    for n_crashed in range(_MAX_RUNS):
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done, n_crashed
        print(f"crashed with {done.returncode}, run again: {done.stderr.strip()[-200:]}", file=sys.stderr, flush=True)
    raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What profkit says of a case: its verdict, the ranks it calls late with their phases, and all it found."""

    bottleneck: str
    confidence: float
    headline: str
    stragglers: dict[int, str]
    findings: tuple[str, ...]

    def against(self, case: Case) -> str:
        """Gives how this differs from what is true of the case, "" if it does not."""
        found = set(self.findings)
        parts = []
        if self.stragglers != dict(case.stragglers):
            parts.append(f"late: {self.stragglers or 'nobody'}, in truth {dict(case.stragglers) or 'nobody'}")
        if missing := case.findings - found:
            parts.append(f"not found: {', '.join(sorted(missing))}")
        if wrong := case.excluded & found:
            parts.append(f"found wrongly: {', '.join(sorted(wrong))}")
        return "; ".join(parts)


def fingerprint(report: Report) -> Fingerprint:
    """Gives what a report says, as far as the labs ask."""
    late = {item.rank: _phase_of(item) for item in report.findings if item.id == "straggler.rank"}
    return Fingerprint(
        bottleneck=report.verdict.bottleneck.value,
        confidence=report.verdict.confidence,
        headline=report.verdict.headline,
        stragglers={rank: phase for rank, phase in late.items() if rank is not None},
        findings=tuple(dict.fromkeys(item.id for item in report.findings)),
    )


def _phase_of(finding: Any) -> str:
    metrics = [evidence.metric for evidence in finding.evidence if evidence.metric.startswith(_PHASE_METRIC)]
    return metrics[0].removeprefix(_PHASE_METRIC) if metrics else "mixed"
