"""What a confidence is worth: a curve from what is said to the share that is right, tried on families it never saw.

    python -m analyses.accuracy.calibrate [results.jsonl] [--tool profkit]

Prints the scores before and after, and the curve as `profkit/verdict/calibrated.py` would hold it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from analyses.accuracy import score
from analyses.accuracy.results import RESULTS, read_rows
from analyses.accuracy.score import Judged
from analyses.accuracy.shares import Share, share_of
from profkit.verdict.calibrated import Curve, calibrated

LEAST: Final = 60
"""Answers below which no curve is fitted. Chosen: a share of 0.9 in 60 has an interval of some 15 points."""
PRIOR: Final = 2.0
"""Answers, half of them right, that each step of a curve is given beside its own (Laplace's rule): no step says 1.0."""
Sure = tuple[float, bool]
"""The confidence of an answer, and whether it is right."""


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """How good confidences are, the lower the better, over `n` answers."""

    n: int
    brier: float
    """Mean square of confidence minus what came true, 0-1."""
    ece: float
    """Mean distance of confidence and share of right answers over the bins of `score.BIN`, weighted by answers."""


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """Confidences as they are and by the curve of the other families, and the curve of all."""

    before: Quality
    after: Quality | None
    """None where answers are too few."""
    curve: Curve


class Constant(msgspec.Struct, frozen=True, kw_only=True):
    """The answers that one finding leads: what it says it is sure, and how often it is right."""

    finding_id: str
    confidence: float
    right: Share

    @property
    def advice(self) -> str:
        """What the answers say of the constant: whether its interval holds it."""
        low, high = self.right.interval
        if low <= self.confidence <= high:
            return "keep"
        toward = (self.right.k + PRIOR / 2) / (self.right.n + PRIOR)
        return f"{'raise' if self.confidence < low else 'lower'} toward {toward:.2f}"


def fitted(answers: Sequence[Sure]) -> Curve:
    """The non-decreasing curve through what came true: confidence and share of each step, () where answers are too few.

    Steps are pooled until none is below the one before (isotonic regression), each with Laplace's rule.
    """
    if len(answers) < LEAST:
        return ()
    steps: list[tuple[float, float, int]] = []  # sum of confidence, number right, number
    levels: dict[float, list[bool]] = {}
    for confidence, is_right in answers:
        levels.setdefault(round(confidence, 3), []).append(is_right)
    for confidence, flags in sorted(levels.items()):
        steps.append((confidence * len(flags), float(sum(flags)), len(flags)))
        while len(steps) > 1 and _share(steps[-2]) >= _share(steps[-1]):
            last, before = steps.pop(), steps.pop()
            steps.append((last[0] + before[0], last[1] + before[1], last[2] + before[2]))
    return tuple((total / n, _share((total, right, n))) for total, right, n in steps)


def quality(answers: Sequence[Sure]) -> Quality:
    """How good confidences are; zeros of none."""
    n = len(answers)
    bins: dict[int, list[Sure]] = {}
    for one in answers:
        bins.setdefault(min(int(one[0] / score.BIN + 1e-9), round(1 / score.BIN) - 1), []).append(one)
    gaps = [abs(sum(sure - is_right for sure, is_right in rows)) for rows in bins.values()]
    return Quality(
        n=n,
        brier=sum((sure - is_right) ** 2 for sure, is_right in answers) / n if n else 0.0,
        ece=sum(gaps) / n if n else 0.0,
    )


def tried(of: Sequence[Judged]) -> Tried:
    """Confidences before and after, each family by the curve of the others."""
    raw = score.confidences(of)
    families = score.grouped(of, lambda cell: cell.family)
    moved: list[Sure] = []
    is_whole = len(families) > 1
    for family in families:
        curve = fitted(score.confidences([one for one in of if one.cell.family != family]))
        is_whole = is_whole and bool(curve)
        moved += [(calibrated(sure, curve), is_right) for sure, is_right in score.confidences(families[family])]
    return Tried(before=quality(raw), after=quality(moved) if is_whole else None, curve=fitted(raw))


def constants(of: Sequence[Judged]) -> list[Constant]:
    """How sure the verdicts that each finding leads are, and how often they are right; most answers first."""
    groups: dict[str, list[Judged]] = {}
    for one in of:
        if one.truth.name and not one.abstains and one.said.confidence is not None:
            groups.setdefault(leader(one), []).append(one)
    rows = [
        Constant(
            finding_id=name,
            confidence=sum(one.said.confidence or 0.0 for one in group) / len(group),
            right=share_of([one.is_right for one in group]),
        )
        for name, group in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row.right.n, row.finding_id))


def leader(one: Judged) -> str:
    """The finding that an answer's verdict stands on: the first one of its class; else the verdict."""
    pairs = zip(one.said.finding_ids, one.said.classes, strict=False)
    return next((name for name, word in pairs if word == one.said.bottleneck), f"verdict {one.word}")


def _share(step: tuple[float, float, int]) -> float:
    return (step[1] + PRIOR / 2) / (step[2] + PRIOR)


def main() -> None:
    """Prints the scores before and after, the curve, and what the answers say of each constant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--tool", default="profkit")
    asked = parser.parse_args()
    of = score.judged(read_rows(asked.results), asked.tool)
    found = tried(of)
    print(f"{found.before.n} answers with a confidence: Brier {found.before.brier:.3f}, ECE {found.before.ece:.3f}")
    if found.after is None:
        print(f"too few for a curve: each family needs {LEAST} answers of the others")
    else:
        print(f"by the curve of the other families: Brier {found.after.brier:.3f}, ECE {found.after.ece:.3f}")
        print("CURVE: Final[Curve] = (")
        print("".join(f"    ({sure:.3f}, {share:.3f}),\n" for sure, share in found.curve) + ")")
    for row in constants(of):
        low, high = row.right.interval
        right = f"right {row.right.k} of {row.right.n} ({low:.2f} to {high:.2f})"
        print(f"{row.finding_id:32} said {row.confidence:.2f}, {right}: {row.advice}")


if __name__ == "__main__":
    main()
