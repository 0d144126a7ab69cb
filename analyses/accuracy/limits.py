"""Choose the shares at which a verdict on a CPU changes, each family by what is best for the others.

    python -m analyses.accuracy.limits [results.jsonl] [--recordings out/accuracy]

Needs the recordings that `analyses.accuracy.run --keep` leaves. Each is analysed once, then judged under every setting.
Writes limits.json beside the results, from which the page is made, and answers/before.jsonl: what profkit would say
without the limits and ceilings that it has for CPUs.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

import msgspec
from msgspec.structs import replace

from analyses.accuracy import score
from analyses.accuracy.again import RECORDINGS, TOOL, judged, recording_of, refreshed, write_rows
from analyses.accuracy.cell import CellResult, Said
from analyses.accuracy.results import ANSWERS, RESULTS, Answer, read_rows
from profkit import pipeline
from profkit.findings.host import LAUNCH_BOUND
from profkit.model.documents.report import Verdict
from profkit.ranks.findings import overall
from profkit.verdict import case as limits_of
from profkit.verdict import on_cpu
from profkit.verdict.case import Case
from profkit.verdict.decide import decide

LIMITS: Final = "limits.json"
_ALARM: Final = 1.0
"""What a false alarm costs, in wrong verdicts, beside being one. Chosen: who is sent after nothing trusts nothing."""


class Setting(msgspec.Struct, frozen=True, order=True):
    """Shares of the window (0-1) on a CPU: overhead that is usual, a dominant cause, nearly all of it work."""

    usual: float
    dominant: float
    work: float


IN_USE: Final = Setting(LAUNCH_BOUND.limit("usual"), limits_of.DOMINANT_ON_CPU, limits_of.NEARLY_ALL_WORK_ON_CPU)
AS_ON_GPU: Final = Setting(0.0, limits_of.DOMINANT, limits_of.NEARLY_ALL_WORK)
"""What holds where a GPU is the device, and held on CPUs before they were measured."""
GRID: Final = tuple(
    Setting(*values)
    for values in itertools.product(
        (0.0, 0.1, 0.15, 0.175, 0.2, 0.225, 0.25, 0.3),
        (0.05, 0.06, 0.08, 0.1, 0.12, 0.15),
        (0.75, 0.8, 0.85, 0.9, 0.95),
    )
)


class Scored(msgspec.Struct, frozen=True):
    """Cells under one setting: right verdicts, cells where something is right, false alarms, cells of no gain."""

    n_right: int
    n: int
    n_alarms: int
    n_quiet: int

    @property
    def worth(self) -> float:
        """Right verdicts, less the price of false alarms."""
        return self.n_right - _ALARM * self.n_alarms


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A family under the setting that is best for the others."""

    family: str
    setting: Setting
    found: Scored


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the recordings say of the limits."""

    best: Setting
    """The best of all families together."""
    found: Scored
    in_use: Setting
    now: Scored
    before: Scored
    families: tuple[Family, ...]


class Judgement(msgspec.Struct, frozen=True):
    """A cell, what is said of it now, and the case from which its verdict was made."""

    cell: CellResult
    said: Said
    case: Case


@contextmanager
def under(setting: Setting) -> Iterator[None]:
    """Judge under a setting."""
    usual = replace(LAUNCH_BOUND.thresholds["usual"], value=setting.usual)
    with ExitStack() as stack:
        stack.enter_context(patch.dict(LAUNCH_BOUND.thresholds, usual=usual))
        stack.enter_context(patch.object(limits_of, "DOMINANT_ON_CPU", setting.dominant))
        stack.enter_context(patch.object(limits_of, "NEARLY_ALL_WORK_ON_CPU", setting.work))
        yield


def collected(cells: Sequence[CellResult], folder: Path) -> list[Judgement]:
    """The cells that have a recording, with their cases; of many ranks the one of all."""
    cases: list[Case] = []

    def kept(case: Case) -> Verdict:
        cases.append(case)
        return decide(case)

    rows = []
    with patch.object(pipeline, "decide", kept), patch.object(overall, "decide", kept):
        for cell in refreshed(cells):
            cases.clear()
            said = None if cell.error else judged(recording_of(cell, folder))
            if said is not None and cases:
                rows.append(Judgement(cell, said, cases[-1]))
    return rows


def scored(rows: Sequence[Judgement], setting: Setting) -> Scored:
    """The scores of cells under a setting."""
    with under(setting):
        cells = [_under(row) for row in rows]
    found = score.tally(score.judged(cells, TOOL))
    return Scored(found.top1.k, found.n, found.alarms.k, found.alarms.n)


def best(rows: Sequence[Judgement]) -> Setting:
    """The setting of most worth; of equal ones the middle one, which has most of them about it."""
    worths = {setting: scored(rows, setting).worth for setting in GRID}
    most = max(worths.values())
    equal = [setting for setting in GRID if worths[setting] == most]
    return min(equal, key=lambda one: (sum(_distance(one, other) for other in equal), one))


def limits(rows: Sequence[Judgement]) -> Limits:
    """What all recordings say, and each family by the others."""
    chosen = best(rows)
    groups: dict[str, list[Judgement]] = {}
    for row in rows:
        groups.setdefault(row.cell.family, []).append(row)
    families = []
    for family, own in sorted(groups.items()):
        others = best([row for row in rows if row.cell.family != family])
        families.append(Family(family=family, setting=others, found=scored(own, others)))
    return Limits(
        best=chosen,
        found=scored(rows, chosen),
        in_use=IN_USE,
        now=scored(rows, IN_USE),
        before=scored(rows, AS_ON_GPU),
        families=tuple(families),
    )


def held_out(found: Limits) -> Scored:
    """All families, each under the setting of the others."""
    return _sum([family.found for family in found.families])


def _sum(parts: Sequence[Scored]) -> Scored:
    return Scored(*(sum(values) for values in zip(*map(msgspec.structs.astuple, parts), strict=True)))


def _distance(one: Setting, other: Setting) -> float:
    return sum(abs(a - b) for a, b in zip(*map(msgspec.structs.astuple, (one, other)), strict=True))


def _under(row: Judgement) -> CellResult:
    verdict = decide(row.case)
    word = replace(row.said, bottleneck=verdict.bottleneck.value, is_healthy=verdict.is_healthy)
    return replace(row.cell, tools={TOOL: word})


def untaught(cells: Sequence[CellResult], folder: Path) -> list[Answer]:
    """What profkit says of the recordings with limits as on a GPU, and nothing added to the time of a cause."""
    with under(AS_ON_GPU), patch.multiple(on_cpu, BEYOND=0.0, BEYOND_SHARED=0.0):
        said = {cell.key: judged(recording_of(cell, folder)) for cell in refreshed(cells) if not cell.error}
    return [Answer(key=key, said=word) for key, word in said.items() if word is not None]


def read_limits(path: Path) -> Limits | None:
    """The limits beside a file of results; None where nobody has chosen any."""
    place = path.with_name(LIMITS)
    return msgspec.json.decode(place.read_bytes(), type=Limits) if place.exists() else None


def main() -> None:
    """Chooses, prints and writes them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--recordings", type=Path, default=RECORDINGS, help="the folder of kept recordings")
    asked = parser.parse_args()
    cells = read_rows(asked.results)
    write_rows(untaught(cells, asked.recordings), asked.results.parent / ANSWERS / "before.jsonl")
    found = limits(collected(cells, asked.recordings))
    asked.results.with_name(LIMITS).write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    rows: Mapping[str, object] = {
        "as on a GPU": found.before,
        "in use": found.now,
        "the best": found.found,
        "each family by the others": held_out(found),
    }
    print("\n".join(f"{name:28} {value}" for name, value in rows.items()))
    print("\n".join(f"{one.family:12} {one.setting}  {one.found}" for one in found.families))
    print("best:", found.best)


if __name__ == "__main__":
    main()
