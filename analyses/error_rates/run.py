"""Does the judge keep its promises? False alarms, coverage and power, by simulation.

    python -m analyses.error_rates.run [--sessions 4000]

Every cell is a number of runs per side on one kind of machine. Writes results.json beside itself and prints the table.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from analyses.error_rates.simulate import Machine, alarms, coverage, early_alarms, judge_all, sessions
from profkit.compare.bench.interleaved import Design

HERE = Path(__file__).resolve().parent
RUNS = (2, 3, 4, 8, 16)
EFFECT = 0.03
MACHINES = {
    "steady": Machine(),
    "unequal sides": Machine(candidate_cv=0.045),
    "drift 5 %": Machine(drift=0.05),
    "drift 10 %": Machine(drift=0.10),
}
ONE_COMMAND = ("steady", "drift 5 %", "drift 10 %")
"""Machines on which both sides are one command, as an A/A session has it."""


def cell(machine: str, n: int, n_sessions: int, *, is_blocked: bool) -> dict[str, Any]:
    """Give the rates of one kind of machine and number of runs per side."""
    of = MACHINES[machine]
    same = judge_all(sessions(n_sessions, n, of), is_blocked=is_blocked)
    changed = judge_all(sessions(n_sessions, n, of, effect=EFFECT), is_blocked=is_blocked)
    return {
        "machine": machine,
        "runs_per_side": n,
        "design": "blocks" if is_blocked else "free",
        "false_alarms": alarms(same),
        "coverage": coverage(same, 0),
        "coverage_changed": coverage(changed, EFFECT),
        "power": alarms(changed),
    }


def main() -> None:
    """Simulate every cell, print the table, write results.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=4000, help="sessions per cell")
    n_sessions = parser.parse_args().sessions
    print(f"{'machine':14} {'design':7} {'runs':>4} {'alarms':>7} {'coverage':>9} {'changed':>8} {'power':>7}")
    cells = []
    for machine in MACHINES:
        for is_blocked in (False, True):
            for n in RUNS:
                one = cell(machine, n, n_sessions, is_blocked=is_blocked)
                cells.append(one)
                print(
                    f"{machine:14} {one['design']:7} {n:4} {one['false_alarms']:7.1%} {one['coverage']:9.1%}"
                    f" {one['coverage_changed']:8.1%} {one['power']:7.1%}",
                    flush=True,
                )
    design = Design(n_blocks=8, stops_early=True, margin=0.001)
    n_early = max(n_sessions // 4, 1)
    early = [
        {"machine": name, "false_alarms": rate, "blocks_used": used, "n_sessions": n_early}
        for name, (rate, used) in ((name, early_alarms(n_early, design, MACHINES[name])) for name in ONE_COMMAND)
    ]
    for one in early:
        print(f"{one['machine']:14} 8 blocks that may end early: alarms {one['false_alarms']:.1%}")
    result = {"n_sessions": n_sessions, "effect": EFFECT, "cells": cells, "early_end": early}
    (HERE / "results.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
