"""Several files at once: ranks of a job, two sides of a comparison, a second tool beside a trace."""

import copy
import json
import random
from dataclasses import replace
from functools import cache
from typing import Any

from profkit.testing import to_json
from tests.fuzz import bases, cells, damage, events, sql, values
from tests.fuzz.bases import Trace
from tests.fuzz.documents import Blob, Case, File, Json, Lines, Secret, Special, Sql
from tests.fuzz.kinds import kineto, ncu, nsys, tables
from tests.handover.jobs import BLOCK, GEMM, NCCL, Job, Launch, exported


def special(rng: random.Random) -> Special:
    """What is no file, where a file is expected."""
    return Special(
        rng.choice(["fifo", "folder", "link /dev/zero", "link nowhere", "link .", "link /dev/stdin", "socket"])
    )


_RANK_FORMATS = [
    *(
        ["-f", "json"],
        ["-f", "json"],
        [],
        ["-v"],
        ["-f", "markdown"],
        ["-f", "html"],
        ["-f", "agent"],
        ["-f", "github"],
    ),
    *(["-f", "sarif"], ["--fail-on", "low"], ["--lenient"], ["--strict"], ["--no-cache"]),
]


def _identity(rng: random.Random, ranks: list[Trace]) -> str:
    """Who the ranks say they are: numbers, world, clocks, groups."""
    how = rng.choice(["rank", "world", "clock", "clock", "same rank", "no rank", "groups", "host"])
    chosen = rng.sample(ranks, rng.choice([1, 1, len(ranks)]))
    value = values.number(rng)
    for top in chosen:
        told = top.get("distributedInfo")
        told = told if isinstance(told, dict) else {}
        if how == "rank":
            told["rank"] = value
            top["profkit_rank"] = value
        elif how == "world":
            told["world_size"] = value
            top["profkit_world_size"] = value
        elif how == "clock":
            base = top.get("baseTimeNanoseconds", 0)
            by = rng.choice([1, 10**6, 10**9, 10**12, 10**15, 10**18, -(10**18), 2**62])
            top["baseTimeNanoseconds"] = value if rng.random() < 0.4 else (base if isinstance(base, int) else 0) + by
        elif how == "same rank":
            told["rank"] = 0
        elif how == "no rank":
            top.pop("distributedInfo", None)
            top.pop("profkit_rank", None)
        elif how == "host":
            top["host_name"] = values.name(rng, "node")
        else:
            told["pg_config"] = events._inside(told.get("pg_config", [{"pg_name": "0", "ranks": [0, 1]}]), rng)
        if told and how != "no rank":
            top["distributedInfo"] = told
    return how


def drawn_ranks(rng: random.Random) -> Case:
    """A folder of ranks, some of them mutated."""
    ranks = bases.drawn_job(rng)
    done = []
    secrets: list[Secret] = []
    if rng.random() < 0.5:
        done.append(_identity(rng, ranks))
    if rng.random() < 0.75:
        for top in rng.sample(ranks, rng.choice([1, 1, 1, len(ranks)])):
            done += events.mutated(rng, top, n=rng.choice([1, 1, 2, 4]))
    if rng.random() < 0.08:
        secrets.append(events.with_secret(rng, rng.choice(ranks)))
    files: dict[str, File] = {}
    for number, top in enumerate(ranks):
        file, damaged = kineto.file_of(rng, top, damaged=0.04)
        done += damaged
        stem = rng.choice(["rank{}", "rank{}", "rank{}", "trace{}", "node/rank{}", "rank0{}"]).format(number)
        files[f"job/{stem}{kineto.SUFFIXES.get(file.packing, '.json.gz')}"] = file
    if rng.random() < 0.02:
        files[rng.choice(["job/capture.json", "job/rank8.json", "job/x.sqlite", "job/x.sqlite-wal"])] = File(
            body=special(rng)
        )
        done.append("a special file")
    if rng.random() < 0.1 and len(files) > 1:
        files.pop(rng.choice([*files]))
        done.append("a rank is missing")
    if rng.random() < 0.1:
        more = rng.choice([*files])
        files[f"job/copy_{more.rpartition('/')[2]}"] = files[more]
        done.append("a rank twice")
    if rng.random() < 0.1:
        files["job/rank9.json"] = File(
            body=Blob(rng.choice([b"", b"{", b"x", b"[]", b"\x1f\x8b", b'{"traceEvents": []}']))
        )
        done.append("no trace")
    if rng.random() < 0.15:
        files["job/capture.json"] = File(body=Json(_manifest(rng), layout="compact"))
        done.append("capture.json")
    asked = [["triage", "job", *rng.choice(_RANK_FORMATS)] for _ in range(rng.choice([1, 1, 1, 2]))]
    if rng.random() < 0.05:
        asked = [["triage", "job", "--cache", "kept", "-f", "json"]] * 2  # written, then read
    if rng.random() < 0.1:
        asked = [["scaling", "job", *rng.choice([[], ["-f", "json"], ["-f", "html"]])]]
    return Case(kind="ranks", files=files, commands=asked, secrets=secrets, done=done)


