"""Sentences on trials: what each change gave beside what was predicted, and why a prediction was missed."""

from __future__ import annotations

from typing import Final

from profkit.model.documents.trial import Losses, Numbers, Outcome, Trial, TrialReport
from profkit.units import format_change, format_count, format_fraction, format_ns, format_speedup

HEADERS: Final = ("change", "step", "saves", "interval", "predicted", "held", "losses")
IS_TEXT: Final = (True, False, False, False, False, True, True)
_OUTCOMES: Final = {
    Outcome.HELD: "yes",
    Outcome.MISSED: "missed",
    Outcome.OPEN: "open",
    Outcome.UNPREDICTED: "-",
    Outcome.NOT_MADE: "not made",
    Outcome.FAILED: "failed",
}
_PARTS: Final = {
    "input": "fetching a batch",
    "forward": "from there to backward",
    "backward": "backward",
    "optimizer": "the optimizer and what follows",
}
_TOLD: Final = 0.02
"""Of the step: changes of a part below it are not told (the margin of the comparison)."""


def saved(share: float) -> str:
    """A share of the step that is saved; below 0 it is added."""
    return format_fraction(share) if share >= 0 else f"-{format_fraction(-share)}"


def interval(ends: tuple[float, float]) -> str:
    """An interval of such shares."""
    low, high = ends
    return f"{100 * low + 0.0:.1f} to {100 * high + 0.0:.1f} %".replace("-0.0", "0.0")


def row(trial: Trial) -> tuple[str, ...]:
    """A change as a row under `HEADERS`."""
    return (
        trial.change,
        "-" if trial.step_ns is None else format_ns(trial.step_ns),
        "-" if trial.gain is None else saved(trial.gain),
        "-" if trial.interval is None else interval(trial.interval),
        "-" if trial.predicted is None else interval(trial.predicted),
        _OUTCOMES[trial.outcome],
        "-" if trial.losses is None else "same" if trial.losses.is_same else "other",
    )


def sentence(trial: Trial) -> str:
    """What a change gave, beside what was predicted."""
    name = f"{trial.change} ({trial.made or trial.title})"
    match trial.outcome:
        case Outcome.FAILED:
            return f"{name} failed: {trial.why_not}"
        case Outcome.NOT_MADE:
            return f"{name} was not made: {trial.why_not}"
    said = f"{name} {_measured(trial)}"
    if trial.is_ablation:
        said += "; a bound, no advice: the training is another one"
    beside = _beside(trial)
    return f"{said}. {beside[0].upper()}{beside[1:]}" if beside else said


def _measured(trial: Trial) -> str:
    if trial.gain is None or trial.interval is None:
        return "was run too rarely to say"
    ends = interval(trial.interval)
    if trial.is_gain and trial.speedup is not None:
        return f"saves {saved(trial.gain)} of the step ({ends}): {format_speedup(trial.speedup)} faster"
    low, high = trial.interval
    if high < 0:
        return f"makes the step longer by {saved(-trial.gain)} ({saved(-high)} to {saved(-low)})"
    more = f"; about {format_count(trial.runs_to_settle)} runs each would settle it" if trial.runs_to_settle else ""
    if max(-low, high) <= _TOLD:
        return f"changes the step by less than {format_fraction(_TOLD)} ({ends} saved)"
    return f"has no shown effect: {ends} of the step saved{more}"


def _beside(trial: Trial) -> str:
    """What became of the prediction, and of what the change acted on."""
    parts = _moved(trial)
    if trial.predicted is None:
        return f"parts: {parts}" if parts else ""
    told = interval(trial.predicted)
    match trial.outcome:
        case Outcome.HELD:
            return f"{told} was predicted, which held" + (f"; parts: {parts}" if parts else "")
        case Outcome.MISSED:
            where = "less" if trial.gain is not None and trial.gain < trial.predicted[0] else "more"
            why = parts or "no part of the step on the host tells why; capture it with the change, and compare"
            return f"prediction missed: {told} was predicted, and it gave {where}: {why}"
    return f"{told} was predicted, which the runs neither show nor exclude" + (f"; parts: {parts}" if parts else "")


