"""DDP on one machine: weak and strong scaling, a straggler, an extra all-reduce, work on rank 0 and a barrier.

    python -m analyses.ddp.run                            all of it: about nine minutes on two busy cores
    python -m analyses.ddp.run --blocks 0 --captures 0    from the committed tables, in a second

Writes timings.csv (one row per run), verdicts.csv (one per captured run), results.json, the charts, and the tables of
README.md, all beside itself.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from analyses import lab
from analyses.ddp import charts
from analyses.fsdp_scaling.tables import put_between_marks
from workloads.rank_cases import DDP, Case

HERE: Final = Path(__file__).resolve().parent
MAX_RANKS: Final = max(case.n_ranks for case in DDP)
PARTS: Final = ("data_ms", "compute_sync_ms")
COLUMNS: Final = (
    "block",
    "order",
    "slug",
    "mode",
    "world_size",
    "batch",
    "global_batch",
    "slowest_rank",
    "slowest_step_ms",
    "samples_per_s",
    "rank_spread_ms",
    *(f"{part}_rank{rank}" for part in PARTS for rank in range(MAX_RANKS)),
    "final_loss",
    "crashed_before",
    "load_before",
)
REFERENCE: Final = "weak_ws4"


def values_of(_: Case, seen: Mapping[str, Any]) -> dict[str, Any]:
    """Gives what the table holds of a run: its figures, and the mean parts of each rank's steady steps."""
    row = {name: seen[name] for name in COLUMNS if name in seen}
    for one in seen["ranks"]:
        row[f"data_ms_rank{one['rank']}"] = one["data_mean_ms"]
        row[f"compute_sync_ms_rank{one['rank']}"] = one["compute_sync_mean_ms"]
    return row


def analysed(timings: Path, verdicts: Path) -> dict[str, Any]:
    """Gives what the tables say, as plain values."""
    rows = lab.read_rows(timings)
    cases = {case.slug: case for case in DDP}
    cells = [_cell(case, rows) for case in DDP]
    throughput = {slug: lab.sample(rows, case, "samples_per_s", unit="samples/s") for slug, case in cases.items()}
    faults = [slug for slug, case in cases.items() if case.category == "fault"]
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "blocks": len({row["block"] for row in rows}),
        "crashed_runs": sum(int(row["crashed_before"]) for row in (*rows, *lab.read_rows(verdicts))),
        "highest_load": max(float(row["load_before"]) for row in rows),
        "cells": cells,
        "scaling": {
            "weak": _efficiencies(cells, ("weak_ws1", "weak_ws2", REFERENCE)),
            "strong": _efficiencies(cells, ("strong_ws1", "strong_ws2", REFERENCE)),
        },
        "faults": [
            {"slug": slug, **lab.numbers(lab.change(throughput[REFERENCE], throughput[slug]))} for slug in faults
        ],
        "largest_loss_difference": _loss_difference(rows, [REFERENCE, *faults]),
        "verdicts": lab.verdicts(DDP, lab.read_rows(verdicts)),
    }


