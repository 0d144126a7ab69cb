"""What `profkit explain` says of a finding, a verdict or a check of the capture: titled parts, without a layout."""

from __future__ import annotations

from typing import Final

import msgspec

from profkit.errors import UsageError
from profkit.findings import KINDS
from profkit.findings.capture import CHECKS, QUALITY, CheckKind
from profkit.findings.kind import VERDICTS, FindingKind
from profkit.model.documents.report import Bottleneck
from profkit.model.finding import confidence_label
from profkit.verdict.calibrated import CURVE, SOURCE

_MOST_NEAR: Final = 3
_HEALTHY: Final = "healthy"
_CALIBRATED: Final = (
    f"On a CPU its confidence is the share of such verdicts that were right on programs of known truth: {SOURCE}."
    " On a GPU it orders verdicts: docs/field.md says how often those of each height were right on public captures."
)


class Explained(msgspec.Struct, frozen=True):
    """A heading, and parts with a title and a body: one text, or several points."""

    heading: str
    parts: tuple[tuple[str, str | tuple[str, ...]], ...]
    """Those with an empty body left out."""


def known_names() -> tuple[str, ...]:
    """All that can be explained: verdicts, findings, checks of the capture."""
    return (*_verdicts(), *KINDS, *CHECKS)


def explained(name: str) -> Explained:
    """What a finding, a verdict or a check means; raises UsageError for another name, with those that are near."""
    asked = name.strip().lower()
    if asked in KINDS:
        return of_finding(KINDS[asked])
    if asked in CHECKS:
        return of_check(CHECKS[asked])
    if asked in _verdicts():
        return of_verdict(Bottleneck.KERNEL if asked == _HEALTHY else Bottleneck(asked))
    raise UsageError(_unknown(name, asked), hint="profkit explain lists all of them")


def groups() -> tuple[tuple[str, dict[str, str]], ...]:
    """All names with what they are, in titled groups."""
    return (
        ("verdicts", {str(verdict): meaning.partition(". ")[0].rstrip(".") for verdict, meaning in VERDICTS.items()}),
        ("findings", {kind.id: kind.title for kind in KINDS.values()}),
        ("checks of the capture", {one.id: one.allows.says.format(one.allows.shown) for one in CHECKS.values()}),
    )


def of_verdict(verdict: Bottleneck) -> Explained:
    """What a verdict means, and the findings that lead to it."""
    leading = [kind for kind in KINDS.values() if kind.bottleneck is verdict]
    return _explained(
        f"{verdict}: verdict",
        ("what it means", VERDICTS[verdict]),
        ("findings that lead to it", tuple(f"{kind.id}: {kind.title}" for kind in leading)),
        ("how sure it is", _CALIBRATED if CURVE else ""),
        ("more", f"profkit explain {leading[0].id}" if leading else ""),
    )


def of_check(check: CheckKind) -> Explained:
    """What is known of a check of the capture."""
    if check.is_refusing:
        result = "no verdict"
    else:
        result = f"a verdict with {confidence_label(check.cap)} confidence at most ({check.cap:g} of 1)"
    return _explained(
        f"{check.id}: check of the capture",
        ("what it means where it fails", check.meaning),
        ("what it allows, and the source", (check.allows.text,)),
        ("where it fails", f"{result}; the finding is {QUALITY.id}"),
        ("what to do", QUALITY.fixes[:1]),
    )


def of_finding(kind: FindingKind) -> Explained:
    """What is known of a kind of finding."""
    leads = f"{kind.bottleneck}: {VERDICTS[kind.bottleneck]}" if kind.bottleneck is not None else ""
    return _explained(
        f"{kind.id}: {kind.title}",
        ("what it means", kind.meaning),
        ("how it is measured", kind.measured),
        ("thresholds and their source", kind.threshold_lines),
        ("what else looks like it", kind.lookalikes),
        ("the experiment that proves it", kind.proof),
        ("the same on a CPU", kind.proof_on_cpu),
        ("the command that measures what it is worth", _tried(kind)),
        ("what to do", kind.fixes),
        ("the verdict where it is the largest cause", leads),
    )


def _explained(heading: str, *parts: tuple[str, str | tuple[str, ...]]) -> Explained:
    return Explained(heading, tuple((title, body) for title, body in parts if body))


def _verdicts() -> tuple[str, ...]:
    return (*(str(verdict) for verdict in VERDICTS), _HEALTHY)


def _unknown(name: str, asked: str) -> str:
    """That there is no such thing, and which it may be: those with it in their names, else the nearest."""
    from difflib import get_close_matches

    held = [known for known in known_names() if len(asked) > 2 and asked in known]
    shown = held[:_MOST_NEAR] or get_close_matches(asked, known_names(), n=1, cutoff=0.5)
    said = f"; did you mean {' or '.join(shown)}?" if shown else ""
    return f"there is no finding, verdict or check {name!r}{said}"


def _tried(kind: FindingKind) -> str:
    """The experiment of profkit's own, "" where the finding names nothing that could be removed."""
    if kind.tries:
        return f"profkit try --only {','.join(kind.tries)} -- python train.py"
    return "profkit probe -- python train.py" if kind.bottleneck is not None else ""
