"""Write docs/accuracy.md and its charts from the results.

python -m analyses.accuracy.page [results.jsonl] [--folder docs]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from analyses.accuracy import bounds, calibrate, score
from analyses.accuracy.cell import CellResult
from analyses.accuracy.limits import AS_ON_GPU, Limits, Scored, Setting, held_out, read_limits
from analyses.accuracy.results import RESULTS, tools_of, with_all
from analyses.accuracy.score import Judged
from analyses.accuracy.shares import Share, quantile
from analyses.accuracy.shown import charts, tables, words
from analyses.accuracy.shown.tables import Table, share_words
from analyses.blind import page as blind
from analyses.blind.rounds import Round, rounds
from analyses.blind.table import answers
from profkit.verdict.on_cpu import BEYOND

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
NAME: Final = "accuracy.md"
CHARTS: Final = "accuracy"
OURS: Final = "profkit"


class Goal(msgspec.Struct, frozen=True):
    """A share that is to be reached: at least, or at most."""

    says: str
    share: Share
    limit: float
    is_least: bool

    @property
    def row(self) -> tuple[str, str, str, str]:
        """The goal as a row of a table."""
        wanted = f"{'at least' if self.is_least else 'at most'} {100 * self.limit:.0f} %"
        value = self.share.value
        if value is None:
            return self.says, wanted, "–", "not measured"
        is_reached = value >= self.limit if self.is_least else value <= self.limit
        return self.says, wanted, share_words(self.share), "reached" if is_reached else "**missed**"


def goals(of: Sequence[Judged], chosen: Limits | None = None) -> list[Goal]:
    """What profkit is to reach, and what it does: as it is, and where its numbers are chosen on other families."""
    found, ceilings = score.tally(of), score.gains(of)
    others = [] if chosen is None else [held_out(chosen)]
    return [
        Goal("the verdict is right, where it answers", found.top1, 0.90, is_least=True),
        *(
            Goal("the same, each family by limits of the others", Share(one.n_right, one.n), 0.90, is_least=True)
            for one in others
        ),
        Goal("the same, where the label is certain", found.sharp, 0.90, is_least=True),
        Goal("the same, where something else than the work costs 10 % or more", found.costly, 0.90, is_least=True),
        Goal("no answer (inconclusive)", found.abstained, 0.15, is_least=False),
        Goal("false alarms on healthy programs and decoys", found.alarms_on_controls, 0.02, is_least=False),
        Goal("false alarms on all cells of no gain, faults among them", found.alarms, 0.02, is_least=False),
        Goal("ceilings not below the interval of the measured gain", ceilings.held_interval, 0.95, is_least=True),
        Goal(
            "the same, each family by what the others add to a cause's time",
            bounds.held_out(bounds.families(of)),
            0.95,
            is_least=True,
        ),
    ]


def page(
    cells: Sequence[CellResult],
    *,
    n_planned: int | None,
    chosen: Limits | None = None,
    strangers: Sequence[Round] = (),
    rebuilt: str = "",
) -> str:
    """The page as Markdown: first looks at programs of strangers, the table rebuilt, then our own cells."""
    parts = [words.HEAD, blind.part(strangers) if strangers else "", rebuilt, words.CELLS, _progress(cells, n_planned)]
    if cells:
        of = score.judged(cells, OURS)
        head = ("of profkit", "goal", "found", "")
        parts += [tables.markdown(Table(title="", head=head, rows=tuple(goal.row for goal in goals(of, chosen))))]
        parts += [
            words.HOW,
            _measured(cells),
            _scores(cells, of),
            _limits(chosen),
            _confidence(of),
            _failures(cells, of),
        ]
    else:
        parts += [words.HOW]
    return "\n".join(f"{part.strip()}\n" for part in [*parts, words.LIMITS, words.PEERS, words.ADD] if part)


def files(cells: Sequence[CellResult], *, n_planned: int | None, chosen: Limits | None = None) -> Mapping[str, str]:
    """Every file that the page consists of, by its path under docs/."""
    drawn = charts.drawn(score.judged(cells, OURS))
    return {
        NAME: page(cells, n_planned=n_planned, chosen=chosen, strangers=rounds(), rebuilt=answers.part()),
        **{f"{CHARTS}/{name}": text for name, text in drawn.items()},
    }


def planned() -> int | None:
    """The number of cells that the benchmark has; None where its programs are not installed."""
    try:
        from analyses.accuracy.cells import cells
    except ImportError:
        return None
    return len(cells())


def _progress(cells: Sequence[CellResult], n_planned: int | None) -> str:
    of_all = "" if n_planned is None else f" of {n_planned}"
    if not cells:
        return f"**Nothing is measured yet**: 0{of_all} cells. No confidence of profkit is calibrated so far."
    labelled = sum(not cell.error for cell in cells)
    text = f"{len(cells)}{of_all} cells are measured; {labelled} of them ran to their end, the others are listed below."
    if n_planned is not None and len(cells) < n_planned:
        text += " The run is not complete. Its order is drawn, so what is there is a fair sample of the whole."
    return text


def _measured(cells: Sequence[CellResult]) -> str:
    loads = [cell.load for cell in cells]
    hours = sum(cell.duration_s for cell in cells) / 3600
    versions = sorted({", ".join(f"{name} {value}" for name, value in sorted(cell.versions.items())) for cell in cells})
    n_families, n_pathologies = len({cell.family for cell in cells}), len({cell.pathology for cell in cells})
    middle, most = quantile(loads, 0.5) or 0.0, max(loads)
    noise = [abs(cell.gain) for cell in cells if cell.dose == "none" and cell.gain is not None and not cell.error]
    size = (
        f"{n_families} families of programs and {n_pathologies} pathologies, on CPU cores, one thread per program;"
        f" {hours:.1f} hours in all. When a cell began, the load of the machine was {middle:.1f} in the median and"
        f" {most:.1f} at most."
    )
    said = f"Versions: {'; '.join(version for version in versions if version) or 'not recorded'}."
    lines = ["## What was measured", "", size, said, "", tables.markdown(tables.cells_counted(cells))]
    if noise:
        off = [f"{100 * (quantile(noise, share) or 0):.1f}" for share in (0.5, 0.95)]
        noisy = f"{off[0]} points in the median, {off[1]} at the 95th percentile"
        lines += ["", f"Where nothing is removed, the measured gain differs from zero by {noisy}."]
    return "\n".join(lines)


def _scores(cells: Sequence[CellResult], of: Sequence[Judged]) -> str:
    parts = ["## Scores", tables.markdown(tables.scores(cells, tools_of(cells)))]
    if score.confusion(of):
        parts += [
            "Cells where either answer is right are left out here.",
            _picture("truth and verdict", charts.CONFUSION),
            tables.markdown(tables.confusion_table(of, OURS)),
        ]
    by: Sequence[tuple[str, Callable[[CellResult], str]]] = (
        ("family", lambda cell: cell.family),
        ("pathology", lambda cell: cell.pathology),
        ("dose", lambda cell: cell.dose),
        ("load", load_of),
    )
    for name, word in by:
        parts += [f"### profkit by {name}", tables.markdown(tables.by_word(of, name, word))]
    ceilings = tables.gain_table(cells, tools_of(cells))
    if ceilings.rows:
        parts += ["## Ceilings", words.CEILINGS, tables.markdown(ceilings)]
        parts += [_picture("gains over ceilings", charts.CEILINGS)] if charts.ceilings(of) else []
        parts += [words.BOUNDS, tables.markdown(_bounds(of))]
    slopes = tables.slope_table(cells)
    if slopes.rows:
        parts += ["## Slopes", words.SLOPES, tables.markdown(slopes)]
    return "\n\n".join(parts)


def _bounds(of: Sequence[Judged]) -> Table:
    found = bounds.families(of)
    rows = [
        *(
            (name, f"{100 * one:g} %", share_words(bounds.held(of, one)), share_words(bounds.covered(of, one)))
            for name, one in (("nothing", 0.0), ("in use", BEYOND), ("the least for all", bounds.chosen(of)))
        ),
        ("**each family by the others**", "", share_words(bounds.held_out(found)), ""),
        ("**each pathology by the others**", "", share_words(bounds.held_out(bounds.pathologies(of))), ""),
        *((f"{one.name}, by the others", f"{100 * one.beyond:g} %", share_words(one.held), "") for one in found),
    ]
    head = ("added to the time of a cause", "of it", "not below the interval of the gain", "not below the gain itself")
    return Table(title="", head=head, rows=tuple(rows))


def _limits(chosen: Limits | None) -> str:
    if chosen is None:
        return ""
    whole: tuple[tuple[str, Setting | None, Scored], ...] = (
        ("as on a GPU", AS_ON_GPU, chosen.before),
        ("in use", chosen.in_use, chosen.now),
        ("the best of all", chosen.best, chosen.found),
        ("**each family by the others**", None, held_out(chosen)),
    )
    head = ("limits", "usual overhead", "a cause is dominant", "nearly all is work", "right", "false alarms")
    rows = [_limits_row(*one) for one in whole]
    rows += [_limits_row(f"{one.family}, by the others", one.setting, one.found) for one in chosen.families]
    return "\n\n".join(["## Limits", words.CHOSEN, tables.markdown(Table(title="", head=head, rows=tuple(rows)))])


def _limits_row(name: str, setting: Setting | None, found: Scored) -> tuple[str, ...]:
    shares = ("", "", "") if setting is None else tuple(f"{100 * one:g} %" for one in msgspec.structs.astuple(setting))
    right, alarms = Share(found.n_right, found.n), Share(found.n_alarms, found.n_quiet)
    return name, *shares, share_words(right), share_words(alarms)


def _confidence(of: Sequence[Judged]) -> str:
    if not score.reliability(of):
        return ""
    parts = [
        "## Confidence",
        words.CONFIDENCE,
        tables.markdown(tables.reliability_table(of, OURS)),
        _picture("right answers over confidence", charts.RELIABILITY),
        _before_and_after(calibrate.tried(of)),
    ]
    rows = tuple(
        (one.finding_id, f"{one.confidence:.2f}", share_words(one.right), one.advice) for one in calibrate.constants(of)
    )
    head = ("the verdict stands on", "mean confidence", "right", "what that says of the constant")
    return "\n\n".join([*parts, tables.markdown(Table(title="", head=head, rows=rows))])


def _before_and_after(found: calibrate.Tried) -> str:
    as_is = f"Brier score {found.before.brier:.3f}, calibration error {100 * found.before.ece:.1f} points"
    if found.after is None:
        return (
            f"As made: {as_is}, over {found.before.n} answers. Too few for a curve that is tried on families it"
            f" never saw: that takes {calibrate.LEAST} answers of the other families."
        )
    after = f"Brier score {found.after.brier:.3f}, calibration error {100 * found.after.ece:.1f} points"
    return (
        f"As made: {as_is}. By a curve from confidence to share right (isotonic), each family by the curve of the"
        f" others: {after}. `python -m analyses.accuracy.calibrate` prints the curve that"
        " `profkit/verdict/calibrated.py` takes."
    )


def _failures(cells: Sequence[CellResult], of: Sequence[Judged]) -> str:
    listed = (
        ("Wrong verdicts", tables.wrong(of, OURS)),
        ("No verdict", tables.abstained(of, OURS)),
        ("Ceilings below the measured gain", tables.too_low(of, OURS)),
        ("Cells that failed", tables.failed(cells)),
    )
    parts = ["## Where it fails", "Every case, by the key of its cell: family/pathology/dose/seed."]
    for title, table in listed:
        parts += [f"### {title}: {len(table.rows)}", *([tables.markdown(table)] if table.rows else [])]
    return "\n\n".join(parts)


def load_of(cell: CellResult) -> str:
    """How busy the machine was when a cell began, by its load average: other work blurs labels and recordings."""
    return next((f"below {limit}" for limit in (1, 2, 4) if cell.load < limit), "above 4")


def _picture(what: str, name: str) -> str:
    return f"![{what}]({CHARTS}/{name})"


def main() -> None:
    """Writes the page and its charts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--folder", type=Path, default=DOCS)
    asked = parser.parse_args()
    chosen = read_limits(asked.results)
    for path, text in files(with_all(asked.results), n_planned=planned(), chosen=chosen).items():
        place = asked.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        print(place)


if __name__ == "__main__":
    main()
