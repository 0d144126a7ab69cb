"""From the records of a run to slopes, their readings, and the sum that checks them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.capture.inside.probe.plan import BEFORE, HOST
from profkit.compare.bench.process import left_in, records_left, why_nothing
from profkit.compare.stats.inference import t_quantile
from profkit.errors import UnsupportedTraceError
from profkit.findings.probe import PROBE_SLOPE
from profkit.model.documents.probe import ProbeReport, Reading, Slope
from profkit.probe.fit import LEVEL, Floats, Steps, Terms, fitted
from profkit.units import MANY_FETCHES

_ROW_BYTES: Final = 24  # of `ROW` in profkit/capture/inside/probe/workers.py

_Step = tuple[int, int, int, int, int, int, str | None, int | None, int]
LEAST_PROBED: Final = 40
"""Probed steps below which no slope is told (chosen: one block of four places)."""
AFTER_FETCH: Final = ("forward", "backward", "optimizer")
"""Places of the host's thread besides the fetch."""
_MOST_LAGS: Final = 40
_LAGS_ON_CUDA: Final = 3
_SHARED: Final = (*HOST, "device", "copy", "comm")
"""Places at which every rank is delayed in the same step."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What was to be done, as the process wrote it."""

    places: tuple[str, ...]
    doses_ns: tuple[int, ...]
    n_steps: int
    seed: int
    step_ns: int
    most_cost: float


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One process: its steps are `BEFORE` untouched ones, probed ones, untouched ones again."""

    reason: str
    pid: int
    rank: int
    world_size: int
    n_workers: int
    n_queued: int
    uses_cuda: bool
    step_source: str
    plan: Plan | None
    steps: tuple[_Step, ...]

    @property
    def n_probed(self) -> int:
        """Steps that the schedule reached."""
        return 0 if self.plan is None else min(max(len(self.steps) - BEFORE, 0), self.plan.n_steps)

    def column(self, place: int) -> NDArray[np.float64]:
        """One number of each step: 0 its duration, 1 to 4 its parts in the order of `HOST`, 5 batches, 8 delay."""
        return np.array([step[place] for step in self.steps], np.float64)


class Fetches(msgspec.Struct, frozen=True, kw_only=True):
    """What the workers of one process did: mean ns of a fetch (None without one), delay in ns by order, per worker."""

    mean_ns: float | None
    delays_ns: dict[int, float]


class _Run(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks of a job side by side: steps that all of them have, and each place's delay in ns in each step."""

    ranks: list[Record]
    plan: Plan
    fetches: list[Fetches]
    steps: Steps
    doses: dict[str, Floats]
    n_queued: int
    uses_cuda: bool

    @property
    def n_workers(self) -> int:
        """Workers of the rank that has most."""
        return self.steps.burst


def report(folder: Path, command: str) -> ProbeReport:
    """The slopes of a run whose records lie in a folder. Raises UnsupportedTraceError where there are none."""
    records = records_in(folder)
    ranks = ranks_of(records)
    if not ranks:  # the process that saw most says why
        by_steps = sorted(records, key=lambda record: -len(record.steps))
        raise UnsupportedTraceError(f"no slopes: {why_nothing(record.reason for record in by_steps)}")
    n_probed = min(record.n_probed for record in ranks)
    if n_probed < LEAST_PROBED:
        raise UnsupportedTraceError(
            f"no slopes: the run ended after {n_probed} probed step{'s' * (n_probed != 1)}, at least {LEAST_PROBED}"
            " are needed",
            hint="let the script run longer",
        )
    return _told(_side_by_side(folder, ranks), command)


