"""Which changes are worth a trial by the verdict, and what the verdict predicts of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from profkit.errors import UsageError
from profkit.findings.patterns import IDLE_CORES
from profkit.findings.probe import PREDICTION
from profkit.model.documents.report import Bottleneck, Report
from profkit.trial.catalogue import ABLATIONS, CATALOGUE, FIXES, Change
from profkit.trial.outcome import Made, Record, Run
from profkit.units import format_fraction
from profkit.verdict.on_cpu import most_of

MOST_FIXES: Final = 4
"""Tried without being asked for (chosen: each costs a run per block)."""
MOST_WORKERS: Final = 8
SETTLING: Final = 3
"""First steps that count for nothing: allocator, autotuning, first batches (as in a capture)."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A change as it is to be tried: with its arguments, and what is predicted of it; `predicted` None for nothing.

    `why_not`: why it cannot be made in this run; "" where it can.
    """

    change: Change
    how: dict[str, object]
    keep: str = ""
    finding_ids: tuple[str, ...] = ()
    predicted: tuple[float, float] | None = None
    why_predicted: str = ""
    why_not: str = ""

    @property
    def told(self) -> tuple[float, float] | None:
        """The prediction, where it says something: what allows nearly all gains is none."""
        ends = self.predicted
        return ends if ends is not None and ends[1] - ends[0] <= PREDICTION.limit("wide") else None

    @property
    def made(self) -> Made:
        """What a run is given."""
        return Made(key=self.change.key, how=self.how, variables=self.change.variables)


def chosen(report: Report, plain: Run, only: Sequence[str], *, with_ablations: bool) -> list[Candidate]:
    """The candidates: those asked for, else the fixes of the verdict's findings, and one ablation if wanted.

    What promises most comes first. Raises UsageError for a change that nobody knows.
    """
    known = Known(shares=gains_of(report), fusible=_fusible(report), plain=plain)
    if only:
        for key in only:
            if key not in CATALOGUE:
                raise UsageError(f"there is no change {key!r}", hint=f"one of {', '.join(CATALOGUE)}")
        return [candidate(CATALOGUE[key], known) for key in dict.fromkeys(only)]
    fixes, bounds = (
        [one for change in changes if not (one := candidate(change, known)).why_not] for changes in (FIXES, ABLATIONS)
    )
    for some in (fixes, bounds):
        some.sort(key=lambda one: -(one.predicted or (0.0, 0.0))[1])
    promising = [one for one in fixes if _is_promising(one, report, plain.record)]
    return [*promising[:MOST_FIXES], *[one for one in bounds if one.predicted][: int(with_ablations)]]


def gains_of(report: Report) -> dict[str, float]:
    """What each finding says can be saved at most, as a share of the step; of one id the largest."""
    step_ns = report.verdict.step_ns
    found: dict[str, float] = {}
    if not step_ns:
        return found
    for finding in (*report.verdict.findings, *report.findings):
        share = min(finding.recoverable_ns / step_ns, 1.0)
        if share >= PREDICTION.limit("worth"):
            found[finding.id] = max(share, found.get(finding.id, 0.0))
    return found


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What predictions stand on: what each finding's cause is worth at most, and a run as it is.

    `fusible`: the share of the step that is neither waiting for data nor in matrix products; None where not known.
    """

    shares: dict[str, float]
    fusible: float | None
    plain: Run

    @property
    def optimizer(self) -> float:
        """The share of the step in the optimizer, by the host's clock."""
        return self.plain.parts_ns["optimizer"] / self.plain.step_ns


def _fusible(report: Report) -> float | None:
    """What torch.compile could save at most of a step: it leaves matrix products and the loader as they are."""
    if len(report.ranks) != 1 or len(report.ranks[0].devices) != 1:
        return None
    budget = report.ranks[0].devices[0].budget
    shares = [section.values.get("matrix_share") for section in report.ranks[0].sections]
    matrix = next((share for share in shares if isinstance(share, float)), None)
    if matrix is None or not budget.window_ns:
        return None
    return float(max(1 - budget.fraction("compute") * matrix - budget.fraction("idle_data"), 0.0))


def candidate(change: Change, known: Known) -> Candidate:
    """A change for this run."""
    how, why_not = _how(change, known.plain.record)
    mine = tuple(one for one in change.findings if one in known.shares)
    predicted, why = _predicted(change, mine, how, known)
    return Candidate(
        change=change,
        how=how,
        keep=change.keep.format(**how) if change.keep else "",
        finding_ids=mine,
        predicted=predicted,
        why_predicted=why,
        why_not=why_not,
    )


def _is_promising(one: Candidate, report: Report, record: Record) -> bool:
    """Whether a finding speaks for it; more threads where the work itself takes the step, and cores are left."""
    if one.change.key == "threads" and record.n_threads < _threads(record):
        return report.verdict.bottleneck is Bottleneck.KERNEL or IDLE_CORES.id in one.finding_ids
    return one.predicted is not None