def _moved(trial: Trial) -> str:
    """The parts of the step that changed by more than a margin, the most changed first."""
    whole = sum(trial.baseline_parts_ns.values())
    if not whole:
        return ""
    pairs = [
        (name, before, trial.parts_ns[name])
        for name, before in trial.baseline_parts_ns.items()
        if abs(trial.parts_ns[name] - before) > _TOLD * whole
    ]
    pairs.sort(key=lambda pair: -abs(pair[2] - pair[1]))
    return ", ".join(f"{_PARTS[name]} {format_ns(before)} -> {format_ns(after)}" for name, before, after in pairs)


def losses(trial: Trial, *, is_repeatable: bool | None) -> str:
    """What became of the losses, "" where none were seen or they are as they should be."""
    found = trial.losses
    if found is None:
        return ""
    if found.is_same:
        return f"{trial.change}: every loss is the same to the last bit"
    if is_repeatable is False:
        return f"{trial.change}: {_mean(found)}; unchanged runs differ among themselves, so this says little"
    text = f"{trial.change}: losses differ from number {found.first_step} on, {_mean(found)}"
    if trial.numbers is Numbers.NONE:
        return f"{text}; it should change no number: random numbers drawn in the loader's workers are others"
    return text


def _mean(found: Losses) -> str:
    if found.change is None:
        return "and their mean is no finite number"
    return f"their mean over the timed steps by {format_change(found.change)}"


def headline(report: TrialReport) -> str:
    """The answer: the fix that saves most, if one does."""
    best = next((trial for trial in report.trials if trial.is_gain and not trial.is_ablation), None)
    if best is None or best.gain is None or best.interval is None or best.speedup is None:
        return "no change made the step shorter by more than these runs can tell"
    held = {Outcome.HELD: ", as predicted", Outcome.MISSED: "; another gain was predicted"}.get(best.outcome, "")
    return (
        f"{best.change} makes the step {format_speedup(best.speedup)} faster:"
        f" it saves {saved(best.gain)} ({interval(best.interval)}){held}"
    )


def keep(report: TrialReport) -> str:
    """How to keep the best fix, "" without one."""
    best = next((trial for trial in report.trials if trial.is_gain and not trial.is_ablation and trial.keep), None)
    return "" if best is None else best.keep


def setting(report: TrialReport) -> str:
    """How it was measured."""
    ranks = f"{report.n_ranks} ranks, " if report.n_ranks > 1 else ""
    cut = f" of {report.n_planned} planned" if report.n_blocks < report.n_planned else ""
    spread = "" if report.cv is None else f", runs of it vary by {format_fraction(report.cv)}"
    return (
        f"{ranks}{report.n_blocks} blocks{cut} of one run each, unprofiled, stopped after {report.n_settling} +"
        f" {report.n_steps} steps; the unchanged step takes {format_ns(report.step_ns)}{spread}"
    )


def level(report: TrialReport) -> str:
    """What the intervals hold for."""
    return f"all intervals together hold with {100 * report.level:.3g} %; steps by {report.step_source}"


def verdict(report: TrialReport) -> str:
    """What the predictions come from."""
    if report.ceiling is None:
        return f"{report.bottleneck}: {report.verdict}"
    return f"{report.bottleneck}: {report.verdict} (at most {format_speedup(report.ceiling)})"


def drift(report: TrialReport) -> str:
    """What the machine did meanwhile, "" where that is not known."""
    if report.drift is None:
        return ""
    said = f"{format_change(report.drift.fraction)} from the first run to the last"
    return said if report.drift.is_seen else f"{said}, within the noise"


def around(report: TrialReport) -> tuple[tuple[str, str], ...]:
    """What stands under the table, with its labels."""
    best = keep(report)
    parts = (
        ("keep it", best),
        ("verdict", verdict(report)),
        ("measured", setting(report)),
        ("intervals", level(report)),
        ("drift", drift(report)),
        *(("losses", losses(trial, is_repeatable=report.is_repeatable)) for trial in report.trials),
        ("it wrote", ", ".join(report.wrote)),
    )
    return tuple((label, text) for label, text in parts if text)