def _side_by_side(folder: Path, ranks: list[Record]) -> _Run:
    n_steps = min(len(record.steps) for record in ranks)
    plan = ranks[0].plan
    assert plan is not None  # noqa: S101 - of all that were chosen
    fetches = [fetches_of(folder, record) for record in ranks]
    loads = np.mean([record.column(5)[:n_steps] for record in ranks], axis=0)
    step = np.arange(n_steps)
    steps = Steps(
        duration=np.mean([record.column(0)[:n_steps] for record in ranks], axis=0),
        is_probed=(step >= BEFORE) & (step < BEFORE + plan.n_steps),
        is_odd=loads > MANY_FETCHES * max(float(np.median(loads)), 1.0) - 1,
        burst=max(record.n_workers for record in ranks),
    )
    given = [_doses(record, fetched, n_steps) for record, fetched in zip(ranks, fetches, strict=True)]
    doses = {}
    for place in plan.places:
        on = [one for one, record in zip(given, ranks, strict=True) if place in (f"rank{record.rank}", *_SHARED)]
        doses[place] = np.mean([one[place] for one in on], axis=0) if on else np.zeros(n_steps)
    return _Run(
        ranks=ranks,
        plan=plan,
        fetches=fetches,
        steps=steps,
        doses=doses,
        n_queued=max(record.n_queued for record in ranks),
        uses_cuda=any(record.uses_cuda for record in ranks),
    )


def _doses(record: Record, fetched: Fetches, n_steps: int) -> dict[str, Floats]:
    """The delay in ns that one process had at each place in each step."""
    found = {place: np.zeros(n_steps) for place in (*_SHARED, *(record.plan.places if record.plan else ()))}
    n_orders = 0
    for number, step in enumerate(record.steps):
        place, delay_ns = step[6], float(step[8])
        if place == "input" and record.n_workers:
            n_orders += 1
            delay_ns = fetched.delays_ns.get(n_orders, 0.0)
        if place is not None and place in found and number < n_steps:
            found[place][number] = delay_ns
    return found


def _told(run: _Run, command: str) -> ProbeReport:
    plan = run.plan
    places = [place for place in run.doses if run.doses[place].any()]
    if not places:
        raise UnsupportedTraceError("no slopes: no step came by a place where a delay was due")
    slopes, host, total = _estimated(run, places, plan.seed)
    duration, is_probed = run.steps.duration, run.steps.is_probed
    after = duration[np.arange(len(duration)) >= BEFORE + plan.n_steps]
    has_total = not run.uses_cuda and not _unprobed(run, places)
    return ProbeReport(
        command=command,
        step_source=run.ranks[0].step_source,
        step_ns=round(float(duration[:BEFORE].mean())),
        after_ns=round(float(after.mean())) if len(after) else None,
        probed_ns=round(float(duration[is_probed].mean())),
        n_before=BEFORE,
        n_probed=int(is_probed.sum()),
        n_planned=plan.n_steps,
        n_after=len(after),
        doses_ns=plan.doses_ns,
        seed=plan.seed,
        n_ranks=len(run.ranks),
        n_workers=run.n_workers,
        most_cost=plan.most_cost,
        cost=float(sum(run.doses[place].sum() for place in places) / duration[is_probed].sum()),
        slopes=slopes,
        host=host,
        total=total[0] if has_total else None,
        total_interval=_interval(*total) if has_total else None,
        notes=tuple(_notes(run, places)),
    )


def _estimated(
    run: _Run, places: Sequence[str], seed: int
) -> tuple[tuple[Slope, ...], Slope | None, tuple[float, float]]:
    """The slope of each place, that of the host's together, and the sum over the step with its half-width."""
    terms = {place: Terms(dose=run.doses[place], n_lags=_n_lags(place, run)) for place in places}
    times_ns = {place: _time_ns(place, run) for place in places}
    is_free = ~run.steps.is_odd & (np.sum(list(run.doses.values()), axis=0) == 0)
    free_ns = float(run.steps.duration[is_free].mean())
    shares = [(times_ns[place] or 0.0) / free_ns for place in places]
    receiving = [(place == "forward") * _receive_ns(run) / free_ns for place in places]
    of_host = [(place in AFTER_FETCH) / len(AFTER_FETCH) for place in places]
    weights = np.vstack([np.eye(len(places)), shares, np.add(shares, receiving), of_host])
    try:
        found = fitted(run.steps, list(terms.values()), weights, seed=seed)
    except ValueError as error:
        raise UnsupportedTraceError(f"no slopes: {error}", hint="let the script run longer") from None
    pairs: list[tuple[float, float]] = list(zip(found.value.tolist(), found.half.tolist(), strict=True))
    slopes = tuple(
        _slope(place, pair, run, times_ns[place], _slack_ns(place, run, terms))
        for place, pair in zip(places, pairs, strict=False)
    )
    host = None
    if all(place in places for place in AFTER_FETCH):
        known = [time_ns for place in AFTER_FETCH if (time_ns := times_ns[place]) is not None]
        host = _slope("host", pairs[-1], run, sum(known) if len(known) == len(AFTER_FETCH) else None, None)
    is_waited_for = any(one.place == "input" and one.slope > PROBE_SLOPE.limit("middle") for one in slopes)
    return slopes, host, pairs[-3 if is_waited_for else -2]


