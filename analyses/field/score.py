"""What an answer is worth beside the truth: right, partly, wrong or open; how advice, ceilings and comparisons did."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from analyses.field.registry import Capture, Pair
from profkit.compare.stats.sentences import UNLIKE_WINDOWS

RIGHT, PARTLY, WRONG, OPEN = "right", "partly", "wrong", "open"
INCONCLUSIVE: Final = "inconclusive"
KERNEL_PROFILERS: Final = ("ncu", "rocprof-compute")
NO_CHANGE: Final = 0.02
"""A change of less is none: one pair of captures shows no smaller one. Chosen."""
GAINED: Final = 0.03
"""A change that gained less need not have been advised. Chosen: runs differ by as much."""
NEAR: Final = 0.05
"""How far a change that a comparison tells may be from the readers', as a share of the time before. Chosen."""
_NEAR_RATIO: Final = 0.25
"""Or of the change itself, where that is more."""
CEILING_SLACK: Final = 0.02
"""By how much a ceiling may lie below the saving: runs differ by as much. Chosen."""

CHANGES: Final[dict[str, tuple[str, ...]]] = {
    "loader": ("compare.input",),
    "pinned": ("compare.pinned", "compare.copies", "compare.input", "compare.syncs"),
    "copies": ("compare.copies", "compare.syncs"),
    "amp": ("compare.precision", "compare.casts"),
    "bf16": ("compare.precision", "compare.casts"),
    "tf32": ("compare.precision",),
    "compile": ("compare.compiled",),
    "graphs": ("compare.compiled", "compare.launches"),
    "fused-optimizer": ("compare.optimizer", "compare.launches", "compare.compiled"),
    "channels-last": ("compare.layout",),
    "attention": ("compare.attention", "compare.products"),
    "checkpointing": ("compare.recompute",),
    "ddp-buckets": ("compare.buckets", "compare.comm", "compare.overlap_gained"),
    "ddp-broadcast": ("compare.broadcast", "compare.bucket_copies", "compare.comm"),
    "overlap": ("compare.overlap_gained", "compare.overlap_bought_nothing", "compare.comm", "compare.copy_stream"),
    "syncs": ("compare.syncs",),
    "batch": ("compare.work_changed", "compare.accumulation", "compare.products"),
    "kernel": ("compare.compute", "compare.same_work_faster", "compare.launches", "compare.compiled"),
}
"""What each kind of change is called in a comparison; others are judged by their size alone."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What profkit said of one capture, and what that is worth."""

    name: str
    score: str
    bottleneck: str = ""
    confidence: float = 0.0
    findings: tuple[str, ...] = ()
    """Those of the verdict, the first one first."""
    says_host: bool = False
    """Of an open answer: whether it says what the host did."""
    why: str = ""


class PairScore(msgspec.Struct, frozen=True, kw_only=True):
    """What profkit advised before the change, what it promised of it, and how it compared both captures."""

    name: str
    counts: bool
    advice: str
    """"change", "alternative", "listed" (not first) or "missing"."""
    ceiling: float | None
    """What the first finding that names the change saves at most, of the step (0-1); None where there is none."""
    together: float | None = None
    """What all findings that name it save at most: a change may remove two causes."""
    saving: float
    holds: bool | None
    """Whether what they save together is no less than the change saved."""
    change: float | None
    """What the comparison says of the step, minus is less time."""
    compare: str
    why: str = ""


def of_capture(capture: Capture, report: dict[str, Any]) -> Verdict:
    """The score of a triage's JSON."""
    verdict = report["verdict"]
    said, listed = verdict["bottleneck"], tuple(verdict["findings"])
    known = [cause for cause in capture.causes if not cause.startswith("other") and cause != "none"]
    if listed or not known:
        names_cause = not known or listed[0] in known
    else:  # the work itself, with the kernel to profile: that is what a slow kernel looks like from here
        is_kernel = verdict["next_tool"]["name"] in KERNEL_PROFILERS and known[0] == "kernel.below_roof"
        names_cause = "none" in capture.causes or is_kernel
    if said == INCONCLUSIVE:
        score = RIGHT if INCONCLUSIVE in capture.verdict and capture.open else OPEN
    elif said in capture.verdict:
        score = RIGHT if names_cause else PARTLY
    elif said in capture.partly:
        score = PARTLY
    else:
        score = WRONG
    return Verdict(
        name=capture.name,
        score=score,
        bottleneck=said,
        confidence=verdict["confidence"],
        findings=listed,
        says_host=any(one["id"] != "capture.quality" or len(one["evidence"]) > 1 for one in report["findings"]),
        why="" if names_cause else f"the cause is {known[0]}",
    )


def is_advisable(pair: Pair) -> bool:
    """Whether a change gained enough, in the captures or by its authors' times, that it should have been advised."""
    measured = 0.0 if math.isnan(pair.measured_saving) else pair.measured_saving
    return pair.counts_for_advice and max(pair.saving, measured) >= GAINED


def of_pair(pair: Pair, before: dict[str, Any], compared: dict[str, Any]) -> PairScore:
    """The scores of a triage of the first capture, and of the comparison of both."""
    verdict, findings = before["verdict"], {one["id"]: one for one in before["findings"]}
    first = verdict["findings"][:1]
    larger = [one.id for one in pair.alternatives if one.saving >= pair.saving - CEILING_SLACK]
    if first and first[0] in pair.causes:
        advice = "change"
    elif first and first[0] in larger:
        advice = "alternative"
    else:
        advice = "listed" if any(cause in findings for cause in pair.causes) else "missing"
    step_ns = verdict["step_ns"] or (before["ranks"][0]["window"]["duration_ns"] if before["ranks"] else 0)
    named = [findings[cause] for cause in pair.causes if cause in findings]
    saves = [(one.get("most_recoverable_ns") or one["recoverable_ns"]) / step_ns for one in named] if step_ns else []
    ceiling, together = (saves[0] or None, min(sum(saves), 1.0) or None) if saves else (None, None)
    change = compared["judgement"]["change"]
    score, why = _compared(pair, change, [one["id"] for one in compared["readings"]])
    if score != RIGHT and UNLIKE_WINDOWS in compared["judgement"]["test"]:
        score = OPEN
    return PairScore(
        name=pair.name,
        counts=is_advisable(pair),
        advice=advice,
        ceiling=ceiling,
        saving=pair.saving,
        together=together,
        holds=None if together is None else together >= pair.saving - CEILING_SLACK,
        change=change,
        compare=score,
        why=why,
    )


def _compared(pair: Pair, change: float | None, named: list[str]) -> tuple[str, str]:
    """Whether a comparison tells the size and the direction of a change, and names it."""
    if change is None:
        return OPEN, "no number is given"
    if abs(pair.saving) < NO_CHANGE:
        return (RIGHT, "") if abs(change) <= NEAR else (WRONG, f"{change:+.1%} where nothing changed")
    near = max(NEAR, _NEAR_RATIO * abs(pair.saving))
    is_near = abs(change + pair.saving) <= near
    wanted = CHANGES.get(pair.change_kind, ())
    is_named = not wanted or any(one in wanted for one in named)
    if is_near and is_named:
        return RIGHT, ""
    is_opposite = math.copysign(1, change) == math.copysign(1, pair.saving)  # a saving is a change below zero
    if is_opposite and abs(change) > NO_CHANGE:
        return WRONG, f"{change:+.1%} for {-pair.saving:+.1%}"
    said = f"{change:+.1%} for {-pair.saving:+.1%}" if not is_near else f"names {', '.join(named[:3]) or 'nothing'}"
    return PARTLY if is_near or is_named else WRONG, said
