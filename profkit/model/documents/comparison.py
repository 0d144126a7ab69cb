"""What a comparison found, as plain values: two sides, what changed between them, and why. Renderers know nothing else.

Times are integer ns per step (per window where no steps were found). Every account here is exact: its parts sum to what
it accounts for, in integers, or the constructor raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from profkit.model.documents.report import Failure
from profkit.model.documents.shown import Shown
from profkit.model.finding import Finding
from profkit.plain import clean


class BothSides(msgspec.Struct, frozen=True, kw_only=True):
    """A time on both sides, ns per step."""

    baseline_ns: int
    candidate_ns: int

    @property
    def delta_ns(self) -> int:
        """What the candidate spends more, negative for less."""
        return self.candidate_ns - self.baseline_ns

    def must_be_sum_of(self, parts: Sequence[BothSides]) -> None:
        """Raise ValueError where the parts do not sum to it on both sides."""
        for side in ("baseline_ns", "candidate_ns"):
            if sum(getattr(part, side) for part in parts) != getattr(self, side):
                raise ValueError(f"the parts do not sum to {side} = {getattr(self, side)}")


class Bar(BothSides, frozen=True, kw_only=True):
    """One part of the step."""

    name: str


class Waterfall(BothSides, frozen=True, kw_only=True):
    """The step by the parts of the budget; on each side they sum to the step, so their changes do too."""

    bars: tuple[Bar, ...]

    def __post_init__(self) -> None:
        self.must_be_sum_of(self.bars)

    def bar(self, name: str) -> Bar:
        """The bar of one part; raises KeyError."""
        return {bar.name: bar for bar in self.bars}[name]


class Presence(StrEnum):
    """Where a kernel, collective or finding was seen."""

    BOTH = "both"
    APPEARED = "appeared"
    VANISHED = "vanished"
    REPLACED = "replaced"
    """Other kernels of the same operator and family on each side."""


class WorkChange(BothSides, frozen=True, kw_only=True):
    """One kernel, operator or collective: how often per step, how long per step in all.

    The change is split: launches that one side has more of, at that side's mean duration, are by count; what the
    launches take longer that both sides have is by duration. Neither is more than the row's larger time; swapping the
    sides negates both. What is on one side only is all count. `by_count_ns + by_duration_ns` is the change, exactly.
    """

    name: str
    operator: str
    """The operator that launched it, "" where unknown."""
    family: str
    presence: Presence
    baseline_count: float
    candidate_count: float
    by_count_ns: int
    by_duration_ns: int
    replaced_by: str = ""
    """The candidate's kernel where another took the baseline's place."""

    def __post_init__(self) -> None:
        if self.by_count_ns + self.by_duration_ns != self.delta_ns:
            raise ValueError(f"{self.name}: {self.by_count_ns} + {self.by_duration_ns} is not {self.delta_ns} ns")


class Account(BothSides, frozen=True, kw_only=True):
    """How the busy time of compute, or of communication, changed: rows, the rest, and what ran side by side.

    Durations sum to more than busy time where two run at once: `side_by_side` is that excess, counted negative.
    `rows + rest + side_by_side` is the change of busy time, exactly.
    """

    rows: tuple[WorkChange, ...]
    rest: WorkChange
    n_rest: int
    side_by_side: Bar

    def __post_init__(self) -> None:
        self.must_be_sum_of((*self.rows, self.rest, self.side_by_side))


class FindingChange(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of `profkit triage` on both sides: its share of the window, None where it was not found."""

    id: str
    title: str
    presence: Presence
    baseline_fraction: float | None
    candidate_fraction: float | None


class Unlike(msgspec.Struct, frozen=True, kw_only=True):
    """Something in which the two sides are not alike, so that the change may not be what was meant to be compared."""

    what: str
    baseline: str
    candidate: str


class SideReport(msgspec.Struct, frozen=True, kw_only=True):
    """One side: its runs and what its device did, mean of runs and ranks, ns per step; shares are 0-1 of the step."""

    name: str
    sources: tuple[str, ...]
    n_runs: int
    n_traces: int
    n_steps: int
    """Steps recorded, over all traces; 0 where none were found: then a "step" is the whole window."""
    device: str
    is_cpu: bool
    bottleneck: str
    """The verdict of `profkit triage` on all ranks of a run; of several runs the most frequent."""
    late_rank: int | None = None
    """The rank that the verdicts of all runs name."""
    occupancy: dict[str, float]
    """compute, comm, copy, idle."""
    busy_comm_ns: int
    hidden_comm_ns: int
    peak_memory_bytes: int | None
    run_values: tuple[float, ...]
    """What is judged, one value per run."""

    @property
    def comm_hidden_fraction(self) -> float | None:
        """Share of communication under compute; None without communication."""
        return self.hidden_comm_ns / self.busy_comm_ns if self.busy_comm_ns else None


class Answer(StrEnum):
    """The four answers; `inconclusive` says that these runs cannot tell, not that nothing changed."""

    IMPROVED = "improved"
    REGRESSED = "regressed"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a change helped: what two samples of runs say, and the means it is about.

    Fractions are of the baseline's mean; positive `effect` and `interval` are better, for programs that decide; people
    are shown `change` and `change_interval`, of which minus is less. `ratio` is candidate over baseline. `interval` has
    level 1 - alpha. `p_value` is of `test`. `n` counts runs (blocks, where `test` is paired) per side.
    `minimum_detectable_effect` is what this design sees in four of five repetitions; `runs_to_settle` is how many runs
    per side would see the larger of effect and margin so often, None where it is settled, no spread is known or no
    number of runs that is made would see it.
    `method_note` says what a reader who checks needs to know.
    """

    metric: str
    unit: str
    higher_is_better: bool
    baseline_mean: float
    candidate_mean: float
    answer: Answer
    sentence: str
    is_comparable: bool = True
    """False where the values are of different things, and no test was made."""
    ratio: float
    effect: float
    interval: tuple[float, float] | None
    p_value: float | None
    test: str
    n: tuple[int, int]
    unit_of_replication: str
    margin: float
    minimum_detectable_effect: float | None
    runs_to_settle: int | None
    method_note: str

    @property
    def change(self) -> float:
        """The change of the value itself, a fraction of the baseline's: minus is less, whichever is better."""
        return self.ratio - 1

    @property
    def change_interval(self) -> tuple[float, float] | None:
        """The interval of the change; None where the runs support none."""
        if self.interval is None or self.higher_is_better:
            return self.interval
        return -self.interval[1], -self.interval[0]


class Comparison(Shown, frozen=True, kw_only=True):
    """Everything `profkit compare` knows. Only `judgement` is a test; the rest is what happened in these captures."""

    judgement: Judgement
    baseline: SideReport
    candidate: SideReport
    waterfall: Waterfall | None
    """None where no step can be set against a step: tables, or steps on one side only."""
    compute: Account | None
    comm: Account | None
    findings: tuple[FindingChange, ...]
    readings: tuple[Finding, ...]
    unlike: tuple[Unlike, ...]
    caveats: tuple[str, ...]
    failures: tuple[Failure, ...] = ()
    configurations: tuple[tuple[str, Judgement], ...] = ()
    """Where tables hold several configurations: each judged by itself; `judgement` is then the worst of them."""

    def __repr__(self) -> str:
        """One line: the answer, and what was measured."""
        judged = self.judgement
        answer = judged.answer if judged.is_comparable else "not comparable"
        return clean(f"<Comparison: {answer}: {judged.metric}: {judged.sentence}>")
