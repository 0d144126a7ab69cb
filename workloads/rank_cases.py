"""The cases of the two labs on many ranks: what each runs, what is true of it, and what an analysis has to say.

`truth` is what the workload was built to do. `stragglers`, `findings` and `excluded` say it in profkit's words: which
ranks are late and in which phase, which findings there must be, and which there must not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_BLAME: Final = frozenset({"straggler.rank", "rank0.work", "collective.extra"})
_SKEW_AND_WASTE: Final = frozenset({"token.skew", "padding.waste"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case of a lab; `study` is "ddp" or "token_skew", which is also its module in `workloads`."""

    study: str
    slug: str
    title: str
    category: str
    flags: tuple[str, ...]
    n_ranks: int
    truth: str
    n_steps: int = 11
    """Steps to record. Chosen: two ranks need 9 blocks for p < 0.005, clocks 20 ends, of which a step has two; and all
    captures of `traces/` together stay near 6 MB."""
    stragglers: Mapping[int, str] = field(default_factory=dict)
    findings: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The name of the case's trace folder."""
        return f"{self.study}_{self.slug}"

    def arguments(self, *more: str) -> list[str]:
        """Gives the arguments of torchrun that run the case, with flags for the workload behind its own."""
        return ["--nproc-per-node", str(self.n_ranks), "-m", f"workloads.{self.study}", *self.flags, *more]


def _healthy(slug: str, title: str, category: str, *, n_ranks: int, batch: int) -> Case:
    return Case(
        study="ddp",
        slug=slug,
        title=title,
        category=category,
        flags=("--batch", str(batch)),
        n_ranks=n_ranks,
        truth=f"Healthy: {n_ranks} rank{'s' * (n_ranks > 1)}, {batch} samples each, no rank does what others do not.",
        excluded=_BLAME,
    )


def _fault(mode: str, title: str, truth: str, *, findings: set[str], late: str = "") -> Case:
    """Gives a fault on four ranks; `late` is the phase in which rank 0 is, "" if it is not."""
    return Case(
        study="ddp",
        slug=f"{mode}_ws4",
        title=title,
        category="fault",
        flags=("--mode", mode),
        n_ranks=4,
        truth=truth,
        stragglers={0: late} if late else {},
        findings=frozenset(findings),
        excluded=_BLAME - findings,
    )


DDP: Final = (
    _healthy("weak_ws1", "Weak scaling, 1 rank", "weak", n_ranks=1, batch=128),
    _healthy("weak_ws2", "Weak scaling, 2 ranks", "weak", n_ranks=2, batch=128),
    _healthy("weak_ws4", "Weak and strong scaling, 4 ranks", "weak, strong", n_ranks=4, batch=128),
    _healthy("strong_ws1", "Strong scaling, 1 rank", "strong", n_ranks=1, batch=512),
    _healthy("strong_ws2", "Strong scaling, 2 ranks", "strong", n_ranks=2, batch=256),
    _fault(
        "straggler",
        "Straggler rank",
        "Rank 0 sleeps 40 ms before it fetches each batch; the others wait for it in the gradients' all-reduce.",
        late="data",
        findings={"straggler.rank"},
    ),
    _fault(
        "comm",
        "Extra all-reduce",
        "The script sends 128 MB per step through an all-reduce of its own, beside 12.4 MB of gradients.",
        findings={"collective.extra"},
    ),
    _fault(
        "barrier",
        "Rank-0 work and barrier",
        "Rank 0 alone sleeps 20 ms after each step, then all meet at a barrier.",
        late="host",
        findings={"straggler.rank", "rank0.work"},
    ),
)


def _batched(strategy: str, title: str, truth: str, *, findings: frozenset[str] = frozenset()) -> Case:
    return Case(
        study="token_skew",
        slug=f"{strategy}_ws4",
        title=title,
        category="fault" if findings else "healthy",
        flags=("--strategy", strategy),
        n_ranks=4,
        truth=truth,
        findings=findings,
        # Padding that varies is tokens that vary: whether ranks wait for them is for the analysis to say.
        excluded=_BLAME if findings else _BLAME | _SKEW_AND_WASTE,
    )


TOKEN_SKEW: Final = (
    _batched("uniform", "Uniform lengths", "Healthy: 8 sequences of 128 tokens on each rank, in each step."),
    _batched(
        "fixed_count",
        "Fixed count",
        "8 sequences of 64 to 256 tokens as they come, padded to the longest: two fifths of the tokens are padding.",
        findings=frozenset({"padding.waste"}),
    ),
    _batched("bucketing", "Bucketing", "8 sequences of like length: next to no padding, ranks alike in each step."),
    _batched("token_budget", "Token budget", "As many sequences of like length as 1,280 padded tokens hold."),
    _batched("packing", "Packing", "Sequences end to end in rows of up to 1,280 tokens: no padding at all."),
    # Not of the published study, where tokens differ by 7 %: two ranks, so that two cores are enough, steps in which
    # compute outweighs the machine's noise, and enough of them to tell tokens from chance.
    Case(
        study="token_skew",
        slug="long_tail_ws2",
        title="Fixed count, long tail",
        category="fault",
        flags=(
            *("--strategy", "fixed_count", "--batch", "2", "--max-length", "1024"),
            *("--hidden", "192", "--seed", "2", "--steps", "48"),
        ),
        n_ranks=2,
        n_steps=24,
        truth="2 sequences of 64 to 1,024 tokens as they come: the larger rank has a third more than the mean.",
        findings=_SKEW_AND_WASTE,
        excluded=_BLAME,
    ),
)
CASES: Final = (*DDP, *TOKEN_SKEW)
