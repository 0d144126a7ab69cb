"""Result tables for `compare`, `scaling` and `ladder`: CSV, TSV, JSON, what `profkit bench` writes."""

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


_RECIPES = [
    ["base", "bf16", "compile", "packing", "bf16_packing"],
    ["base", "bf16", "bf16+compile", "bf16+compile+packing", "packing"],
    ["1 base", "2 bf16", "10 packing"],
    ["fp32", "+bf16", "+compile"],
]


def _ladder(rng: random.Random) -> Rows:
    names = rng.choice(_RECIPES)
    heading = rng.choice(["rung", "category", "name"])
    rows: Rows = []
    for stage in range(rng.choice([1, 2])):
        for place, name in enumerate(names):
            for batch in rng.sample([2, 4, 8], rng.choice([1, 1, 3])):
                for block in range(rng.choice([1, 1, 3])):
                    speed = 1000 * (1 + place * rng.choice([0.4, 0.5, -0.1])) * batch**0.2 * (1 + 0.01 * rng.random())
                    row = {
                        heading: name,
                        "stage": stage,
                        "batch_size": batch,
                        "use_bucketing": rng.choice(["True", "False"]),
                        "real_tok_per_sec": round(speed, 3),
                        "vram_gb": 8 + place,
                        "pad_pct": rng.choice([0, 4.5, 12]),
                    }
                    rows.append({"block": block, **row} if rng.random() < 0.9 else row)
    return rows


def drawn_rows(rng: random.Random, command: str = "") -> Rows:
    """A table for a command, before anything is done to it that could make it none."""
    drawing = {"compare": _arms, "scaling": _scaling, "ladder": _ladder}
    rows = drawing[command or rng.choice([*drawing])](rng)
    for _ in range(rng.choice([0, 0, 1, 2, 4])):
        rng.choice(_READABLE)(rng, rows)
    return rows


_SPEEDS = [1e-12, 1e-6, 0.001, 0.5, 1, 1.0000001, 2, 3, 99.5, 100, 1e6, 1e9, 1e12, 1e15, 123456789.123456789]


def _odd_speeds(rng: random.Random, rows: Rows) -> None:
    key = rng.choice([key for key in rows[0] if key not in ("arm", "block", "order", "run", "gpus", "activation_ckpt")])
    same = rng.choice(_SPEEDS)
    few = rng.random() < 0.6
    for row in rng.sample(rows, min(len(rows), rng.choice([1, 2]))) if few else rows:
        row[key] = same if rng.random() < 0.6 else rng.choice(_SPEEDS)


def _odd_gpus(rng: random.Random, rows: Rows) -> None:
    counts = rng.choice([[1], [8], [1, 2, 3, 5, 7], [1, 10**9], [1024, 2048], [2, 4, 8], [1, 1, 1, 2]])
    for row in rows:
        row["gpus"] = rng.choice(counts)


def _more_columns(rng: random.Random, rows: Rows) -> None:
    name = rng.choice(
        [
            *("seq_len", "num_workers", "precision", "model", "loss", "tp", "wall_s", "step_ms", "held"),
            *("peak_memory_mb", "gpu_mem_total_gb", "tokens_per_step", "global_batch", "samples_per_sec_per_gpu"),
        ]
    )
    pool = rng.choice([["a", "b"], ["bf16"], [1, 2, 4], [0.5, 1e9], ["weak", "strong"], [4096], ["", "x"], [1]])
    for row in rows:
        row[name] = rng.choice(pool)


def _rows_changed(rng: random.Random, rows: Rows) -> None:
    how = rng.choice(["fewer", "one", "more", "shuffled", "one arm", "three arms", "failed"])
    if how == "fewer":
        del rows[rng.randrange(1, len(rows) + 1) :]
    elif how == "one":
        rows[:] = [rng.choice(rows)]
    elif how == "more":
        rows += [dict(row) for row in rows] * rng.choice([1, 10])
    elif how == "shuffled":
        rng.shuffle(rows)
    elif how == "failed":
        for row in rng.sample(rows, rng.randrange(1, len(rows) + 1)):
            row[[*row][-1]] = rng.choice(["oom", "", None, "nan", "failed"])
    for row in rows if how in ("one arm", "three arms") else []:
        row["arm"] = "A" if how == "one arm" else rng.choice("ABC")


_READABLE = [_odd_speeds, _odd_speeds, _odd_gpus, _more_columns, _rows_changed]


def file_of(rng: random.Random, rows: Rows) -> tuple[str, File, list[str]]:
    """A suffix, the table as a mutated file, and what was done to it."""
    how = rng.choice(["csv"] * 6 + ["tsv"] * 2 + ["json"] * 6 + ["lines"])
    done: list[str] = []
    if how in ("csv", "tsv"):
        heads = list(dict.fromkeys(key for row in rows for key in row))
        lines = [cells.joined(heads), *(cells.joined([str(row.get(key, "")) for key in heads]) for row in rows)]
        done = cells.mutated(rng, lines) if rng.random() < 0.35 else []
        if how == "tsv":
            lines = ["\t".join(cells.split(line)) for line in lines]
        file = File(body=Lines(lines))
    else:
        for _ in range(rng.choice([0, 0, 0, 1, 2])):
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


_FORMATS = [[], [], ["-f", "json"], ["-f", "json"], ["-f", "markdown"], ["-f", "html"]]


_ASKED = [
    ["-v"],
    ["--order", "base,bf16|compile,packing"],
    ["--series", ""],
    ["--rung", "batch_size"],
    ["--rung", "use_bucketing", "--series", "stage"],
    ["--metric", "vram_gb"],
    ["--margin", "0%"],
    ["--settings", "stage,vram_gb"],
]


def drawn(rng: random.Random) -> Case:
    """One table or two and what is asked of them."""
    fits = rng.choice(["compare", "scaling", "ladder"])
    suffix, file, done = file_of(rng, drawn_rows(rng, fits))
    files = {f"a{suffix}": file}
    if rng.random() < 0.3:
        other_suffix, other, more = file_of(rng, drawn_rows(rng, fits))
        files[f"b{other_suffix}"] = other
        done += more
    asked = []
    for _ in range(rng.choice([1, 1, 2])):
        options = list(rng.choice(_FORMATS))
        command = fits if rng.random() < 0.85 else rng.choice(["compare", "scaling", "ladder"])
        if command == "compare":
            options += rng.choice(
                [
                    [],
                    [],
                    [],
                    ["-v"],
                    ["--margin", "10%"],
                    ["--fail-on-regression", "3%"],
                    ["--metric", rng.choice(["metric", "gpus", "tokens_per_sec"])],
                ]
            )
        elif command == "ladder":
            options += rng.choice([[], [], [], *_ASKED])
        else:
            options += rng.choice(
                [[], [], [], ["--held", "weak"], ["--held", "strong"], ["--capacity", "16GB"], ["--metric", "gpus"]]
            )
        asked.append([command, *(list(files)[:1] if command == "ladder" else files), *options])
    if rng.random() < 0.01:
        files["a.csv"] = File(body=Special(rng.choice(["fifo", "link /dev/zero", "folder", "link nowhere"])))
        asked = [[asked[0][0], "a.csv", *asked[0][2:]]]
    return Case(kind="tables", files=files, commands=asked, done=done)
