"""The words of a ladder: what each series reached, and what a reader must know of its numbers. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from profkit.compare.ladder.plan import told
from profkit.compare.stats.sentences import means_moved
from profkit.model.documents.comparison import Answer
from profkit.model.documents.ladder import (
    Beside,
    Cell,
    Changed,
    Counts,
    Effect,
    Factor,
    Gain,
    Interaction,
    Noise,
    Note,
    Rung,
    Step,
    WhyNot,
)  # fmt: skip
from profkit.model.grouped import grouped
from profkit.units import format_change, format_fraction, format_quantity, format_speedup

_NONE: Final = "none"
_VERBS: Final = ("gains", "loses", "mixed", "little changed")


def of_cell(cell: Cell, hidden: frozenset[str]) -> str:
    """A cell in words: `compile (batch_size=32, use_bucketing)`; `hidden` settings come with the rung."""
    said = told(cell.settings, hidden=hidden)
    return f"{cell.rung} ({said})" if said else cell.rung


def changes(changed: Iterable[Changed], *, to: str = " -> ", then: str = ", ") -> str:
    """Settings that changed: `batch_size 4 -> 32, use_bucketing False -> True`."""
    return then.join(f"{one.heading} {one.before or _NONE}{to}{one.after or _NONE}" for one in changed)


def publishable(name: str, rungs: Sequence[Rung], unit: str, hidden: frozenset[str]) -> str:
    """The one sentence that the runs support: from what to what, the total, its interval, runs."""
    base, top = rungs[0], rungs[-1]
    if top.over_first is None:
        speed = f"{name}: {format_quantity(base.cell.mean, unit)} with {of_cell(base.cell, hidden)}"
        return f"{speed} ({_runs((base.cell.n, base.cell.n))}); no rung that adds to it is faster"
    means = f"{name}: {means_moved(base.cell.mean, top.cell.mean, unit)}, {format_speedup(top.over_first.value)}"
    ends = f"from {of_cell(base.cell, hidden)} to {of_cell(top.cell, hidden)}"
    return f"{means}, {ends}; {_support(top.over_first)}"


def _support(one: Factor) -> str:
    """What a factor stands on: its interval, or why it has none."""
    if one.is_single:
        return f"no interval: {_runs(one.n)}"
    if one.interval is None:
        why = "that do not differ" if one.p_value is None else "that differ too much for one"
        return f"no interval: {_runs(one.n)} {why}"
    low, high = one.interval
    pilot = "pilot " if one.is_pilot else ""
    return f"{pilot}95 % interval {_ends(low, high)}, {_runs(one.n)}"


def _runs(n: tuple[int, int]) -> str:
    first, second = n
    if n == (1, 1):
        return "one run each"
    return f"{first} runs each" if first == second else f"{first} and {second} runs"


class Notes:
    """The notes of one series."""

    def __init__(self, rungs: Sequence[Rung], *, margin: float, hidden: frozenset[str]) -> None:
        self._rungs = rungs
        self._margin = margin
        self._hidden = hidden

    def all(self, beside: Sequence[Beside], absent: Sequence[str], noise: Noise | None, counts: Counts) -> list[Note]:
        """What limits the numbers first, then what a rung brought with it, then what is not there."""
        return [
            *self._single(noise),
            *self._base(),
            *self._losses(),
            *self._confounds(),
            *self._padding(counts),
            *self._settings(),
            *_beside(beside),
            *([Note(id="rung.absent", statement=f"no run of {', '.join(absent)}")] if absent else []),
        ]

    def _single(self, noise: Noise | None) -> Iterator[Note]:
        factors = [one.over_before for one in self._rungs if one.over_before is not None]
        singles = [one for one in factors if one.is_single]
        if singles:
            yield Note(id="runs.single", statement=f"{_who(singles, len(factors))}: no interval; {_noise(noise)}")
        taken = {one.cell.rung: one for one in self._rungs}.values()
        if any(one.n_settings > 1 and one.cell.n == 1 for one in taken):
            says = "of a rung's settings the fastest is taken by one run each, which favours lucky runs"
            yield Note(id="runs.fastest", statement=f"{says}: time the fastest again")

    def _base(self) -> Iterator[Note]:
        """What part of the total is only the base's settings."""
        base, top = self._rungs[0], self._rungs[-1]
        tuned = self._rungs[1] if len(self._rungs) > 1 and self._rungs[1].step is Step.SETTINGS else None
        if tuned is not None and top is not tuned and top.over_first and tuned.over_first:
            rest = format_speedup(top.over_first.value / tuned.over_first.value)
            total = format_speedup(top.over_first.value)
            says = f"{total} counts from {of_cell(base.cell, self._hidden)}; from {of_cell(tuned.cell, self._hidden)}"
            yield Note(id="base.settings", statement=f"{says}, the fastest {base.cell.rung}, it is {rest}")
        best = max(self._rungs, key=lambda one: 1.0 if one.over_first is None else one.over_first.value)
        if best is not top and top.over_first is not None:
            reached = 1.0 if best.over_first is None else best.over_first.value
            says = f"{of_cell(best.cell, self._hidden)} is the fastest, {format_speedup(reached)} of the base"
            yield Note(id="rung.peak", statement=f"{says}: the top of the ladder is slower")
        later = any(one.step is Step.SETTINGS for one in self._rungs[1:])
        if base.n_settings == 1 and later:
            says = f"{base.cell.rung} was run at one choice of settings only: what others give it is not measured"
            yield Note(id="base.untuned", statement=says)

    def _losses(self) -> Iterator[Note]:
        """Rungs that lose, through which the ladder goes all the same, and rungs of which repeats show no gain."""
        for one in self._rungs:
            factor = one.over_before
            if factor is None:
                continue
            name = f"{one.cell.rung}, tuned" if one.step is Step.SETTINGS else one.cell.rung
            moved = f"{name}: {format_speedup(factor.value)} of the rung before ({_support(factor)})"
            is_less = factor.value < 1 / (1 + self._margin)
            if factor.answer is Answer.REGRESSED or (factor.is_single and is_less):
                yield Note(id="rung.loss", statement=f"{moved}: a loss; time the rungs after it without it")
            elif factor.answer is Answer.EQUIVALENT:
                yield Note(id="rung.open", statement=f"{moved}: no change beyond {format_fraction(self._margin)}")
            elif factor.interval is not None and factor.interval[0] <= 1 <= factor.interval[1]:
                yield Note(id="rung.open", statement=f"{moved}: the runs show neither gain nor loss")

    def _confounds(self) -> Iterator[Note]:
        for before, now in pairwise(self._rungs):
            if now.removed or len(now.added) > 1:
                parts = (("adds", now.added), ("takes away", now.removed))
                said = " and ".join(f"{verb} {', '.join(layers)}" for verb, layers in parts if layers)
                says = f"{before.cell.rung} -> {now.cell.rung} {said}: its factor is of all that together"
                yield Note(id="rung.layers", statement=says)
            if now.confounds:
                went = changes(now.confounds, to=" to ", then=" and ")
                says = (
                    f"{before.cell.rung} -> {now.cell.rung} also went from {went}: its factor is of all that together"
                )
                yield Note(id="rung.confound", statement=says)

    def _padding(self, counts: Counts) -> Iterator[Note]:
        for before, now in pairwise(self._rungs):
            share, whole = now.padding_factor, now.over_before
            if share is None or whole is None or 1 / (1 + self._margin) <= share <= 1 + self._margin:
                continue
            moved = f"padding {_padding(before.cell)} -> {_padding(now.cell)}"
            if counts is Counts.REAL:
                verb = "gives" if share > 1 else "costs"
                says = f"{now.cell.rung}: of its {format_speedup(whole.value)}, {moved} {verb} {format_speedup(share)}"
                yield Note(id="rung.padding", statement=f"{says}, the rest {format_speedup(whole.value / share)}")
            elif counts is Counts.PADDED:
                says = f"{now.cell.rung}: the metric counts padding, and {moved}:"
                says += f" {format_speedup(whole.value * share)} in tokens that are no padding"
                yield Note(id="rung.padding", statement=says)
            else:
                says = f"{now.cell.rung}: {moved}; if the metric counts padding, real tokens changed by"
                says += f" {format_speedup(whole.value * share)}, not {format_speedup(whole.value)}"
                yield Note(id="rung.padding", statement=says)

    def _settings(self) -> Iterator[Note]:
        for one in self._rungs:
            if one.step is Step.SETTINGS and len(one.changed) > 1 and one.over_before is not None:
                gain = format_speedup(one.over_before.value)
                says = f"{one.cell.rung}: {changes(one.changed)} changed at once for {gain}"
                yield Note(id="settings.together", statement=says)


