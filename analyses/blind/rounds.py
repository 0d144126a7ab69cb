"""A blind round on disk: programs and their truth, times without a profiler, what profkit said, how a reader scored it.

round_1/gat_citations/slow.py, healthy.py, truth.toml    by a writer who knows no rule of profkit
round_1/timings.jsonl                                    written before profkit is asked
round_1/looks.jsonl                                      first looks, and later ones told apart; only appended to
round_1/judged.toml                                      by a reader of reports and truths who wrote no rule
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, Final

import msgspec

HERE: Final = Path(__file__).resolve().parent
SLOW, HEALTHY = "slow", "healthy"
SIDES: Final = (SLOW, HEALTHY)
FIRST, SEEN = "first", "seen"


class Truth(msgspec.Struct, frozen=True, kw_only=True, rename={"true_class": "class"}):
    """What the writer of a program knows of its fault; `true_class` is "none" of a decoy, which costs nothing."""

    kind: str
    fault: str
    true_class: str
    right_if_it_says: str
    line: tuple[str, ...]
    fix: str
    expected_gain_percent: float


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of both twins without a profiler, one after the other: s of the training loop, and its steps."""

    name: str
    slow_s: float
    healthy_s: float
    steps: int
    load: float
    """Of the machine before the turn."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A finding as a report has it; gains are shares of the step (0-1)."""

    id: str
    title: str
    about: float
    at_most: float


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What profkit answered of one program, once."""

    look: str
    name: str
    side: str
    date: str
    commit: str
    exit_code: int
    bottleneck: str = ""
    confidence: float = 0.0
    headline: str = ""
    findings: tuple[Found, ...] = ()
    screen: str = ""
    """What the terminal shows."""
    loop_s: float = 0.0
    """The training loop's time beneath `profkit run`; 0 where it did not come to its end."""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """How a reader scored the first look at a program."""

    name: str
    score: str
    """"right", "partly" or "wrong"; "open" where the report says that it cannot tell."""
    finding: str = ""
    """The id of the first finding that names the fault; "" where none does."""
    alarm: bool = False
    """Whether the report of the twin blames something whose removal would gain less than 3 %."""
    why: str = ""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a round; `timings`, `looks` and `scores` are empty before their time."""

    number: int
    truths: dict[str, Truth]
    timings: dict[str, list[Timing]]
    looks: list[Look]
    scores: dict[str, Score]
    note: str = ""

    def gain(self, name: str) -> float | None:
        """The share of the loop (0-1) that removal of the fault saved, the median of all turns; None before timing."""
        turns = self.timings.get(name, [])
        return statistics.median(1 - one.healthy_s / one.slow_s for one in turns) if turns else None

    def first(self, name: str, side: str) -> Look | None:
        """The first look at a program."""
        return next((one for one in self.looks if (one.look, one.name, one.side) == (FIRST, name, side)), None)


def folder_of(number: int) -> Path:
    """Where a round lies."""
    return HERE / f"round_{number}"


def read_round(number: int) -> Round:
    """Reads a round; raises `FileNotFoundError` where there is none."""
    folder = folder_of(number)
    names = sorted(path.parent.name for path in folder.glob("*/truth.toml"))
    if not names:
        raise FileNotFoundError(f"no programs in {folder.name}")
    timings: dict[str, list[Timing]] = {}
    for one in rows_of(folder / "timings.jsonl", Timing):
        timings.setdefault(one.name, []).append(one)
    judged, note = folder / "judged.toml", folder / "note.md"
    scores = msgspec.toml.decode(judged.read_bytes(), type=dict[str, list[Score]])["score"] if judged.exists() else []
    return Round(
        number=number,
        truths={name: msgspec.toml.decode((folder / name / "truth.toml").read_bytes(), type=Truth) for name in names},
        timings=timings,
        looks=list(rows_of(folder / "looks.jsonl", Look)),
        scores={one.name: one for one in scores},
        note=note.read_text(encoding="utf-8").strip() if note.exists() else "",
    )


def rounds() -> list[Round]:
    """All rounds, in the order of their numbers."""
    numbers = sorted(int(path.name.removeprefix("round_")) for path in HERE.glob("round_*") if path.is_dir())
    return [read_round(number) for number in numbers]


def append(path: Path, row: Any) -> None:
    """Adds a row to a file of timings or of looks."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(row) + b"\n")


def rows_of(path: Path, kind: type[Any]) -> list[Any]:
    """The rows of a file that `append` writes; none where it is not there."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=kind) for line in lines]
