"""Traces of torch.profiler, one at a time."""

import random

from tests.fuzz import bases, damage, events
from tests.fuzz.bases import Trace
from tests.fuzz.documents import PACKINGS, Case, File, Json

SUFFIXES = {"": ".json", "gz": ".json.gz"}
_COMMANDS = [
    (6, ["triage"]), (6, ["triage", "-f", "json"]), (4, ["triage", "-f", "markdown"]), (4, ["triage", "-f", "html"]), (5, ["triage", "-v"]), (2, ["info"]),
    (2, ["info", "-f", "json"]), (2, ["triage", "--lenient"]), (2, ["triage", "--lenient", "-f", "json"]),
    (1, ["triage", "-v", "--color"]), (1, ["triage", "--steps", "1:3"]), (1, ["triage", "-o", "out.md"]), (1, ["info", "--lenient"]),
    (1, ["triage", "--steps", "0:1", "-f", "json"]), (1, ["triage", "--command", "python my.py", "-f", "json"]), (1, ["triage", "--fail-on", "high"]),
    (1, ["export", "-o", "out.json.gz"]), (1, ["export", "--lenient", "-o", "out.json"]), (1, ["export", "--steps", "0:1", "-o", "out.csv"]),
    (1, ["export", "--around", "step:0", "-o", "out.json"]), (1, ["export", "-o", "out.speedscope.json"]),
    (1, ["ncu", "--dry-run", "--from"]), (1, ["ncu", "--dry-run", "--from", "PATHS", "--", "python", "t.py"]),
]  # fmt: skip


def commands(rng: random.Random, *paths: str) -> list[list[str]]:
    """One or two commands on paths; at times the same twice, or strict and lenient."""
    weights = [weight for weight, _ in _COMMANDS]
    chosen = rng.choices([words for _, words in _COMMANDS], weights, k=rng.choice([1, 1, 1, 2]))
    asked = [_with_paths(words, paths) for words in chosen]
    roll = rng.random()
    if roll < 0.02:
        return [asked[0], list(asked[0])]
    if roll < 0.05 and asked[0][0] in ("triage", "info") and "--lenient" not in asked[0]:
        return [asked[0], [asked[0][0], "--lenient", *asked[0][1:]]]
    return asked


def _with_paths(words: list[str], paths: tuple[str, ...]) -> list[str]:
    if "PATHS" not in words:
        return [*words, *paths]
    return [one for word in words for one in (paths if word == "PATHS" else (word,))]


def file_of(rng: random.Random, top: Trace, *, damaged: float = 0.1) -> tuple[File, list[str]]:
    """A trace as a file: layout, packing and, at times, damage to its bytes."""
    layout = rng.choice(["kineto"] * 7 + ["broken", "compact", "compact", "indented", "spaced", "spaced"])
    value = top["traceEvents"] if layout not in ("kineto", "broken") and rng.random() < 0.1 else top
    file = File(body=Json(value, layout=layout, is_ascii=rng.random() < 0.7))
    done = []
    if rng.random() < 0.25:
        file.packing = "gz" if rng.random() < 0.7 else rng.choice([*PACKINGS])
    if rng.random() < damaged:
        where = file.outer if file.packing and rng.random() < 0.5 else file.inner
        where.extend(damage.drawn(rng) for _ in range(rng.choice([1, 1, 2])))
        done = [one.what for one in where]
    return file, done


def named(rng: random.Random, file: File, stem: str = "trace") -> str:
    """A name for a trace's file, odd at times."""
    if rng.random() < 0.06:
        stem = rng.choice(
            [
                *("a b", "-t", "t;touch PWN", "$(touch PWN)", "t\x1b[31m", "t\nx", "ü", "t'q", 't"q', "t[1]"),
                *("*", "`id`", "rank3", "rank-1", "rank" + "9" * 30, "~", "#t", "@t", "t|u", "\u202et"),
                "x" * 180,
            ]
        )
    return stem + SUFFIXES.get(file.packing, ".json.gz")


def drawn(rng: random.Random) -> Case:
    """One trace and what is asked of it."""
    top = bases.drawn_trace(rng)
    done = events.mutated(rng, top)
    secrets = [events.with_secret(rng, top)] if rng.random() < 0.12 else []
    file, damaged = file_of(rng, top)
    name = named(rng, file)
    path = f"./{name}" if name.startswith("-") else name
    asked = commands(rng, path)
    if rng.random() < 0.03:
        asked = [["triage", "--lenient", path], ["info", "--lenient", path]]
    return Case(kind="kineto", files={name: file}, commands=asked, secrets=secrets, done=done + damaged)