def _who(singles: Sequence[Factor], n_factors: int) -> str:
    """Which factors have no repeats on both sides."""
    if len(singles) < n_factors:
        return f"one run on a side of {len(singles)} of {n_factors} factors"
    is_each = all(one.n == (1, 1) for one in singles)
    return "one run each" if is_each else "one run on a side of every factor"


def _padding(cell: Cell) -> str:
    return "?" if cell.padding is None else format_fraction(cell.padding)


def _noise(noise: Noise | None) -> str:
    if noise is None:
        return "this table has no repeats that show how much runs vary"
    ends = f"1/{noise.limit:.3g} to {noise.limit:.3g}x"
    cells = f"cells with repeats vary by {format_fraction(noise.cv)} from run to run"
    return f"{cells}: if the others do so too, a factor of {ends} between single runs can be noise"


def _beside(beside: Sequence[Beside]) -> Iterator[Note]:
    for (why, against), members in grouped(((one.why, one.against), one) for one in beside).items():
        said = ", ".join(f"{one.cell.rung} {format_speedup(one.over.value)}" for one in members)
        if why is WhyNot.SLOWER:
            yield Note(id="rung.slower", statement=f"not on the ladder, since no faster than {against}: {said}")
        elif why is WhyNot.ALTERNATIVE:
            yield Note(id="rung.alternative", statement=f"alternatives, at their fastest, over {against}: {said}")
        else:
            yield Note(id="rung.apart", statement=f"off the ladder, over {against}: {said}")


