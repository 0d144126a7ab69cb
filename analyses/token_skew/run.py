"""Sequences of unequal length under DDP: what five ways of batching cost, in padding and in unequal ranks.

    python -m analyses.token_skew.run                            all of it: about seven minutes on two busy cores
    python -m analyses.token_skew.run --blocks 0 --captures 0    from the committed tables, in a second

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
from analyses.fsdp_scaling.tables import put_between_marks
from analyses.svg import Axes, Point, Series, bar_chart
from workloads.rank_cases import TOKEN_SKEW, Case

HERE: Final = Path(__file__).resolve().parent
FIGURES: Final = (
    "slowest_step_ms",
    "useful_tokens_per_s",
    "padded_tokens_per_s",
    "padding_fraction",
    "token_spread",
    "padded_token_spread",
    "rank_spread_ms",
)
COLUMNS: Final = (
    "block",
    "order",
    "slug",
    "strategy",
    "world_size",
    "batch",
    "max_tokens",
    "slowest_rank",
    *FIGURES,
    "step_p50_ms",
    "step_p95_ms",
    "crashed_before",
    "load_before",
)
REFERENCE: Final = "fixed_count_ws4"
RANGE: Final = "bars: lowest and highest run"


def values_of(_: Case, seen: Mapping[str, Any]) -> dict[str, Any]:
    """Gives what the table holds of a run."""
    return {name: seen[name] for name in COLUMNS if name in seen}


def analysed(timings: Path, verdicts: Path) -> dict[str, Any]:
    """Gives what the tables say, as plain values."""
    rows = lab.read_rows(timings)
    samples = {case.slug: lab.sample(rows, case, "useful_tokens_per_s", unit="tokens/s") for case in TOKEN_SKEW}
    others = [case.slug for case in TOKEN_SKEW if case.n_ranks == 4 and case.slug != REFERENCE]
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "blocks": len({row["block"] for row in rows}),
        "crashed_runs": sum(int(row["crashed_before"]) for row in (*rows, *lab.read_rows(verdicts))),
        "highest_load": max(float(row["load_before"]) for row in rows),
        "cells": [
            {
                "slug": case.slug,
                "title": case.title,
                "world_size": case.n_ranks,
                **{name: lab.spread(lab.of_case(rows, case, name)) for name in FIGURES},
            }
            for case in TOKEN_SKEW
        ],
        "changes": [{"slug": slug, **lab.numbers(lab.change(samples[REFERENCE], samples[slug]))} for slug in others],
        "verdicts": lab.verdicts(TOKEN_SKEW, lab.read_rows(verdicts)),
    }


def results_text(results: Mapping[str, Any]) -> str:
    """Gives the results as Markdown."""
    lines = [f"### {results['blocks']} runs of each strategy, {results['cores']} cores", "", *_timings(results)]
    lines += ["### Useful tokens per second against the fixed count", "", *_changes(results)]
    lines += ["### What profkit says of captured runs", "", *lab.verdict_table(results["verdicts"])]
    crashed = f"runs that gloo aborted at their end and that were made again: {results['crashed_runs']}"
    lines += [f"Highest load average before a run: {results['highest_load']:.1f}; {crashed}.", ""]
    return "\n".join(lines)


def _timings(results: Mapping[str, Any]) -> Iterable[str]:
    rows = []
    for cell in results["cells"]:
        mean = {name: cell[name]["mean"] for name in FIGURES}
        useful = cell["useful_tokens_per_s"]
        rows.append(
            (
                cell["title"],
                f"{mean['slowest_step_ms']:.1f}",
                f"{mean['useful_tokens_per_s']:,.0f}",
                f"{useful['lowest']:,.0f} to {useful['highest']:,.0f}",
                f"{100 * mean['padding_fraction']:.1f} %",
                f"{mean['token_spread']:.0f} / {mean['padded_token_spread']:.0f}",
                f"{mean['rank_spread_ms']:.1f}",
            )
        )
    heads = ("strategy", "slowest step, ms", "useful tokens/s", "lowest to highest", "padding")
    yield from lab.table((*heads, "spread of useful / padded tokens", "spread of ranks, ms"), rows)


def _changes(results: Mapping[str, Any]) -> Iterable[str]:
    heads = ("strategy", "useful tokens/s")
    return lab.answers(TOKEN_SKEW, results["changes"], heads, lambda row: f"{row['ratio']:.2f}x")


def charts(results: Mapping[str, Any]) -> dict[str, str]:
    """Gives the charts by file name."""
    cells = [cell for cell in results["cells"] if cell["world_size"] == 4]
    names = [cell["title"] for cell in cells]

    def bars(name: str, column: str, factor: float = 1.0) -> Series:
        points = []
        for place, cell in enumerate(cells):
            ends = {end: factor * cell[column][end] for end in ("lowest", "highest")}
            points.append(Point(x=place, y=factor * cell[column]["mean"], low=ends["lowest"], high=ends["highest"]))
        return Series(name=name, points=tuple(points))

    cores = f"4 ranks on {results['cores']} cores"
    return {
        "throughput.svg": bar_chart(
            names,
            [bars("useful", "useful_tokens_per_s"), bars("with padding", "padded_tokens_per_s")],
            Axes(title=f"Tokens per second, {cores}", x_label=RANGE, y_label="tokens/s"),
        ),
        "spread.svg": bar_chart(
            names,
            [bars("useful tokens", "token_spread"), bars("with padding", "padded_token_spread")],
            Axes(
                title="Spread over ranks in a step", x_label="largest less smallest, mean over steps", y_label="tokens"
            ),
        ),
        "padding.svg": bar_chart(
            names,
            [bars("padding", "padding_fraction", 100.0)],
            Axes(title="Padding", x_label="of all tokens computed", y_label="%"),
        ),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the study and writes what it found."""
    parser = argparse.ArgumentParser(prog="python -m analyses.token_skew.run", description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=3, help="runs of every case, 0 to keep timings.csv (3)")
    parser.add_argument(
        "--captures", type=int, default=3, help="captured runs of every case, 0 to keep verdicts.csv (3)"
    )
    parser.add_argument("--steps", type=int, default=24, help="training steps of a run, the first two untimed (24)")
    options = parser.parse_args(arguments)
    timings, verdicts = HERE / "timings.csv", HERE / "verdicts.csv"
    if options.blocks:
        rows = lab.measured(TOKEN_SKEW, n_blocks=options.blocks, n_steps=options.steps, values=values_of)
        lab.write_rows(timings, COLUMNS, rows)
    if options.captures:
        rows = lab.judged(TOKEN_SKEW, n_blocks=options.captures)
        lab.write_rows(verdicts, lab.VERDICT_COLUMNS, rows)
    results = analysed(timings, verdicts)
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for name, chart in charts(results).items():
        (HERE / name).write_text(chart, encoding="utf-8")
    put_between_marks(HERE / "README.md", results_text(results))
    print(results_text(results))


if __name__ == "__main__":
    main()
