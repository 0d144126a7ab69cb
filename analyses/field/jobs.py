"""Simulated jobs of many ranks whose truth another session wrote: who is named, why, and what mending gives at most.

    python -m analyses.field.jobs FOLDER [-j 2] [-v]      FOLDER has truth.json, and a folder of traces for each job

A job is right where the ranks that have the fault, and no others, are named with its cause; partly where some of these
ranks are named; silent where nobody is named and the class fits, or the answer is inconclusive; wrong elsewhere. A
fault of all ranks is right where nobody is named and the class fits, a healthy job where nobody is named.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

import profkit
from analyses.field.judge import commit_of
from analyses.field.registry import HERE
from analyses.field.score import PARTLY, RIGHT, WRONG
from profkit.findings import kind_of
from profkit.model.documents.report import Bottleneck, Report
from profkit.model.finding import Finding

SILENT: Final = "silent"
SLACK: Final = 0.02
"""Of the true saving, by which "at most" may lie below it: steps vary by as much. Chosen."""
_NAMING: Final = ("comm.slow_link",)
"""Findings that name ranks, and whose verdict is not that of a late rank."""
_CAUSES: Final[Mapping[str, tuple[str, ...]]] = {
    "loader": ("data", "input.starved"),
    "host": ("host", "host."),
    "gc": ("host", "python."),
    "logging": ("host", "rank0.work"),
    "checkpoint": ("host", "copy", "rank0.work", "mixed"),
    "device": ("compute: same kernels", "compute: other model"),
    "expert": ("compute: more work", "token.skew"),
    "tokens": ("compute: more work", "token.skew"),
    "comm": ("comm.slow_link", "comm.bandwidth"),
    "pipeline": ("compute", "pipeline.bubble"),
}
"""By phase of the truth, how the cause of a late rank begins, or what finding says it."""


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one job."""

    name: str
    kind: str
    fault: str
    score: str
    holds: bool | None
    """Whether what is saved at most is no less than the truth; None where nothing is promised of this cause."""
    line: str


def scored(folder: Path, truth: Mapping[str, Any]) -> Scored:
    """The score of a job."""
    try:
        report = profkit.triage([str(folder / truth["name"])])
    except Exception as told:  # noqa: BLE001 - a job that breaks is a miss, not the end of the tally
        line = f"breaks: {told}"
        return Scored(name=truth["name"], kind=truth["set"], fault=truth["fault"], score=WRONG, holds=None, line=line)
    score = of_healthy(report) if truth["fault"] == "none" else of_fault(report, truth)
    verdict = report.verdict
    holds = None
    if truth["fault"] != "none" and score in (RIGHT, PARTLY) and verdict.recoverable_ns:
        holds = verdict.recoverable_ns >= (1 - SLACK) * truth["saving_ns"]
    causes = "; ".join(f"{row.ranks}: {row.cause}" for row in report.fleet.rows if row.cause) if report.fleet else ""
    said = verdict.findings[0].id if verdict.findings else ""
    line = (
        f"{truth['parallel']} {truth['fault']} ranks {truth['ranks']}: {verdict.bottleneck.value}, {said}:"
        f" {verdict.headline}"
        f" [{causes}] at most {verdict.recoverable_ns / 1e6:.2f}, true {truth['saving_ns'] / 1e6:.2f} ms"
        f" of {truth['faulty_step_ns'] / 1e6:.1f}"
    )
    return Scored(name=truth["name"], kind=truth["set"], fault=truth["fault"], score=score, holds=holds, line=line)


def of_healthy(report: Report) -> str:
    """Right where no rank and no link is named."""
    return WRONG if any(_names(one) for one in report.findings) else RIGHT


