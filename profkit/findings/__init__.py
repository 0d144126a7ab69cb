"""One home for each kind of finding: id, title, thresholds, bottleneck class, what it supersedes, fix and proof.

In: nothing. Out: `KINDS` and `kind_of`, which analyzers, the verdict and `profkit explain` read. Begin with `kind`; each
other file holds one family of kinds (`ranks/`: those that only several ranks show), and a new kind in it is found by itself.
"""

from __future__ import annotations

from typing import Final

from profkit.findings import (
    again,
    capture,
    changes,
    chores,
    communication,
    comparison,
    copies,
    crosscheck,
    host,
    input,  # noqa: A004 - the question's own name
    kernels,
    memory,
    patterns,
    probe,
    roof,
    trainers,
    wasted,
    whole_run,
)
from profkit.findings.kind import FindingKind
from profkit.findings.ranks import pipeline, stragglers, tokens
from profkit.model.budget import Budget
from profkit.model.finding import Finding

_FAMILIES: Final = (
    capture,
    input,
    host,
    chores,
    whole_run,
    communication,
    copies,
    memory,
    kernels,
    roof,
    patterns,
    wasted,
    again,
    trainers,
    stragglers,
    tokens,
    pipeline,
    crosscheck,
    probe,
    comparison,
    changes,
)
KINDS: Final[dict[str, FindingKind]] = {
    kind.id: kind for family in _FAMILIES for kind in vars(family).values() if isinstance(kind, FindingKind)
}
"""All kinds by id, in the order of `profkit explain`."""


def kind_of(finding_id: str) -> FindingKind:
    """The kind of a finding's id."""
    return KINDS[finding_id]


def shown_share(finding: Finding, budget: Budget | None) -> float:
    """A finding's share of the window (0-1) as it is printed: of parts of the budget, as the bar has them.

    `budget` is None where the finding is on all ranks: the bar is that of one rank, which has another share.
    """
    part = None if budget is None else kind_of(finding.id).part
    if budget is None or part is None:
        return finding.fraction
    return budget.shown(*part.budget, total_ns=round(finding.fraction * budget.window_ns))
