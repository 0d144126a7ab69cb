"""The words of a ladder report that its renderers share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from profkit.model.documents.comparison import Answer
from profkit.model.documents.ladder import (
    Cell,
    Counts,
    Effect,
    Factor,
    Ladder,
    LadderReport,
    Mix,
    OrderSource,
    Rung,
    Step,
    WhyNot,
)
from profkit.model.switches import says_off, says_on
from profkit.render.words.scaling import PILOT_TOLD
from profkit.shell import clean
from profkit.units import format_bytes, format_fraction, format_quantity, format_speedup

_DETAILS: Final = ("settings.together", "rung.alternative", "rung.absent")
"""Notes that need not be read first."""
_SHOWN: Final = 3
"""Changes with both signs, and interactions of a series, that are shown first."""
_COUNTS: Final = {
    Counts.PADDED: "the metric counts padding as work",
    Counts.UNKNOWN: "whether the metric counts padding is unknown",
}


def name(ladder: Ladder) -> str:
    """How sure the total is, in capitals."""
    whole = ladder.top.over_first
    if whole is None:
        return "NO GAIN"
    if whole.is_single:
        return "ONE RUN EACH" if whole.n == (1, 1) else "ONE RUN"
    return "LADDER" if whole.answer is Answer.IMPROVED else whole.answer.value.upper()


def tone(ladder: Ladder) -> str:
    """good, open or bad."""
    return {"LADDER": "good", "NO GAIN": "bad", "REGRESSED": "bad"}.get(name(ladder), "open")


def headline(ladder: Ladder) -> str:
    """The one line of meaning: the total, and from what to what."""
    base, top = ladder.base.cell.rung, ladder.top.cell.rung
    if ladder.top.over_first is None:
        return clean(f"no rung that adds to {base} is faster")
    n_steps = len(ladder.rungs) - 1
    steps = f"{n_steps} step" + "s" * (n_steps != 1)
    ends = f"{base}, at other settings" if top == base else f"{base} to {top}"
    return clean(f"{format_speedup(ladder.total)} in {steps}: {ends}")


def order(report: LadderReport) -> str:
    """Where the order of the rungs is from, and what that leaves open."""
    match report.order_source:
        case OrderSource.GIVEN:
            found = "order of the rungs: as given (--order)"
            is_left = any(one.why is WhyNot.SLOWER for ladder in report.ladders for one in ladder.beside)
            open_ = "; the table does not tell whether later rungs hold those that are not on the ladder"
            return found + open_ * (is_left and not report.are_layers_told)
        case OrderSource.LAYERS:
            return "order of the rungs: each holds the layers of the one before, as the table tells"
        case OrderSource.NUMBERED:
            found = "order of the rungs: by their numbers"
        case _:
            found = "order of the rungs: as they first appear in the table, one called base first"
    if report.are_layers_told:
        return found
    return f"{found}; the table does not tell whether one adds to those before or takes their place (see --order)"


def settings(report: LadderReport, cell: Cell) -> str:
    """The settings of a cell that do not come with its rung, shortened: `batch=32, bucketing` of use_bucketing=True."""
    shown = [(_short(name), value) for name, value in cell.settings if name in report.setting_columns]
    said = (name if says_on(value) else f"{name}={value}" for name, value in shown if not says_off(value))
    return clean(", ".join(said)) or "-"


def _short(heading: str) -> str:
    """A heading without what many headings have: `use_`, `_size`."""
    return re.sub(r"^(?:use|enable|with)_(?=.)|(?<=.)_size$", "", heading)


def of_cell(report: LadderReport, cell: Cell) -> str:
    """A cell in words: `compile (batch=32, bucketing)`."""
    said = settings(report, cell)
    return clean(cell.rung if said == "-" else f"{cell.rung} ({said})")


Cells = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""The headings of a table, and its rows."""


def table(report: LadderReport, ladder: Ladder) -> Cells:
    """A line for each rung: its factor over the rung before and over the first; what is not known is "-".

    Columns that nothing is known for are left out; the first `n_left` are text.
    """
    cells = [one.cell for one in ladder.rungs]
    has_interval = any(one.over_before is not None and one.over_before.interval for one in ladder.rungs)
    columns: list[tuple[str, bool, Callable[[Rung], str]]] = [
        ("rung", True, step_name),
        ("settings", bool(report.setting_columns), lambda one: settings(report, one.cell)),
        ("runs", any(cell.n > 1 for cell in cells), lambda one: str(one.cell.n)),
        (_unit(report), True, lambda one: value(one.cell.mean, report.unit)),
        ("gain", True, lambda one: _factor(one.over_before, "-")),
        ("95 %", has_interval, lambda one: interval(one.over_before)),
        ("total", True, lambda one: _factor(one.over_first, "1.00x")),
        ("memory", any(cell.memory_bytes is not None for cell in cells), lambda one: memory(one.cell)),
        ("padding", any(cell.padding is not None for cell in cells), lambda one: _padding(one.cell)),
    ]
    shown = [(heading, cell_of) for heading, is_shown, cell_of in columns if is_shown]
    rows = [tuple(cell_of(one) for _, cell_of in shown) for one in ladder.rungs]
    return tuple(heading for heading, _ in shown), rows


