"""Result tables for `compare` and `scaling`: CSV, TSV, JSON, what `profkit bench` writes."""

from __future__ import annotations

import random
from typing import Any

from tests.fuzz import cells, damage, values
from tests.fuzz.documents import Case, File, Json, Lines, Special

Rows = list[dict[str, Any]]


def _arms(rng: random.Random) -> Rows:
    metric = rng.choice(["metric", "cost", "tokens_per_sec", "step_ms", "wall_s"])
    spread = rng.choice([0, 0.01, 0.2])
    rows: Rows = []
    for block in range(rng.choice([1, 3, 5, 8])):
        for place, arm in enumerate("AB"):
            value = 100 * (1 + 0.05 * place) * (1 + spread * (rng.random() - 0.5))
            rows.append({"block": block, "order": place, "arm": arm, metric: round(value, 4), "exit_code": 0})
    return rows


def _scaling(rng: random.Random) -> Rows:
    efficiency = rng.choice([1.0, 0.9, 0.6, 1.3])
    rows: Rows = []
    for gpus in (1, 2, 4, 8):
        for run in range(rng.choice([1, 3])):
            speed = 1000 * gpus * efficiency ** (gpus > 1) * (1 + 0.01 * rng.random())
            row = {
                "gpus": gpus,
                "run": run,
                "per_gpu_batch": 4,
                "grad_accum": 2,
                "tokens_per_sec": round(speed, 3),
                "peak_mem_gb": 60,
                "capacity_gb": 80,
            }
            rows.append(row | {"activation_ckpt": rng.choice(["on", "off"])} if rng.random() < 0.3 else row)
    return rows


def drawn_rows(rng: random.Random) -> Rows:
    """A table before anything is done to it."""
    return rng.choice([_arms, _scaling])(rng)


def file_of(rng: random.Random, rows: Rows) -> tuple[str, File, list[str]]:
    """A suffix, the table as a mutated file, and what was done to it."""
    how = rng.choice(["csv", "csv", "csv", "tsv", "json", "json", "lines"])
    done: list[str] = []
    if how in ("csv", "tsv"):
        heads = list(dict.fromkeys(key for row in rows for key in row))
        lines = [cells.joined(heads), *(cells.joined([str(row.get(key, "")) for key in heads]) for row in rows)]
        done = cells.mutated(rng, lines)
        if how == "tsv":
            lines = ["\t".join(cells.split(line)) for line in lines]
        file = File(body=Lines(lines))
    else:
        for _ in range(rng.choice([0, 1, 2, 4])):
            row = rng.choice(rows)
            key = rng.choice([*row])
            if rng.random() < 0.15:
                row[values.name(rng, key)] = row.pop(key)
            elif rng.random() < 0.3:
                new = values.instead_of(row[key], rng)
                for other in rows:
                    other[key] = new
            else:
                row[key] = values.instead_of(row[key], rng)
        document: Any = (
            rows if rng.random() < 0.5 or how == "lines" else {rng.choice(["rows", "runs", "results"]): rows}
        )
        file = File(body=Json(document, layout="lines" if how == "lines" else "compact"))
    if rng.random() < 0.08:
        file.inner.append(damage.drawn(rng))
        done.append(file.inner[0].what)
    return {"lines": ".jsonl"}.get(how, f".{how}"), file, done


_FORMATS = [[], [], ["-f", "json"], ["-f", "json"], ["-f", "markdown"]]


def drawn(rng: random.Random) -> Case:
    """One table or two and what is asked of them."""
    suffix, file, done = file_of(rng, drawn_rows(rng))
    files = {f"a{suffix}": file}
    if rng.random() < 0.35:
        other_suffix, other, more = file_of(rng, drawn_rows(rng))
        files[f"b{other_suffix}"] = other
        done += more
    asked = []
    for _ in range(rng.choice([1, 1, 2])):
        options = list(rng.choice(_FORMATS))
        command = rng.choice(["compare", "scaling"])
        if command == "compare":
            options += rng.choice(
                [
                    [],
                    [],
                    [],
                    ["-v"],
                    ["--margin", "10%"],
                    ["--fail-on-regression", "3%"],
                    ["--metric", "metric"],
                    ["--metric", "gpus"],
                ]
            )
        else:
            options += rng.choice(
                [[], [], [], ["--held", "weak"], ["--held", "strong"], ["--capacity", "16GB"], ["--metric", "gpus"]]
            )
        asked.append([command, *files, *options])
    if rng.random() < 0.01:
        files["a.csv"] = File(body=Special(rng.choice(["fifo", "link /dev/zero", "folder", "link nowhere"])))
        asked = [[asked[0][0], "a.csv", *asked[0][2:]]]
    return Case(kind="tables", files=files, commands=asked, done=done)
