"""`token.skew` and `padding.waste`: what the counts of tokens that the script told say of the ranks."""

from __future__ import annotations

from collections.abc import Iterable

from profkit.analyzers.base import Scope
from profkit.analyzers.tools import equal_batches
from profkit.findings.ranks.tokens import PADDING, TOKEN_SKEW
from profkit.model.finding import Evidence, Finding, Skipped
from profkit.ranks.measure.fleet_measures import Joint
from profkit.ranks.measure.tokens import Level, PaddingWaste, TokenSkew
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


def _skew(skew: TokenSkew, joint: Joint, scope: Scope) -> Finding:
    number, rank, most = skew.largest
    turns = "the latest rank changes from step to step" if skew.is_rotating else "it is mostly the same rank"
    return TOKEN_SKEW.found(
        confidence=joint.sure(0.85 if skew.level is Level.COUNTED else 0.6, joint.by_rank),
        recoverable_ns=skew.recoverable_ns,
        fraction=joint.fraction(skew.recoverable_ns * joint.n_steps),
        evidence=(
            Evidence(
                f"the rank with the most tokens has {format_fraction(skew.skew_fraction)} more than the mean"
                f" ({skew.level.value}, {skew.n_steps} steps); in step {number}, the worst, rank {rank} has"
                f" {format_count(most)} and the mean is {format_count(round(skew.largest_mean))}",
                "tokens.skew_fraction",
                skew.skew_fraction,
                "ratio",
                f"< {format_fraction(TOKEN_SKEW.limit('skew'))}",
            ),
            Evidence.factor(
                "tokens.correlation",
                skew.correlation,
                f"ranks with more tokens wait less: Spearman {-skew.correlation:.2f} within steps, p ="
                f" {skew.p_value:.2g}; {turns}",
                expected=f"< {TOKEN_SKEW.limit('correlation')}",
            ),
            Evidence.time(
                "tokens.recoverable_ns",
                skew.recoverable_ns,
                f"each extra token costs {format_ns(skew.ns_per_token)} of a rank's own time; the fit explains"
                f" {format_fraction(skew.explained_fraction)} of the variation. Equal tokens would save at most"
                f" {format_ns(skew.recoverable_ns)} per step",
            ),
        ),
        fix="; or ".join(TOKEN_SKEW.fixes),
        next_tools=(equal_batches(scope),),
    )


def _padding(waste: PaddingWaste, joint: Joint, scope: Scope) -> Finding:
    return PADDING.found(
        title=f"{format_fraction(waste.waste_fraction)} of computed tokens are padding",
        confidence=joint.sure(0.85, joint.by_rank),
        recoverable_ns=waste.recoverable_ns,
        fraction=joint.fraction(waste.recoverable_ns * joint.n_steps),
        evidence=(
            Evidence.share(
                "padding.waste_fraction",
                waste.waste_fraction,
                f"{format_count(waste.tokens)} of {format_count(waste.padded_tokens)} computed tokens are real:"
                f" {format_count(round(waste.tokens_per_s))} real tokens per second",
                expected=f"< {format_fraction(PADDING.limit('waste'))}",
            ),
            Evidence.time(
                "padding.recoverable_ns",
                waste.recoverable_ns,
                f"the rank that computes longest in a step takes {format_ns(waste.compute_ns)} for it (mean of"
                f" {waste.n_steps} steps); without padding it saves {format_ns(waste.recoverable_ns)}, if compute"
                " grows with tokens",
            ),
        ),
        fix="; or ".join(PADDING.fixes),
        next_tools=(equal_batches(scope),),
    )
