"""How much of the sequences that a loader gives is padding, as profkit capture counted it in the first batches?"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from profkit.analyzers.base import Analyzer, Scope, scope_of
from profkit.findings.kernels import PADDED_BATCHES
from profkit.model.documents.rank_report import Section
from profkit.model.finding import Evidence, Finding, Skipped
from profkit.shell import clean
from profkit.timeline import Facts
from profkit.timeline.code.helpers import whole_ns
from profkit.units import format_fraction

_LONGEST_NAME = 40
_COUNTS = ("n_batches", "n_padded", "n_all", "longest")


class Padded(msgspec.Struct, frozen=True, kw_only=True):
    """Positions in these batches, and the time that depends on their number."""

    scope: Scope
    of: str
    """The name of the tensor in the batch, "" where it has none."""
    n_batches: int
    n_padded: int
    n_all: int
    lengths: tuple[int, ...]
    """The lengths that batches are padded to, in order."""
    longest: int
    """The most positions of a row that are no padding."""
    compute: float
    """The share (0-1) of the window that compute takes."""

    @property
    def share(self) -> float:
        """The share (0-1) of the positions that is padding."""
        return self.n_padded / self.n_all


def measure(facts: Facts) -> Padded | Skipped:
    """Read what the capture wrote."""
    told = facts.trace.meta.metadata.get("profkit_padding")
    numbers = [whole_ns(told.get(key)) for key in _COUNTS] if isinstance(told, Mapping) else []
    if not isinstance(told, Mapping) or not all(numbers):
        return Skipped(
            reason="no padded sequences were seen in the batches",
            how_to_get="record with profkit capture a loop that takes batches from a DataLoader",
        )
    n_batches, n_padded, n_all, longest = numbers
    lengths = told.get("lengths")
    return Padded(
        scope=scope_of(facts),
        of=clean(str(told.get("of", ""))[:_LONGEST_NAME]),
        n_batches=n_batches,
        n_padded=min(n_padded, n_all),
        n_all=n_all,
        lengths=tuple(filter(None, map(whole_ns, lengths))) if isinstance(lengths, list) else (),
        longest=longest,
        compute=facts.budget.fraction("compute"),
    )


def judge(result: Padded) -> tuple[Finding, ...]:
    """`work.padding` where half of the positions and more are padding."""
    fraction = result.share * result.compute
    if result.share < PADDED_BATCHES.limit("padding") or fraction < PADDED_BATCHES.limit("window"):
        return ()
    is_fixed = len(result.lengths) == 1 and result.longest < result.lengths[0]
    length = f"always {result.lengths[0]}" if len(result.lengths) == 1 else "the longest of its batch"
    of = f" of `{result.of}`" if result.of else ""
    scope = result.scope
    return (
        PADDED_BATCHES.found(
            title=f"{format_fraction(result.share)} of the positions that the model computes are padding",
            fraction=fraction,
            confidence=0.8,
            recoverable_ns=scope.per_step(round(fraction * scope.window_ns)),
            evidence=(
                Evidence.share(
                    "padding.share",
                    result.share,
                    f"{result.n_padded:,} of {result.n_all:,} positions{of} in the first {result.n_batches} batches are"
                    " padding at the end of a row",
                    expected=f"< {format_fraction(PADDED_BATCHES.limit('padding'))}",
                ),
                Evidence.count(
                    "padding.longest",
                    result.longest,
                    f"rows are padded to {length}; the longest one has {result.longest} positions of its own",
                ),
            ),
            fix=PADDED_BATCHES.fixes[0] if is_fixed else PADDED_BATCHES.fixes[1],
        ),
    )


def present(result: Padded) -> Section:
    """Show what was counted."""
    return Section(
        title="padding",
        values={"share": result.share, "n_padded": result.n_padded, "n_all": result.n_all, "longest": result.longest},
    )


ANALYZER = Analyzer(
    name="padding",
    question="how much of the sequences is padding?",
    needs="a capture by profkit of a loop with a DataLoader that gives padded sequences",
    measure=measure,
    judge=judge,
    present=present,
)
