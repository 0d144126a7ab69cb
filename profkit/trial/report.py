"""From the runs of a session to a table: predicted beside measured, and what became of the losses."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from profkit.compare.bench.interleaved import drift_of
from profkit.compare.stats.judge import DEFAULT_ALPHA
from profkit.findings.probe import PREDICTION
from profkit.model.documents.comparison import Answer, Judgement
from profkit.model.documents.report import Report
from profkit.model.documents.trial import Losses, Outcome, Trial, TrialReport
from profkit.redact import redacted_text
from profkit.trial.catalogue import LEFT_OUT
from profkit.trial.choose import Candidate
from profkit.trial.outcome import PARTS, Run
from profkit.trial.session import BASELINE, Session
from profkit.units import format_ns


def report(
    session: Session, candidates: Sequence[Candidate], triaged: Report, command: str, *, n_settling: int
) -> TrialReport | None:
    """What a session found; None where not one block is whole."""
    base = session.runs.get(BASELINE, {})
    if not base:
        return None
    runs = list(base.values())
    steps = np.array([run.step_ns for run in runs])
    made = [_trial(session, one) for one in candidates]
    arms = [pair[1] for one in candidates if (pair := session.samples(one.change.key)) is not None]
    whole = session.samples(candidates[0].change.key) if arms else None
    is_full = whole is not None and not session.settled and len(arms) == len(candidates)
    all_arms = [whole[0], *arms] if whole is not None and is_full else []
    first = runs[0].record
    return TrialReport(
        command=command,
        bottleneck=triaged.verdict.bottleneck.value,
        verdict=triaged.verdict.headline,
        ceiling=triaged.verdict.speedup_ceiling,
        step_source=first.step_source,
        step_ns=round(float(steps.mean())),
        cv=float(steps.std(ddof=1) / steps.mean()) if len(steps) > 1 else None,
        n_steps=min(run.n_steps for run in runs),
        n_settling=n_settling,
        n_blocks=len(base),
        n_planned=session.n_blocks,
        n_ranks=first.world_size,
        level=1 - DEFAULT_ALPHA,
        trials=tuple(sorted(made, key=lambda one: (one.is_ablation, -(one.gain if one.gain is not None else -9)))),
        drift=drift_of(session.placed(), all_arms) if len(all_arms) > 1 else None,
        is_repeatable=_repeats(runs),
        wrote=tuple(map(redacted_text, first.wrote)),
    )


def _repeats(runs: Sequence[Run]) -> bool | None:
    seen = [run.losses for run in runs if run.losses]
    return all(_same(one, seen[0]) for one in seen) if len(seen) > 1 else None


def _same(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether losses are the same to the last bit, over the steps that both have; NaN is itself."""
    n = min(len(one), len(other))
    return n > 0 and all(map(_is_equal, one[:n], other[:n]))


def _is_equal(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def _trial(session: Session, one: Candidate) -> Trial:
    change, key = one.change, one.change.key
    runs = session.runs.get(key, {})
    made = next((run.record.done for run in runs.values() if run.record.done), "")
    judged = session.judged(key) if made else None
    base = [session.runs[BASELINE][block] for block in runs if block in session.runs[BASELINE]]
    stays = _what_stays(key, list(runs.values()), base)
    why_not = one.why_not or session.unmade.get(key, "") or session.failed.get(key, "") or stays
    outcome = Outcome.FAILED if key in session.failed else _outcome(one, judged, is_made=bool(made) and not stays)
    return Trial(
        change=key,
        title=change.title,
        is_ablation=change.is_ablation,
        numbers=change.numbers,
        outcome=outcome,
        made=made,
        why_not=why_not,
        keep=one.keep,
        finding_ids=one.finding_ids,
        predicted=one.told,
        why_predicted=one.why_predicted,
        gain=None if judged is None else judged.effect,
        interval=None if judged is None else judged.interval,
        is_gain=judged is not None and judged.answer is Answer.IMPROVED,
        step_ns=round(float(np.mean([run.step_ns for run in runs.values()]))) if made else None,
        n_runs=len(runs),
        runs_to_settle=judged.runs_to_settle if judged is not None else None,
        parts_ns=_parts(list(runs.values())) if made else {},
        baseline_parts_ns=_parts(base) if made else {},
        losses=_losses(list(runs.values()), base) if made else None,
    )


def _what_stays(key: str, runs: Sequence[Run], base: Sequence[Run]) -> str:
    """Why an ablation is no bound: the part of the step that it leaves out is still there; "" where it is gone."""
    part = LEFT_OUT.get(key)
    if part is None or not runs or not base:
        return ""
    before, after = (_parts(list(one))[part] for one in (base, runs))
    step_ns = float(np.mean([run.step_ns for run in base]))
    if before < PREDICTION.limit("stays") * step_ns or 2 * after <= before:
        return ""
    return (
        f"it does not remove the cause: what it leaves out took {format_ns(before)} of the step, and takes"
        f" {format_ns(after)} with it; this bounds nothing"
    )


def _outcome(one: Candidate, judged: Judgement | None, *, is_made: bool) -> Outcome:
    if not is_made:
        return Outcome.NOT_MADE
    if judged is None or judged.interval is None:
        return Outcome.OPEN
    if one.told is None:
        return Outcome.UNPREDICTED
    margin = PREDICTION.limit("margin")
    (low, high), (least, most) = judged.interval, (one.told[0] - margin, one.told[1] + margin)
    if high < least or low > most:
        return Outcome.MISSED
    is_inside = least <= judged.effect <= most
    is_told = low > 0 or high < 0 or judged.answer is Answer.EQUIVALENT
    return Outcome.HELD if is_inside and is_told else Outcome.OPEN


def _parts(runs: Sequence[Run]) -> dict[str, int]:
    return {name: round(float(np.mean([run.parts_ns[name] for run in runs]))) for name in PARTS} if runs else {}


def _losses(runs: Sequence[Run], base: Sequence[Run]) -> Losses | None:
    """The losses of a changed run beside those of an unchanged one."""
    if not runs or not base or not runs[0].losses or not base[0].losses:
        return None
    mine, other = runs[0].losses, base[0].losses
    if _same(mine, other):
        return Losses(is_same=True)
    n = min(len(mine), len(other))
    first = next(place for place in range(n) if not _is_equal(mine[place], other[place]))
    means = float(np.mean([run.loss for run in runs])), float(np.mean([run.loss for run in base]))
    is_number = all(map(math.isfinite, means)) and means[1] != 0
    return Losses(is_same=False, first_step=first + 1, change=means[0] / means[1] - 1 if is_number else None)