def of_fault(report: Report, truth: Mapping[str, Any]) -> str:
    """What the verdict says of the ranks and of the cause."""
    top = report.verdict.findings[0] if report.verdict.findings else None
    said = report.verdict.bottleneck
    is_class = said.value in truth["class_right"]
    if top is None or said is Bottleneck.INCONCLUSIVE:
        return SILENT
    ranks = named_ranks(top)
    is_of_all = len(truth["ranks"]) in (0, truth["world"]) or truth["fault"] == "rotate"
    if is_of_all:
        return WRONG if ranks or not is_class else RIGHT
    if not ranks:
        return SILENT if is_class else WRONG
    is_rank = ranks == set(truth["ranks"])
    is_some = bool(ranks & set(truth["ranks"]))
    is_cause = _is_cause(report, top, ranks, truth)
    if is_rank and is_cause:
        return RIGHT
    return PARTLY if is_some else WRONG


def named_ranks(finding: Finding) -> set[int]:
    """The ranks that a finding names, by its title: of several late ones it has but the first as its own."""
    if not _names(finding):
        return set()
    found = re.search(r"(?:for|\()\s*ranks? ([\d, -]+)", finding.title)
    if found is None:
        return set() if finding.rank is None else {finding.rank}
    parts = (part.strip().split("-") for part in found[1].strip(" ,").split(",") if part.strip())
    return {rank for part in parts for rank in range(int(part[0]), int(part[-1]) + 1)}


def _names(finding: Finding) -> bool:
    return finding.id in _NAMING or kind_of(finding.id).bottleneck is Bottleneck.STRAGGLER


def _is_cause(report: Report, top: Finding, ranks: Iterable[int], truth: Mapping[str, Any]) -> bool:
    causes = {rank: row.cause for row in report.fleet.rows for rank in row.ranks} if report.fleet else {}
    parts = truth["phase"].split("+")
    words = tuple(word for part in parts for word in _CAUSES.get(part, (part,)))
    return top.id.startswith(words) or all(causes.get(rank, "").startswith(words) for rank in ranks)


def tally(found: list[Scored], *, is_full: bool) -> str:
    """How often each kind of fault is right, each miss, and how often "at most" holds."""
    lines = [f"{one.score:6} {one.name} {one.line}" for one in found if is_full or one.score != RIGHT]
    lines += [f"below  {one.name} {one.line}" for one in found if one.holds is False]
    for by in ("fault", "kind"):
        for name in sorted({getattr(one, by) for one in found}):
            mine = [one for one in found if getattr(one, by) == name]
            counts = Counter(one.score for one in mine)
            told = ", ".join(f"{counts[score]} {score}" for score in (RIGHT, PARTLY, WRONG, SILENT))
            lines.append(f"{name:14} {len(mine):3}: {told}")
    promised = [one.holds for one in found if one.holds is not None]
    lines.append(f"at most holds in {sum(promised)} of {len(promised)}")
    return "\n".join(lines)


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a set of jobs: (right, all) of each kind."""

    name: str
    date: str
    commit: str
    healthy: tuple[int, int]
    one: tuple[int, int]
    many: tuple[int, int]
    holds: tuple[int, int]


def counted(name: str, found: list[Scored]) -> Counted:
    """The counts of a set, with today's date and commit."""
    kinds = {
        kind: (sum(one.score == RIGHT for one in mine), len(mine))
        for kind in ("healthy", "one", "many")
        for mine in [[one for one in found if one.kind == kind]]
    }
    promised = [one.holds for one in found if one.holds is not None]
    return Counted(
        name=name,
        date=datetime.now(UTC).date().isoformat(),
        commit=commit_of(HERE.parents[1]),
        holds=(sum(promised), len(promised)),
        **kinds,
    )


def main() -> None:
    """Print the tally of a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-j", type=int, default=2, dest="n_workers")
    parser.add_argument("-v", action="store_true", dest="is_full", help="jobs that are right as well")
    parser.add_argument("--keep", type=Path, help="append the counts, a line of JSON, to this file")
    asked = parser.parse_args()
    truths = json.loads((asked.folder / "truth.json").read_text())
    with ProcessPoolExecutor(asked.n_workers) as pool:
        found = list(pool.map(partial(scored, asked.folder), truths))
    print(tally(found, is_full=asked.is_full))
    if asked.keep is not None:
        with asked.keep.open("ab") as out:
            out.write(msgspec.json.encode(counted(asked.folder.name, found)) + b"\n")


if __name__ == "__main__":
    main()
