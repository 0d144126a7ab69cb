"""`token.skew` and `padding.waste`: what the counts of tokens that the script told say of the ranks."""

from __future__ import annotations

from collections.abc import Iterable

from profkit.analyzers.base import Scope
from profkit.analyzers.tools import equal_batches
from profkit.findings.ranks.tokens import PADDING, TOKEN_SKEW
from profkit.model.finding import Evidence, Finding, Skipped
from profkit.ranks.measure.fleet_measures import Joint
from profkit.ranks.measure.tokens import PaddingWaste, TokenSkew
from profkit.ranks.reduce.work_counts import Level
from profkit.units import format_count, format_fraction, format_ns


def findings(joint: Joint, scope: Scope) -> Iterable[Finding]:
    """What tokens explain."""
    if isinstance(joint.token_skew, TokenSkew) and joint.token_skew.is_found:
        yield _skew(joint.token_skew, joint, scope)
    if isinstance(joint.padding, PaddingWaste) and joint.padding.is_found:
        yield _padding(joint.padding, joint, scope)


def skipped(joint: Joint) -> Iterable[Skipped]:
    """What could not be counted."""
    return (item for item in (joint.token_skew, joint.padding) if isinstance(item, Skipped))


def _share(joint: Joint, per_step_ns: int) -> float:
    return joint.fraction(per_step_ns * joint.n_steps)


def _sure(joint: Joint, sure: float) -> float:
    return min(sure, *(outcome.confidence_cap for outcome in joint.outcomes))


def _skew(skew: TokenSkew, joint: Joint, scope: Scope) -> Finding:
    fraction = _share(joint, skew.recoverable_ns)
    number, rank, most = skew.largest
    turns = "the latest rank changes from step to step" if skew.is_rotating else "it is mostly the same rank"
    return TOKEN_SKEW.found(
        confidence=_sure(joint, 0.85 if skew.level is Level.COUNTED else 0.6),
        recoverable_ns=skew.recoverable_ns,
        fraction=fraction,
        evidence=(
            Evidence(
                statement=(
                    f"the rank with the most tokens has {format_fraction(skew.skew_fraction)} more than the mean"
                    f" ({skew.level.value}, {skew.n_steps} steps); in step {number}, the worst, rank {rank} has"
                    f" {format_count(most)} and the mean is {format_count(round(skew.largest_mean))}"
                ),
                metric="tokens.skew_fraction",
                value=skew.skew_fraction,
                unit="ratio",
                expected=f"< {format_fraction(TOKEN_SKEW.limit('skew'))}",
            ),
            Evidence(
                statement=(
                    f"ranks with more tokens wait less: Spearman {-skew.correlation:.2f} within steps, p ="
                    f" {skew.p_value:.2g}; {turns}"
                ),
                metric="tokens.correlation",
                value=skew.correlation,
                unit="",
                expected=f"< {TOKEN_SKEW.limit('correlation')}",
            ),
            Evidence(
                statement=(
                    f"each extra token costs {format_ns(skew.ns_per_token)} of a rank's own time; the fit explains"
                    f" {format_fraction(skew.explained_fraction)} of the variation. Equal tokens would save at most"
                    f" {format_ns(skew.recoverable_ns)} per step"
                ),
                metric="tokens.recoverable_ns",
                value=float(skew.recoverable_ns),
                unit="ns",
            ),
        ),
        fix="; or ".join(TOKEN_SKEW.fixes),
        next_tools=(equal_batches(scope),),
    )


def _padding(waste: PaddingWaste, joint: Joint, scope: Scope) -> Finding:
    fraction = _share(joint, waste.recoverable_ns)
    return PADDING.found(
        title=f"{format_fraction(waste.waste_fraction)} of computed tokens are padding",
        confidence=_sure(joint, 0.85),
        recoverable_ns=waste.recoverable_ns,
        fraction=fraction,
        evidence=(
            Evidence(
                statement=(
                    f"{format_count(waste.tokens)} of {format_count(waste.padded_tokens)} computed tokens are real:"
                    f" {format_count(round(waste.tokens_per_s))} real tokens per second"
                ),
                metric="padding.waste_fraction",
                value=waste.waste_fraction,
                unit="fraction",
                expected=f"< {format_fraction(PADDING.limit('waste'))}",
            ),
            Evidence(
                statement=(
                    f"the rank that computes longest in a step takes {format_ns(waste.compute_ns)} for it (mean of"
                    f" {waste.n_steps} steps); without padding it saves {format_ns(waste.recoverable_ns)}, if compute"
                    " grows with tokens"
                ),
                metric="padding.recoverable_ns",
                value=float(waste.recoverable_ns),
                unit="ns",
            ),
        ),
        fix="; or ".join(PADDING.fixes),
        next_tools=(equal_batches(scope),),
    )
