"""What the labs on many ranks share: blocks of runs, their tables as CSV, and what these say of a case."""

from __future__ import annotations

import csv
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from analyses.rank_runs import captured, fingerprint, timed
from profkit.compare.stats.judge import Judgement, Sample, judge
from workloads.rank_cases import Case

Row = dict[str, Any]
VERDICT_COLUMNS: Final = (
    "block",
    "slug",
    "bottleneck",
    "confidence",
    "late",
    "findings",
    "against_truth",
    "headline",
    "crashed_before",
    "load_before",
)


def measured(
    cases: Sequence[Case], *, n_blocks: int, n_steps: int, values: Callable[[Case, Row], Row], seed: int = 0
) -> list[Row]:
    """Gives a row per uncaptured run: every case once in each block, in an order drawn anew.

    `values` gives what a table holds of a run. A slow minute of the machine falls on all cases of a block.
    """
    draw = random.Random(seed)  # noqa: S311 - an order of runs needs a seed, not a secret
    rows = []
    for block in range(n_blocks):
        for order, case in enumerate(draw.sample(cases, len(cases))):
            load = os.getloadavg()[0]
            seen, n_crashed = timed(case, n_steps=n_steps)
            run = {"block": block, "order": order, "slug": case.slug}
            rows.append({**run, **values(case, seen), "crashed_before": n_crashed, "load_before": load})
            step = f"{seen['slowest_step_ms']:8.2f} ms on rank {seen['slowest_rank']}"
            _tell(f"block {block}, {case.slug:14} {step}, load {load:.1f}")
    return rows


def judged(cases: Sequence[Case], *, n_blocks: int) -> list[Row]:
    """Gives a row per captured run: what profkit says of it, and how that differs from what is true of the case."""
    rows = []
    for block in range(n_blocks):
        for case in cases:
            load = os.getloadavg()[0]
            with tempfile.TemporaryDirectory(prefix="study-") as folder:
                report, n_crashed = captured(case, Path(folder) / "capture")
            said = fingerprint(report)
            wrong = said.against(case)
            rows.append(
                {
                    "block": block,
                    "slug": case.slug,
                    "bottleneck": said.bottleneck,
                    "confidence": said.confidence,
                    "late": "; ".join(f"rank {rank}: {phase}" for rank, phase in said.stragglers.items()),
                    "findings": "; ".join(said.findings),
                    "against_truth": wrong,
                    "headline": said.headline,
                    "crashed_before": n_crashed,
                    "load_before": load,
                }
            )
            _tell(f"block {block}, {case.slug:14} {said.bottleneck}, {wrong or 'as it is'}, load {load:.1f}")
    return rows


def _tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Writes rows as CSV, numbers to six digits: what differs beyond them is noise of the clock."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in rows:
            cells = [row.get(name, "") for name in columns]
            writer.writerow([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in cells])


def read_rows(path: Path) -> list[dict[str, str]]:
    """Gives the rows of a CSV as text by column."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def of_case(rows: Iterable[Mapping[str, str]], case: Case, column: str) -> tuple[float, ...]:
    """Gives a column of a case's runs in the order of blocks; runs that lack it are left out."""
    mine = sorted((row for row in rows if row["slug"] == case.slug), key=lambda row: int(row["block"]))
    return tuple(float(row[column]) for row in mine if row[column] != "")


def sample(rows: Iterable[Mapping[str, str]], case: Case, column: str, *, unit: str) -> Sample:
    """Gives a case's throughput for a comparison, its runs paired by block."""
    values = of_case(rows, case, column)
    return Sample(name=case.title, values=values, unit=unit, higher_is_better=True, blocks=tuple(range(len(values))))


def change(baseline: Sample, candidate: Sample) -> Judgement:
    """Gives by how much the candidate's throughput differs from the baseline's, with its interval."""
    return judge(baseline, candidate)


def numbers(judged: Judgement) -> dict[str, Any]:
    """Gives what a study publishes of a judgement: all but what the study says itself, of which samples it is."""
    about = ("metric", "unit", "higher_is_better", "baseline_mean", "candidate_mean", "is_comparable")
    return {name: value for name, value in msgspec.to_builtins(judged).items() if name not in about}


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Gives mean, lowest and highest of a case's runs."""
    return {"mean": statistics.fmean(values), "lowest": min(values), "highest": max(values), "n": len(values)}


def verdicts(cases: Sequence[Case], rows: Sequence[Mapping[str, str]]) -> list[Row]:
    """Gives per case how many captures were judged as it is, and what was said, each wording with its count."""
    out = []
    for case in cases:
        mine = [row for row in rows if row["slug"] == case.slug]
        said: dict[str, int] = {}
        for row in mine:
            late = f", {row['late']}" if row["late"] else ""
            said[f"{row['bottleneck']}{late}"] = said.get(f"{row['bottleneck']}{late}", 0) + 1
        out.append(
            {
                "slug": case.slug,
                "title": case.title,
                "truth": case.truth,
                "n": len(mine),
                "n_right": sum(not row["against_truth"] for row in mine),
                "said": said,
                "findings": sorted({item for row in mine for item in row["findings"].split("; ") if item}),
                "wrong": [row["against_truth"] for row in mine if row["against_truth"]],
            }
        )
    return out


def verdict_table(answers: Sequence[Row]) -> Iterable[str]:
    """Gives the verdicts as Markdown."""
    rows = [
        (
            answer["title"],
            f"{answer['n_right']} of {answer['n']}",
            "<br>".join(f"{text} ({count})" for text, count in answer["said"].items()),
            ", ".join(answer["findings"]),
            "<br>".join(answer["wrong"]),
        )
        for answer in answers
    ]
    return table(("case", "as it is", "verdict, late ranks (captures)", "all findings", "against the truth"), rows)


def answers(
    cases: Sequence[Case], changes: Iterable[Row], heads: tuple[str, str], shown: Callable[[Row], str]
) -> Iterable[str]:
    """Gives the table of what changed against a baseline: `shown` gives the effect, beside its interval and answer."""
    titles = {case.slug: case.title for case in cases}
    rows = []
    for change in changes:
        interval = change["interval"]
        between = "" if interval is None else f"{100 * interval[0]:+.1f} to {100 * interval[1]:+.1f} %"
        rows.append((titles[change["slug"]], shown(change), between, str(change["answer"])))
    yield from table((*heads, "95 %", "answer"), rows)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    """Gives a Markdown table."""
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
