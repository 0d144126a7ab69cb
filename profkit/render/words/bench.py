"""The words of a benchmark that its renderers share."""

from __future__ import annotations

from typing import Final

from profkit.model.documents.bench import Arm, BenchReport
from profkit.model.documents.comparison import Answer
from profkit.render.words.compare import ANSWER_TONES
from profkit.shell import clean
from profkit.units import format_change, format_effect, format_fraction, format_quantity

HEADERS: Final = ("arm", "mean", "cv", "command")


def name(report: BenchReport) -> str:
    """The answer in capitals; of one command against itself there is none but the noise."""
    return "NOISE FLOOR" if report.is_same else report.answer.upper()


def tone(report: BenchReport) -> str:
    """good, open or bad; of one command against itself it is open."""
    return "open" if report.is_same else ANSWER_TONES[Answer(report.answer)]


def headline(report: BenchReport) -> str:
    """The one line of meaning."""
    return _floor(report) if report.is_same else report.sentence


def _floor(report: BenchReport) -> str:
    spread = max((arm.cv for arm in report.arms if arm.cv is not None), default=None)
    said = "too few runs to tell the noise" if spread is None else f"runs vary by {format_fraction(spread)}"
    if report.minimum_detectable_effect is not None:
        sees = format_effect(report.minimum_detectable_effect)
        said += f"; {report.n_blocks} blocks can show changes of {sees} or more"
    return said


def blocks_needed(report: BenchReport) -> str:
    """How many blocks would see which change of one command against itself; "" elsewhere."""
    if not report.is_same or not report.blocks_for:
        return ""
    needed = ", ".join(f"{count} for {format_fraction(effect)}" for effect, count in report.blocks_for)
    return f"blocks needed (80 % power): {needed}"


def alarm(report: BenchReport) -> str:
    """What it means that one command differs from itself, or does not; "" of two commands."""
    if not report.is_same:
        return ""
    is_alarm = report.answer in {"improved", "regressed"}
    verdict = (
        "a false alarm (1 of 20 sessions gives one) or an effect of order"
        if is_alarm
        else "no false alarm, as it should be"
    )
    return f"{verdict}: {report.sentence}"


def arm_row(arm: Arm) -> tuple[str, ...]:
    """One command with its mean and spread, as `HEADERS` says."""
    cv = "-" if arm.cv is None else format_fraction(arm.cv)
    return clean(arm.name), format_quantity(arm.mean, arm.unit), cv, clean(arm.command)


def drift(report: BenchReport) -> str:
    """What the machine did meanwhile, "" where that was not looked at."""
    if report.drift is None:
        return ""
    if not report.drift.is_seen:
        return "none seen over the session"
    return f"the machine drifted by {format_change(report.drift.fraction)} over the session: interleaving cancels it"


def ended_early(report: BenchReport) -> str:
    """How many of the planned blocks ran, "" for all."""
    if report.n_blocks >= report.n_planned:
        return ""
    return f"{report.n_blocks} of {report.n_planned} blocks; the interval has level {format_fraction(report.level)}"