def interaction(one: Interaction, hidden: frozenset[str]) -> str:
    """Whether gains multiply, with all numbers that it takes to check."""
    if one.base is None or one.product is None or one.measured is None or one.ratio is None:
        return f"{' x '.join(one.layers)}: whether the gains multiply is not measured: {one.missing}"
    base, before = one.base, dict(one.base.settings)
    said = []
    for layer, cell, gain in zip(one.layers, one.singles, one.gains, strict=True):
        moved = [(name, before[name], value) for name, value in cell.settings if before[name] != value]
        with_ = ", ".join(f"{n} {a or _NONE} -> {b or _NONE}" for n, a, b in moved if n not in hidden)
        said.append(f"{layer} {format_speedup(gain)}" + (f" ({with_})" if with_ else ""))
    alone = ", ".join(said)
    text = f"{' x '.join(one.layers)} over {of_cell(base, hidden)}: alone {alone}; the product is"
    text += f" {format_speedup(one.product)}, together they give {format_speedup(one.measured)}"
    text += f", {format_fraction(abs(one.ratio - 1))} {'more' if one.ratio > 1 else 'less'}"
    if one.interval is None:
        return f"{text}; no interval: {_unknown(one)}"
    low, high = one.interval
    return f"{text} (95 % interval {format_change(low - 1).removesuffix(' %')} to {format_change(high - 1)})"


def _unknown(one: Interaction) -> str:
    """Why the ratio has no interval."""
    cells = [cell for cell in (one.base, *one.singles, one.together) if cell is not None]
    if any(cell.n == 1 for cell in cells):
        return "not every cell has repeats"
    is_same = all(max(cell.runs) == min(cell.runs) for cell in cells)
    return "the repeats do not differ" if is_same else "the ratio is the same in every block"


def effect(one: Effect, rung_column: str, margin: float) -> str:
    """Where a change gains and where it loses."""
    head = f"{one.before} -> {one.after}" if one.before else f"adding {one.after}"
    if one.heading != rung_column:
        head = f"{one.heading} {one.before or _NONE} -> {one.after or _NONE}"
    with_ = changes(one.along)
    by_series = grouped((gain.series, gain) for gain in one.gains)
    places = grouped((_verb(gains, margin), _range(name, gains)) for name, gains in by_series.items())
    said = "; ".join(f"{verb} {', '.join(places[verb])}" for verb in _VERBS if verb in places)
    sizes = [gain.memory_factor for gain in one.gains if gain.memory_factor is not None]
    memory = f"; peak memory {_ends(min(sizes), max(sizes))}" if len(sizes) == len(one.gains) else ""
    singles = sum(gain.factor.is_single for gain in one.gains)
    are_all = all(gain.factor.n == (1, 1) for gain in one.gains)
    tail = "single runs" if are_all else f"{singles} of {len(one.gains)} pairs have one run on a side"
    return f"{head}{f' ({with_})' if with_ else ''}: {said}{memory}{f'; {tail}' if singles else ''}"


def _verb(gains: Sequence[Gain], margin: float) -> str:
    """What a change does in one series, by the smallest and the largest factor."""
    values = [gain.factor.value for gain in gains]
    low, high = min(values), max(values)
    if low < 1 / (1 + margin):
        return _VERBS[1] if high <= 1 + margin else _VERBS[2]
    return _VERBS[0] if high > 1 + margin else _VERBS[3]


def _range(name: str, gains: Sequence[Gain]) -> str:
    """The factors of a series: `0.39x (small)`, `1.06 to 1.25x (small, 2 pairs)`."""
    values = sorted(gain.factor.value for gain in gains)
    if len(values) > 1:
        return f"{_ends(values[0], values[-1])} ({name}, {len(values)} pairs)"
    interval = gains[0].factor.interval
    return format_speedup(values[0]) + (f", 95 % {_ends(*interval)}" if interval else "") + f" ({name})"


def _ends(low: float, high: float) -> str:
    first, last = format_speedup(low), format_speedup(high)
    return last if first == last else f"{first.removesuffix('x')} to {last}"