def _cell(case: Case, rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    spreads = {
        name: lab.spread(lab.of_case(rows, case, name))
        for name in ("slowest_step_ms", "samples_per_s", "rank_spread_ms")
    }
    ranks = {
        part: [lab.spread(lab.of_case(rows, case, f"{part}_rank{rank}")) for rank in range(case.n_ranks)]
        for part in PARTS
    }
    return {"slug": case.slug, "title": case.title, "world_size": case.n_ranks, **spreads, **ranks}


def _efficiencies(cells: Sequence[Mapping[str, Any]], slugs: Sequence[str]) -> list[dict[str, Any]]:
    """Gives throughput per rank against that of one rank."""
    by_slug = {cell["slug"]: cell for cell in cells}
    base = by_slug[slugs[0]]["samples_per_s"]["mean"]
    return [
        {
            "ranks": by_slug[slug]["world_size"],
            "samples_per_s": by_slug[slug]["samples_per_s"],
            "efficiency": by_slug[slug]["samples_per_s"]["mean"] / (base * by_slug[slug]["world_size"]),
        }
        for slug in slugs
    ]


def _loss_difference(rows: Sequence[Mapping[str, str]], slugs: Sequence[str]) -> float:
    losses = [float(row["final_loss"]) for row in rows if row["slug"] in slugs]
    return max(losses) - min(losses)


def results_text(results: Mapping[str, Any]) -> str:
    """Gives the results as Markdown."""
    lines = [f"### {results['blocks']} runs of each case, {results['cores']} cores", "", *_timings(results)]
    lines += ["### Faults against the healthy four ranks", "", *_faults(results)]
    lines += [
        "### What profkit says of captured runs",
        "",
        *lab.verdict_table(results["verdicts"]),
        _noise(results),
        "",
    ]
    return "\n".join(lines)


def _timings(results: Mapping[str, Any]) -> Iterable[str]:
    rows = []
    for cell in results["cells"]:
        data, work = ([one["mean"] for one in cell[part]] for part in PARTS)
        rows.append(
            (
                cell["title"],
                f"{cell['slowest_step_ms']['mean']:.1f}",
                f"{cell['samples_per_s']['mean']:,.0f}",
                f"{cell['samples_per_s']['lowest']:,.0f} to {cell['samples_per_s']['highest']:,.0f}",
                f"{cell['rank_spread_ms']['mean']:.1f}",
                " / ".join(f"{value:.1f}" for value in data),
                " / ".join(f"{value:.1f}" for value in work),
            )
        )
    heads = ("case", "slowest step, ms", "samples/s", "lowest to highest", "spread of ranks, ms")
    yield from lab.table((*heads, "data wait by rank, ms", "compute and sync by rank, ms"), rows)
    for name, points in results["scaling"].items():
        shown = ", ".join(f"{point['ranks']} ranks {100 * point['efficiency']:.0f} %" for point in points[1:])
        yield f"- Efficiency, {name} scaling: {shown}."
    yield ""


def _faults(results: Mapping[str, Any]) -> Iterable[str]:
    return lab.answers(DDP, results["faults"], ("fault", "throughput"), lambda row: f"{100 * row['effect']:+.1f} %")


def _noise(results: Mapping[str, Any]) -> str:
    difference = results["largest_loss_difference"]
    same = "equal to the six digits written" if difference == 0 else f"within {difference:.0e} of each other"
    return (
        f"The final losses of the healthy four ranks and of all faults are {same}: a fault changes when work is done,"
        f" not what. Highest load average before a run: {results['highest_load']:.1f}; runs that gloo aborted at their"
        f" end and that were made again: {results['crashed_runs']}."
    )


def main() -> None:
    """Runs the study and writes what it found."""
    parser = argparse.ArgumentParser(prog="python -m analyses.ddp.run", description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=3, help="runs of every case, 0 to keep timings.csv (3)")
    parser.add_argument(
        "--captures", type=int, default=3, help="captured runs of every case, 0 to keep verdicts.csv (3)"
    )
    parser.add_argument("--steps", type=int, default=12, help="training steps of a run, the first two untimed (12)")
    options = parser.parse_args()
    timings, verdicts = HERE / "timings.csv", HERE / "verdicts.csv"
    if options.blocks:
        rows = lab.measured(DDP, n_blocks=options.blocks, n_steps=options.steps, values=values_of)
        lab.write_rows(timings, COLUMNS, rows)
    if options.captures:
        lab.write_rows(verdicts, lab.VERDICT_COLUMNS, lab.judged(DDP, n_blocks=options.captures))
    results = analysed(timings, verdicts)
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for name, chart in charts.drawn(results).items():
        (HERE / name).write_text(chart, encoding="utf-8")
    put_between_marks(HERE / "README.md", results_text(results))
    print(results_text(results))


if __name__ == "__main__":
    main()