def _unit(report: LadderReport) -> str:
    return clean(report.unit) or clean(report.metric)


def _factor(one: Factor | None, otherwise: str) -> str:
    return otherwise if one is None else format_speedup(one.value)


def _padding(cell: Cell) -> str:
    return "-" if cell.padding is None else format_fraction(cell.padding)


def n_left(report: LadderReport) -> int:
    """How many columns of `table` are text."""
    return 2 if report.setting_columns else 1


def step_name(one: Rung) -> str:
    """The rung; where only its settings changed, that it was tuned."""
    return "  tuned" if one.step is Step.SETTINGS else clean(one.cell.rung)


def value(mean: float, unit: str) -> str:
    """A mean without the unit that stands in the heading; durations keep theirs."""
    return format_quantity(mean, unit if unit.startswith("ns") else "")


def interval(one: Factor | None) -> str:
    """The interval of a factor: `1.15 to 1.26`."""
    if one is None or one.interval is None:
        return "-"
    low, high = (format_speedup(end).removesuffix("x") for end in one.interval)
    return f"{low} to {high}" + "*" * one.is_pilot


def memory(cell: Cell) -> str:
    """The peak memory of a cell."""
    return "-" if cell.memory_bytes is None else format_bytes(cell.memory_bytes)


def shared_notes(report: LadderReport) -> list[str]:
    """What holds for the numbers of all series."""
    said = [{note.statement for note in ladder.notes} for ladder in report.ladders]
    common = set.intersection(*said) if len(said) > 1 else set()
    notes = [note.statement for note in report.ladders[0].notes if note.statement in common]
    factors = [one.over_before for ladder in report.ladders for one in ladder.rungs if one.over_before is not None]
    pilot = [PILOT_TOLD] if any(one.is_pilot for one in factors) else []
    counts = [_COUNTS[report.counts]] if report.counts in _COUNTS else []
    return [*notes, *pilot, *counts, order(report)]


def notes(report: LadderReport, ladder: Ladder, *, verbose: bool) -> list[str]:
    """What holds for the numbers of one series; unless `verbose`, a few interactions, and one that was not measured."""
    common = set(shared_notes(report))
    shown = [note.statement for note in ladder.notes if verbose or note.id not in _DETAILS]
    measured = [one.sentence for one in ladder.interactions if one.ratio is not None]
    missing = [one.sentence for one in ladder.interactions if one.ratio is None]
    some = [*measured, *missing] if verbose else [*measured[:_SHOWN], *missing[:1]]
    return [*(said for said in shown if said not in common), *some]


def front(report: LadderReport, ladder: Ladder) -> str:
    """The cells that no other one beats in both speed and memory; "" where fewer than two have a memory."""
    if len(ladder.spots) < 2:
        return ""
    best = [spot.cell for spot in ladder.spots if spot.by is None]
    said = ", ".join(f"{of_cell(report, cell)} {memory(cell)}" for cell in best)
    return f"nothing is faster in less memory than {said} ({len(best)} of {len(ladder.spots)} measured)"


def spots(report: LadderReport, ladder: Ladder) -> Cells:
    """A line for each cell of known memory, the least first; "-" behind those on the front. Two columns are numbers."""
    has_settings = bool(report.setting_columns)
    rows = [
        (
            clean(spot.cell.rung),
            *((settings(report, spot.cell),) if has_settings else ()),
            "-" if spot.by is None else of_cell(report, ladder.spots[spot.by].cell),
            memory(spot.cell),
            value(spot.cell.mean, report.unit),
        )
        for spot in ladder.spots
    ]
    return ("rung", *(("settings",) if has_settings else ()), "beaten by", "memory", _unit(report)), rows


EFFECTS_TITLE: Final = "gains here, loses there (all else equal)"


def effects(report: LadderReport, *, verbose: bool) -> list[str]:
    """The changes with both signs: those between series first, and how many more there are."""
    across = [one for one in report.effects if one.mix is Mix.SERIES]
    chosen: Sequence[Effect] = report.effects if verbose else (across or report.effects)[:_SHOWN]
    n_more = report.n_mixed - len(chosen)
    more = f"{n_more} more change{'s' * (n_more != 1)} with both signs, of {report.n_pairs:,} pairs compared"
    return [clean(one.sentence) for one in chosen] + ([more + ("" if verbose else ": -v")] if chosen and n_more else [])