def _receive_ns(run: _Run) -> float:
    """What the host takes in a step to receive a batch from a worker, if it need not wait for it; 0 without workers."""
    return float(np.median([np.median(record.column(1)) for record in run.ranks])) if run.n_workers else 0.0


def _n_lags(place: str, run: _Run) -> int:
    """The steps after a delay in which it may show, or be made good (docs/probe.md)."""
    queued = run.n_queued if place == "input" else 0
    lags = run.n_workers + 1 + queued if run.n_workers else 1
    return min(lags, _MOST_LAGS) + _LAGS_ON_CUDA * run.uses_cuda


def _time_ns(place: str, run: _Run) -> float | None:
    """What a place's part takes of a step in ns without delays, the mean over ranks; None where it is not known."""
    if place not in HOST or (run.uses_cuda and place != "input"):
        return None
    if place == "input" and run.n_workers:
        known = [one.mean_ns / run.n_workers for one in run.fetches if one.mean_ns is not None]
        return float(np.mean(known)) if known else None
    usual = ~run.steps.is_odd
    column = 1 + HOST.index(place)
    return float(np.mean([record.column(column)[: len(usual)][usual].mean() for record in run.ranks]))


def _slope(
    place: str,
    estimate: tuple[float, float],
    run: _Run,
    time_ns: float | None,
    slack_ns: tuple[int, int] | None,
) -> Slope:
    interval = _interval(*estimate)
    reading = read(estimate[0], interval)
    dose = run.doses[place] if place in run.doses else np.sum([run.doses[one] for one in AFTER_FETCH], axis=0)
    slack = (0, 0) if reading is Reading.CRITICAL else slack_ns
    worth_ns = None if time_ns is None else [round(_share(end) * time_ns) for end in (estimate[0], *interval)]
    return Slope(
        place=place,
        slope=estimate[0],
        interval=interval,
        reading=reading,
        n_treated=int(np.count_nonzero(dose)),
        dose_ns=round(float(dose[dose > 0].mean())),
        time_ns=None if time_ns is None else round(time_ns),
        worth_ns=None if worth_ns is None else worth_ns[0],
        worth_interval_ns=None if worth_ns is None else (worth_ns[1], worth_ns[2]),
        slack_ns=None if slack is None else slack[0],
        slack_least_ns=None if slack is None else slack[1],
        more_steps=more_steps(estimate[1], int(run.steps.is_probed.sum()), int(np.count_nonzero(dose)))
        if reading is Reading.INCONCLUSIVE
        else None,
    )


def read(value: float, interval: tuple[float, float]) -> Reading:
    """What a slope with its 95 % interval says."""
    low, high = interval
    beyond = PROBE_SLOPE.limit("beyond")
    if low <= -beyond or high >= 1 + beyond:
        return Reading.INCONCLUSIVE
    if value >= PROBE_SLOPE.limit("critical") and low > PROBE_SLOPE.limit("middle"):
        return Reading.CRITICAL
    if value <= PROBE_SLOPE.limit("hidden") and high < PROBE_SLOPE.limit("middle"):
        return Reading.HIDDEN
    return Reading.PARTLY if low > 0 and high < 1 else Reading.INCONCLUSIVE


def more_steps(half: float, n_probed: int, n_treated: int) -> int:
    """Probed steps more, to the next 50, after which an interval of that half-width is narrow enough to be read.

    With more treated steps Student's t comes closer to the normal distribution, too.
    """
    half *= NormalDist().inv_cdf(0.5 + LEVEL / 2) / t_quantile(0.5 + LEVEL / 2, max(n_treated - 1, 2))
    settled = PROBE_SLOPE.limit("settled")
    wanted = settled if half > settled else half / 2
    return math.ceil(n_probed * ((half / wanted) ** 2 - 1) / 50) * 50


