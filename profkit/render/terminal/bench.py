"""A benchmark for a terminal: the answer, the arms, what the machine did meanwhile."""

from __future__ import annotations

from typing import Final

from profkit.model.documents.bench import Arm, BenchReport
from profkit.render.terminal import layout
from profkit.render.terminal.layout import MARGIN
from profkit.render.terminal.page import PROSE_WIDTH, Block, columns_of, is_colored, printed
from profkit.shell import clean
from profkit.units import format_change, format_effect, format_fraction, format_quantity

_STYLES: Final = {"improved": "good", "regressed": "bad", "equivalent": "good", "inconclusive": "open"}


def render(report: BenchReport, *, width: int | None = None, color: bool | None = None, verbose: bool = False) -> str:
    """The benchmark as text of at most `width` columns (the terminal's by default)."""
    prose = min(columns_of(width), PROSE_WIDTH)
    head = _floor(report, prose) if report.is_same else _answer(report, prose)
    rows = [_arm(arm) for arm in report.arms]
    arms = layout.table(("arm", "mean", "cv", "command"), rows, [True, False, False, True], prose)
    return printed([head, arms, _around(report, prose)], is_colored=is_colored(color))


def _answer(report: BenchReport, width: int) -> Block:
    name = f" {report.answer.upper()} "
    block: Block = [((MARGIN, ""), (name, _STYLES[report.answer]))]
    return [*block, *layout.wrapped(MARGIN, report.sentence, width, style="strong")]


def _floor(report: BenchReport, width: int) -> Block:
    """Say what one command against itself shows: the spread, and what it lets this many blocks see."""
    block: Block = [((MARGIN, ""), (" NOISE FLOOR ", "open"))]
    spread = max((arm.cv for arm in report.arms if arm.cv is not None), default=None)
    said = "too few runs to tell the noise" if spread is None else f"runs vary by {format_fraction(spread)}"
    if report.minimum_detectable_effect is not None:
        sees = format_effect(report.minimum_detectable_effect)
        said += f"; {report.n_blocks} blocks can show changes of {sees} or more"
    block += layout.wrapped(MARGIN, said, width, style="strong")
    if report.blocks_for:
        needed = ", ".join(f"{count} for {format_fraction(effect)}" for effect, count in report.blocks_for)
        block += layout.wrapped(MARGIN, f"blocks needed (80 % power): {needed}", width)
    alarm = report.answer in ("improved", "regressed")
    verdict = (
        "a false alarm (1 of 20 sessions gives one) or an effect of order"
        if alarm
        else "no false alarm, as it should be"
    )
    return [*block, *layout.wrapped(MARGIN, f"{verdict}: {report.sentence}", width, style="dim")]


def _arm(arm: Arm) -> tuple[str, ...]:
    cv = "-" if arm.cv is None else format_fraction(arm.cv)
    return clean(arm.name), format_quantity(arm.mean, arm.unit), cv, clean(arm.command)


def _around(report: BenchReport, width: int) -> Block:
    block: Block = layout.wrapped(layout.label("judged by"), clean(report.judged_by), width) if report.judged_by else []
    if report.drift is not None and report.drift.is_seen:
        said = (
            f"the machine drifted by {format_change(report.drift.fraction)} over the session: interleaving cancels it"
        )
        block += layout.wrapped(layout.label("drift"), said, width)
    elif report.drift is not None:
        block += layout.wrapped(layout.label("drift"), "none seen over the session", width, style="dim")
    if report.n_blocks < report.n_planned:
        said = f"{report.n_blocks} of {report.n_planned} blocks; the interval has level {format_fraction(report.level)}"
        block += layout.wrapped(layout.label("ended early"), said, width)
    return block
