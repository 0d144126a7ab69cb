"""How often a tool is right, on what, and where it fails.

    python -m analyses.accuracy.score [results.jsonl] [--answers NAME=answers.jsonl]

Prints every table of docs/accuracy.md. `--answers` scores another tool beside the others: a file of lines
{"key": "family/pathology/dose/seed", "said": {"bottleneck": "data-bound", ...}}, with the fields of
`analyses/accuracy/cell.py`.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from analyses.accuracy.cell import CellResult, Said
from analyses.accuracy.results import RESULTS, tools_of, with_all, with_answers
from analyses.accuracy.shares import Share, quantile, share_of
from analyses.accuracy.truth import LARGE, SILENT, SMALL, WORK, Truth, answer, named, truth

BIN: Final = 0.1
"""Width of the bins of confidence in the reliability curve."""
NO_ANSWER: Final = "no answer"
ON_PATH: Final = 0.5
"""Slope that parts what is on the critical path from what is hidden (chosen: half-way)."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What one tool said of one cell, beside what is right."""

    cell: CellResult
    said: Said
    truth: Truth

    @property
    def word(self) -> str:
        """The tool's verdict."""
        return answer(self.said)

    @property
    def abstains(self) -> bool:
        """Whether the tool names no bottleneck: inconclusive, or no answer at all."""
        return self.word in SILENT

    @property
    def is_right(self) -> bool:
        """Whether the verdict is one of those that are right."""
        return self.word in self.truth.right

    @property
    def is_in_three(self) -> bool:
        """Whether one of the first three classes that are named is right."""
        return bool(self.truth.right.intersection(named(self.said)))

    @property
    def is_false_alarm(self) -> bool:
        """Whether a bottleneck is named whose removal gives next to nothing."""
        return self.truth.is_quiet and not self.is_right and self.word not in SILENT | WORK

    @property
    def is_wrong(self) -> bool:
        """Whether something is said, and it is not right."""
        return not self.is_right and not self.abstains

    @property
    def ceiling(self) -> float | None:
        """The share of the step that the tool gives the pathology at most; None where it gives no number.

        That of the finding that names it, else of the verdict where that is its class, else of the first finding of its
        class. A verdict on the work itself that saves nothing names no cause, and gives no number.
        """
        return self._said_of_it(self.said.finding_gains, self.said.gain)

    @property
    def time_share(self) -> float | None:
        """As `ceiling`, but the time that the tool says the cause takes: on a CPU less than what a fix can save."""
        if not self.said.finding_times and self.said.time is None:
            return self.ceiling
        return self._said_of_it(self.said.finding_times, self.said.time)

    def _said_of_it(self, of_findings: Sequence[float], of_verdict: float | None) -> float | None:
        shares = dict(zip(self.said.finding_ids[::-1], of_findings[::-1], strict=False))
        if self.cell.expected_finding in shares:
            return shares[self.cell.expected_finding]
        if self.word == self.cell.expected and (of_verdict or self.word not in WORK):
            return of_verdict
        pairs = zip(self.said.classes, of_findings, strict=False)
        return next((share for word, share in pairs if word == self.cell.expected), None)


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of one tool over some cells."""

    n: int
    abstained: Share
    top1: Share
    """Right among those where it answers."""
    top3: Share
    """A right class among its first three, of all cells."""
    sharp: Share
    """As `top1`, without the cells where either is right and those whose label's interval reaches another truth."""
    costly: Share
    """As `top1`, of the cells where removing something else than the work saves much: none gets these for nothing."""
    alarms: Share
    """False alarms, of all cells where removal gives next to nothing."""
    alarms_on_controls: Share
    """The same, of healthy cells and decoys alone."""
    named: Share
    """The finding that names the pathology itself is there, of the cells of large gain that have one."""
    rank: Share
    """Of many ranks where one is late in truth and the verdict says so: the right rank."""