def _manifest(rng: random.Random) -> dict[str, Any]:
    found = bases.capture_json(rng)
    for _ in range(rng.choice([0, 1, 2, 4])):
        changed = events._inside(found, rng)
        found = changed if isinstance(changed, dict) else found
    return found


_STEP = (
    *BLOCK,
    Launch("flash_fwd_kernel", 60),
    Launch(NCCL, 90, (24, 1, 1), (512, 1, 1), stream=20),
    Launch(GEMM, 100),
)
_VARIANTS = {
    "base": Job(n_steps=4, launches=_STEP),
    "exposed": Job(n_steps=4, launches=tuple(replace(one, stream=7) for one in _STEP)),
    "more channels": Job(
        n_steps=4, launches=tuple(replace(one, us=one.us * 13 // 10, grid=(48, 1, 1)) for one in _STEP)
    ),
    "fp32": Job(
        n_steps=4,
        launches=tuple(replace(one, name="ampere_sgemm_128x64_tn") if one.name == GEMM else one for one in _STEP),
    ),
    "compiled": Job(n_steps=4, launches=(*_STEP[4:], Launch("triton_poi_fused_add_0", 12), Launch(GEMM, 120))),
    "casts": Job(n_steps=4, launches=(*_STEP, *(Launch("void at::native::bfloat16_copy_kernel_cuda", 5),) * 4)),
    "slower": Job(n_steps=4, launches=_STEP, stretch=1.2),
    "host": Job(n_steps=4, launches=_STEP, host_us=60),
    "loader": Job(n_steps=6, launches=_STEP, wait="enumerate(DataLoader)#x.__next__", wait_us=700),
}
"""Versions of one job, for two sides of a comparison."""


@cache
def _version(name: str) -> bytes:
    return to_json(_VARIANTS[name].rows(), metadata=bases.HEAD)


_COMPARE = [
    *(["-f", "json"], ["-f", "json"], [], ["-v"], ["-f", "markdown"], ["-f", "html"], ["-f", "agent"], ["--lenient"]),
    *(["--fail-on-regression", "3%"], ["-v", "-f", "markdown"]),
]


def drawn_pair(rng: random.Random) -> Case:
    """Two sides: traces, folders with a manifest, or a table against a trace."""
    done: list[str] = []
    files: dict[str, File] = {}
    secrets: list[Secret] = []
    paths = []
    first = bases.drawn_trace(rng)
    versions = (
        [json.loads(_version(name)) for name in rng.choices(sorted(_VARIANTS), k=2)] if rng.random() < 0.45 else []
    )
    alike = rng.random() < 0.7
    for side in "ab":
        if rng.random() < 0.15:
            more = _ranks_of_a_side(rng, side, files)
            paths.append(side)
            done += more
            continue
        if rng.random() < 0.04:
            suffix, file, more = tables.file_of(rng, tables.drawn_rows(rng))
            path = f"{side}{suffix}"
        else:
            same = first if alike else bases.drawn_trace(rng)
            top = versions.pop() if versions else copy.deepcopy(same)
            more = events.mutated(rng, top, n=rng.choice([0, 1, 1, 2, 4]))
            if rng.random() < 0.06:
                secrets.append(events.with_secret(rng, top))
            file, damaged = kineto.file_of(rng, top, damaged=0.04)
            more += damaged
            path = f"{side}{kineto.SUFFIXES.get(file.packing, '.json.gz')}"
            if rng.random() < 0.2:
                path = f"{side}/rank0.pt.trace.json"
                file.packing = ""
                files[f"{side}/capture.json"] = File(body=Json(_named(_manifest(rng)), layout="compact"))
        files[path] = file
        paths.append(path.partition("/")[0])
        done += more
    asked = [["compare", *paths, *rng.choice(_COMPARE)]]
    if rng.random() < 0.1:
        asked = [["scaling", *paths, *rng.choice([[], ["-f", "json"], ["-f", "html"], ["--held", "strong"]])]]
    if rng.random() < 0.1:
        asked = [["compare", "--baseline", *paths, *paths, "--candidate", *paths[::-1], *paths, "-f", "json"]]
    return Case(kind="compare", files=files, commands=asked, secrets=secrets, done=done)


def _ranks_of_a_side(rng: random.Random, side: str, files: dict[str, File]) -> list[str]:
    """Put two ranks of a job into a folder; gives what was done to them."""
    done = []
    for rank, top in enumerate(bases.drawn_job(rng)[:2]):
        done += events.mutated(rng, top, n=rng.choice([0, 0, 1, 2]))
        files[f"{side}/rank{rank}.json"] = File(body=Json(top))
    return done


def _named(manifest: dict[str, Any]) -> dict[str, Any]:
    ranks = manifest.get("ranks")
    for rank in ranks if isinstance(ranks, list) else []:
        if isinstance(rank, dict):
            rank["trace"] = "rank0.pt.trace.json"
    return manifest


_SHORT = (*BLOCK, Launch("ampere_sgemm_128x64_tn", 40))
_DEVICE = bases.HEAD["deviceProperties"][0]["name"]
_HANDED = {
    "busy": Job(n_steps=4, launches=_SHORT, device=_DEVICE),
    "host": Job(n_steps=4, launches=_SHORT, host_us=70, call_us=9, device=_DEVICE),
    "loader": Job(n_steps=4, launches=_SHORT, wait="enumerate(DataLoader)#x.__next__", wait_us=900, device=_DEVICE),
    "sync": Job(n_steps=5, launches=_SHORT[:3], wait_us=500, jitter_us=90, device=_DEVICE),
    "busy, slower": Job(n_steps=4, launches=_SHORT, device=_DEVICE, stretch=1.3),
}
"""Jobs that two tools see: what limits each."""


@cache
def _handed(name: str) -> bytes:
    return to_json(_HANDED[name].rows(), metadata=bases.HEAD)


@cache
def _export(name: str) -> sql.Statements:
    return nsys.statements_of(exported(_HANDED[name].trace()))


def _pages(rng: random.Random) -> list[str]:
    """ncu's details of some of the kernels of those jobs."""
    lines: list[str] = []
    for number, one in enumerate(rng.sample(_SHORT, rng.choice([1, 2, 5]))):
        grid, block = ("(" + ", ".join(map(str, size)) + ")" for size in (one.grid, one.block))
        page = ncu.details(rng, [one.name])
        lines += [line for line in page if number == 0 or line[:1] != '"' or "Kernel Name" not in line]
        lines = [line.replace('"(2048, 2, 1)"', f'"{grid}"').replace('"(128, 1, 1)"', f'"{block}"') for line in lines]
    return lines


def drawn_handover(rng: random.Random) -> Case:
    """A trace, an export of the same job and ncu's pages, each mutated or not."""
    done: list[str] = []
    name = rng.choice(sorted(_HANDED))
    top: Trace = json.loads(_handed(name))
    if rng.random() < 0.15:
        name = rng.choice(sorted(_HANDED))
    statements = list(_export(name))
    if rng.random() < 0.6:
        done += events.mutated(rng, top, n=rng.choice([1, 1, 2]))
    files: dict[str, File] = {}
    file, damaged = kineto.file_of(rng, top, damaged=0.03)
    files["trace" + kineto.SUFFIXES.get(file.packing, ".json.gz")] = file
    done += damaged
    if rng.random() < 0.75:
        if rng.random() < 0.6:
            done += sql.mutated(rng, statements)
        body = File(body=Sql(statements))
        if rng.random() < 0.05:
            body.inner.append(damage.drawn(rng))
        files["report.sqlite"] = body
    if rng.random() < 0.5:
        lines = _pages(rng)
        if rng.random() < 0.6:
            done += cells.mutated(rng, lines)
        files["kernels.csv"] = File(body=Lines(lines))
    if rng.random() < 0.05:
        files["more.json"] = kineto.file_of(rng, bases.drawn_trace(rng))[0]
    paths = [*files]
    rng.shuffle(paths)
    shown = rng.choice([["-f", "json"], ["-f", "json"], [], ["-v"], ["-f", "markdown"], ["-f", "html"]])
    asked = [["triage", *paths, *shown]]
    return Case(kind="handover", files=files, commands=asked, done=done)