def _how(change: Change, record: Record) -> tuple[dict[str, object], str]:
    """The arguments of a change in this run, and why it cannot be made."""
    has = {
        "cuda": (record.uses_cuda, "the run does not use CUDA"),
        "loader": (any(step[5] for step in record.steps), "the steps fetch from no DataLoader"),
        "workers": (record.n_workers > 0, "the DataLoader has no workers"),
        "fused": (record.traits.get("has_fused", False), "the optimizer has no fused implementation, or uses it"),
        "foreach": (record.traits.get("has_foreach", False), "the optimizer has no foreach implementation, or uses it"),
        "convolutions": (record.traits.get("has_convolutions", False), "the model has no Conv2d"),
        "ddp": (record.traits.get("is_ddp", False), "the model is not under DDP"),
        "fsdp": (record.traits.get("is_fsdp", False), "the model is not under FSDP"),
        "bf16": (record.uses_cuda or record.has_bf16, "the CPU does not multiply in bfloat16"),
        "fp64": (record.traits.get("has_fp64", False), "the model has no weights in double precision"),
        "cores": (record.n_threads != _threads(record), f"operators use {record.n_threads} threads already"),
        "ranks": (record.world_size > 1, "there is one rank"),
    }
    why_not = next((has[need][1] for need in change.needs if not has[need][0]), "")
    how = dict(change.how)
    if change.key == "workers":
        how["n_workers"] = _workers(record)
    elif change.key == "prefetch":
        how["prefetch_factor"] = 2 * max(record.n_queued // max(record.n_workers, 1), 2)
    elif change.key == "threads":
        how["n_threads"] = _threads(record)
    return how, why_not


def _workers(record: Record) -> int:
    """Loader workers to try: a core's worth each without any, twice as many as there are."""
    most = max(min(record.n_cores // max(record.world_size, 1), MOST_WORKERS), 2)
    return 2 * record.n_workers if record.n_workers else most


def _threads(record: Record) -> int:
    return max(record.n_cores // max(record.world_size, 1), 1)


def _predicted(
    change: Change, mine: Sequence[str], how: dict[str, object], known: Known
) -> tuple[tuple[float, float] | None, str]:
    """The share of the step that a change saves, from the verdict, and how that follows."""
    record = known.plain.record
    if change.key == "threads" and record.n_threads < _threads(record):  # contention asks for fewer, not for more
        factor = _threads(record) / record.n_threads
        said = f"{_threads(record)} threads for {record.n_threads} save at most 1 - 1/{factor:.3g} of the step"
        return (0.0, 1 - 1 / factor), said
    if not mine:
        return None, ""
    most = min(sum(known.shares[one] for one in mine), 1.0)
    bound = most if record.uses_cuda else most_of(most, *mine)
    names = " and ".join(mine)
    if change.key == "workers" and not record.n_workers:
        return _of_workers(most, bound, int(str(how["n_workers"])), record.n_cores)
    if change.is_ablation:
        close = PREDICTION.limit("close")
        said = (
            f"{names}: at most {format_fraction(bound)}; removing it all gives {format_fraction(close * most)} or more"
        )
        return (close * most, bound), said
    if change.key == "compile" and known.fusible is not None:
        said = f"{format_fraction(known.fusible)} of the step is neither matrix products nor waiting for data"
        return (0.0, known.fusible), f"{said}; what else is in it torch.compile may fuse"
    if change.key in {"fused", "foreach"} and not record.uses_cuda:
        return (0.0, known.optimizer), f"the optimizer takes {format_fraction(known.optimizer)} of the step"
    return (0.0, bound), f"{names}: at most {format_fraction(bound)} of the step"


def _of_workers(share: float, bound: float, n_workers: int, n_cores: int) -> tuple[tuple[float, float], str]:
    """Fetching, a share of the step, is done beside the rest of it by so many workers.

    At best it waits and takes no core, and saves its `bound`; at worst it computes, and all work shares the cores.
    """
    receiving = PREDICTION.limit("receiving")
    best = 1 - max(1 - bound, share / n_workers)
    worst = 1 - max(1 - share, share / n_workers, 1 / n_cores) - receiving
    said = (
        f"fetching is {format_fraction(share)} of the step; {n_workers} workers do it beside the rest, on {n_cores}"
        f" cores, and receiving a batch takes up to {format_fraction(receiving)}"
    )
    return (max(worst, 0.0), best), said


def settling(candidates: Sequence[Candidate], plain: Run) -> int:
    """Steps that are left out at the start of every run: what the slowest change takes until its steps stay alike."""
    record = plain.record
    most = max((int(str(one.how.get("n_workers", 0))) for one in candidates), default=0)
    n_queued = max(record.n_queued, 2 * max(most, record.n_workers))
    loading = n_queued + max(most, record.n_workers) + 1 if max(most, record.n_workers) else 0
    return SETTLING + max((loading, *(one.change.n_settling for one in candidates)))


def expected_ns(candidates: Sequence[Candidate], plain: Run, n_settling: int) -> int:
    """What one block takes, ns: the unchanged run and each change, with more steps to settle than the plain run had."""
    more_ns = round(max(n_settling - SETTLING, 0) * plain.step_ns)
    starts_ns = sum(one.change.starting_ns for one in candidates)
    return (1 + len(candidates)) * (plain.wall_ns + more_ns) + starts_ns