class Gains(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted ceilings beside measured gains, where removal gives something. A gap is predicted - measured."""

    with_number: Share
    held: Share
    """The ceiling is not below the measured gain."""
    held_interval: Share
    """The ceiling is not below the lower end of the measured gain's interval."""
    median_gap: float | None
    low_gap: float | None
    """The 5th percentile."""
    high_gap: float | None
    """The 95th percentile."""


class Bin(msgspec.Struct, frozen=True, kw_only=True):
    """Answers of about one confidence: their mean confidence, and how many are right."""

    low: float
    high: float
    confidence: float
    right: Share


class Slopes(msgspec.Struct, frozen=True, kw_only=True):
    """The slopes of some cells: how many are on the path, hidden or not resolved by their intervals."""

    n: int
    median: float | None
    on_path: Share
    hidden: Share


def judged(cells: Sequence[CellResult], tool: str) -> list[Judged]:
    """The cells that have a label and on which the tool was asked."""
    pairs = [(cell, truth(cell)) for cell in cells if tool in cell.tools]
    return [Judged(cell=cell, said=cell.tools[tool], truth=right) for cell, right in pairs if right is not None]


def tally(of: Sequence[Judged]) -> Tally:
    """The scores of some cells."""
    answers = [one for one in of if not one.abstains]
    quiet = [one for one in of if one.truth.is_quiet]
    late = [
        one for one in answers if one.cell.late_rank is not None and one.word == one.truth.name == one.cell.expected
    ]
    costly = [one for one in of if one.cell.expected_finding and one.cell.expected == one.truth.name]
    return Tally(
        n=len(of),
        abstained=share_of([one.abstains for one in of]),
        top1=share_of([one.is_right for one in answers]),
        top3=share_of([one.is_in_three for one in of]),
        sharp=share_of([one.is_right for one in answers if one.truth.is_sharp and one.truth.name]),
        costly=share_of([one.is_right for one in answers if one.truth.is_costly]),
        alarms=share_of([one.is_false_alarm for one in quiet]),
        alarms_on_controls=share_of([one.is_false_alarm for one in quiet if one.cell.kind in ("healthy", "decoy")]),
        named=share_of([one.cell.expected_finding in one.said.finding_ids for one in costly]),
        rank=share_of([one.said.rank == one.cell.late_rank for one in late]),
    )


def with_gain(of: Sequence[Judged]) -> list[Judged]:
    """The cells where removal measurably gives something: only there a ceiling can be too low."""
    return [one for one in of if not one.truth.is_quiet]


def gains(of: Sequence[Judged]) -> Gains:
    """Predicted ceilings beside measured gains."""
    wanted = with_gain(of)
    rows = [
        (one.ceiling, one.cell.gain, (one.cell.gain_interval or (one.cell.gain,))[0])
        for one in wanted
        if one.ceiling is not None and one.cell.gain is not None
    ]
    gaps = [predicted - measured for predicted, measured, _ in rows]
    return Gains(
        with_number=Share(len(rows), len(wanted)),
        held=share_of([predicted >= measured for predicted, measured, _ in rows]),
        held_interval=share_of([predicted >= low for predicted, _, low in rows]),
        median_gap=quantile(gaps, 0.5),
        low_gap=quantile(gaps, 0.05),
        high_gap=quantile(gaps, 0.95),
    )


def too_low(of: Sequence[Judged]) -> list[Judged]:
    """The cells whose ceiling is below the whole interval of the measured gain."""
    return [
        one
        for one in with_gain(of)
        if one.ceiling is not None
        and one.cell.gain is not None
        and one.ceiling < (one.cell.gain_interval or (one.cell.gain,))[0]
    ]


def reliability(of: Sequence[Judged]) -> list[Bin]:
    """Share of right answers by confidence, bins without an answer left out."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for confidence, is_right in confidences(of):
        place = min(int(confidence / BIN + 1e-9), round(1 / BIN) - 1)
        bins.setdefault(place, []).append((confidence, is_right))
    return [
        Bin(
            low=place * BIN,
            high=(place + 1) * BIN,
            confidence=sum(one for one, _ in rows) / len(rows),
            right=share_of([is_right for _, is_right in rows]),
        )
        for place, rows in sorted(bins.items())
    ]


def confidences(of: Sequence[Judged]) -> list[tuple[float, bool]]:
    """The confidence of each answer that has one, and whether it is right, where not either answer would be."""
    answers = [one for one in of if one.truth.name and not one.abstains]
    return [(one.said.confidence, one.is_right) for one in answers if one.said.confidence is not None]


def confusion(of: Sequence[Judged]) -> Counter[tuple[str, str]]:
    """How many cells of a truth (first) got a verdict (second); those where either is right are left out."""
    return Counter((one.truth.name, one.word or NO_ANSWER) for one in of if one.truth.name)


def grouped(of: Sequence[Judged], by: Callable[[CellResult], str]) -> Mapping[str, list[Judged]]:
    """The judged cells by a word of their cell, sorted by it."""
    groups: dict[str, list[Judged]] = {}
    for one in of:
        groups.setdefault(by(one.cell), []).append(one)
    return dict(sorted(groups.items()))


def slopes(cells: Sequence[CellResult]) -> dict[str, Slopes]:
    """The slopes at the place of the pathology, by what its removal gives and for decoys."""
    groups: dict[str, list[CellResult]] = {}
    for cell in cells:
        if cell.slope is not None and not cell.error:
            groups.setdefault(_of_gain(cell), []).append(cell)
    return {name: _slopes(groups[name]) for name in sorted(groups)}


def _of_gain(cell: CellResult) -> str:
    if cell.kind == "decoy":
        return "decoys"
    gain, small, large = cell.gain or 0.0, f"{100 * SMALL:.0f} %", f"{100 * LARGE:.0f} %"
    if gain >= LARGE:
        return f"gain of {large} and more"
    return f"gain below {small}" if gain < SMALL else f"gain of {small} to {large}"


def _slopes(cells: Sequence[CellResult]) -> Slopes:
    ends = [cell.slope_interval or (cell.slope or 0.0, cell.slope or 0.0) for cell in cells]
    return Slopes(
        n=len(cells),
        median=quantile([cell.slope for cell in cells if cell.slope is not None], 0.5),
        on_path=share_of([low > ON_PATH for low, _ in ends]),
        hidden=share_of([high < ON_PATH for _, high in ends]),
    )


def main() -> None:
    """Prints every table of a file of results."""
    from analyses.accuracy.shown import tables

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--answers", action="append", default=[], metavar="NAME=FILE", help="another tool's answers")
    asked = parser.parse_args()
    cells = with_all(asked.results)
    for one in asked.answers:
        name, _, place = one.partition("=")
        cells = with_answers(cells, name, Path(place))
    print(tables.printed(tables.every(cells, tools_of(cells))))


if __name__ == "__main__":
    main()