def _slack_ns(place: str, run: _Run, terms: dict[str, Terms]) -> tuple[int, int] | None:
    """How much of the larger dose did not show, and the least that the interval allows; None where it is not known."""
    dose = run.doses[place]
    is_large: NDArray[np.bool_] = dose > float(np.mean(run.plan.doses_ns))
    if not is_large.any() or not (dose[~is_large] > 0).any():
        return None
    parts = [np.where(is_large, dose, 0.0), np.where(is_large, 0.0, dose)]
    n_lags = terms[place].n_lags
    both = [Terms(dose=part, n_lags=n_lags) for part in parts]
    others = [term for name, term in terms.items() if name != place]
    try:
        found = fitted(run.steps, [*both, *others], np.eye(1, 2 + len(others)), n_shuffles=0)
    except ValueError:
        return None
    large_ns = float(dose[is_large].mean())
    free = 1 - float(found.value[0])
    return round(_share(free) * large_ns), round(_share(free - float(found.half[0])) * large_ns)


def _interval(value: float, half: float) -> tuple[float, float]:
    return value - half, value + half


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _unprobed(run: _Run, places: Sequence[str]) -> list[str]:
    """The host's parts that these steps have, and that have no slope."""
    fetches = any(record.column(5).any() for record in run.ranks)
    parts = [place for place in HOST if fetches or place != "input"]
    return [place for place in parts if place not in places and _time_ns(place, run) != 0]


def _notes(run: _Run, places: Sequence[str]) -> list[str]:
    notes = []
    missed = [place for place in run.doses if place not in places]
    if missed:
        notes.append(f"no step came by {', '.join(missed)} where a delay was due")
    unprobed = [place for place in _unprobed(run, places) if place not in missed]
    if unprobed and not run.uses_cuda:
        notes.append(f"there is no sum: {', '.join(unprobed)} was not probed")
    if run.steps.is_odd.any():
        n_odd = int(run.steps.is_odd.sum())
        notes.append(f"{n_odd} step{'s' * (n_odd != 1)} with another loop inside (a validation?) left out")
    if run.uses_cuda:
        notes.append("on CUDA there is no sum: the time of the device's work is unknown without a trace")
    if len(run.ranks) < run.ranks[0].world_size:
        notes.append(f"the steps are those of {len(run.ranks)} of {run.ranks[0].world_size} ranks")
    return notes


def records_in(folder: Path) -> list[Record]:
    """The records of a run's processes, by rank; what is not one is passed over."""
    return sorted(records_left(folder, "*.probed", Record), key=lambda record: (record.rank, -len(record.steps)))


def ranks_of(records: Sequence[Record]) -> list[Record]:
    """One record of each rank of the job that was probed longest; [] where none has a plan."""
    planned = [record for record in records if record.plan is not None]
    if not planned:
        return []
    size = max(planned, key=lambda record: record.n_probed).world_size
    if size == 1:
        return [max(planned, key=lambda record: record.n_probed)]
    by_rank = {record.rank: record for record in reversed(planned) if record.world_size == size}
    return [by_rank[rank] for rank in sorted(by_rank)]


def fetches_of(folder: Path, record: Record) -> Fetches:
    """The fetches of one process's workers."""
    files = (data[: len(data) // _ROW_BYTES * _ROW_BYTES] for data in left_in(folder, f"{record.pid}.*.rows"))
    rows = np.concatenate([np.empty((0, 3), np.int64), *(np.frombuffer(data, "<i8").reshape(-1, 3) for data in files)])
    obeyed = rows[rows[:, 0] > 0]
    totals: dict[int, float] = {}
    for number, delay_ns, _ in obeyed.tolist():
        totals[number] = totals.get(number, 0.0) + delay_ns / max(record.n_workers, 1)
    return Fetches(mean_ns=float(rows[:, 2].mean()) if len(rows) else None, delays_ns=totals)
