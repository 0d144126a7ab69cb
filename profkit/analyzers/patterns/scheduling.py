"""Whether the training thread had a core to run on, as profkit capture read it from the scheduler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from profkit.analyzers.base import Analyzer, Scope, scope_of
from profkit.analyzers.patterns.threads import Threads, judge_threads, table, threads_of
from profkit.findings.patterns import CONTENTION, CORES_TAKEN, GIL
from profkit.model.code import PlaceShare
from profkit.model.documents.rank_report import Section
from profkit.model.finding import Evidence, Finding, Skipped
from profkit.timeline import Facts
from profkit.timeline.scheduled import own_share, usable_cores
from profkit.units import format_fraction, format_ns

_SLEEPS: Final = 0.1
"""Of the recorded time, from which its sleep in operators alone is a finding. Chosen: twice the severity medium, as helpers work for some of it.
All of it counts, since fewer threads also spare switches: 4 threads on two cores slept 40 %, waited 5 % and took 2.2 times as long as one; 16
slept 34 %, waited 42 % and took 2.3 times as long as two."""
_CROWDED: Final = 2 / 3
"""Chosen: half of the cores' time for a job that has more threads than cores."""
_CONFIDENCE: Final = 0.8
"""The kernel counts it; how much of it the step loses is not known. Chosen."""

_SLACK: Final = 0.2
"""Of a core, which threads of PyTorch and of profkit itself take beside the training thread. Chosen."""


class Switches(msgspec.Struct, frozen=True):
    """How often threads left their core: because they had to wait, and because it was taken from them."""

    voluntary: int
    involuntary: int


class Scheduling(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over the recorded steps, ns; None where the capture could not read them."""

    scope: Scope
    span_ns: int
    run_ns: int
    wait_ns: int
    all_run_ns: int | None = None
    """Of all threads of the process, as `all_wait_ns`."""
    all_wait_ns: int | None = None
    throttled_ns: int | None = None
    """Taken by the container's quota, from all its processes."""
    cores: int | None = None
    usable_cores: float | None = None
    """These, or less where the container has a quota."""
    own_share: float | None = None
    """Share (0-1) of their time in which this job ran: its ranks here, and what they started."""
    threads: int | None = None
    """Threads that share one operator."""
    children: int | None = None
    """Processes that this one has started; None where nobody counted."""
    children_run_ns: int = 0
    ranks: int = 1
    """Processes of the job that were started with the same cores."""
    quota_millicores: int | None = None
    """What the container may use of its cores, in thousandths of one."""
    switches: Switches | None = None
    """Of the training thread."""
    all_switches: Switches | None = None
    """Of all threads of the process."""
    others: Threads | None = None
    """The other threads of Python; None where there are none."""
    most_ns: int | None = None
    """Of a GPU: by how much the window would be shorter if the host took no time at all."""
    asleep_share: float = 0.0
    """Share (0-1) of the recorded time in which the training thread wanted no core, but for waits for data and ranks:
    it waits for other threads. Where the CPU is the device."""
    is_beside: bool = False
    """Whether its waits for a core are those for programs of others, and count as such."""

    @property
    def wait_share(self) -> float:
        """Share (0-1) of the recorded time in which the training thread waited for a core."""
        return min(self.wait_ns / self.span_ns, 1.0)

    @property
    def wanted_cores(self) -> float | None:
        """The cores that the threads of this process ran on or waited for, on average."""
        known = self.all_run_ns is not None and self.all_wait_ns is not None
        return ((self.all_run_ns or 0) + (self.all_wait_ns or 0)) / self.span_ns if known else None

    @property
    def helpers_share(self) -> float:
        """Share (0-1) of the recorded time in which operators wait for their own threads, which are more than cores."""
        return self.asleep_share if _is_crowded(self) and (self.threads or 0) > 1 else 0.0

    @property
    def is_asleep(self) -> bool:
        """Whether it hardly waits for a core, or for others alone, and sleeps while its operators' threads share too few of them."""
        is_small = self.is_beside or self.wait_share < CONTENTION.limit("window")
        return is_small and self.helpers_share >= _SLEEPS

    @property
    def crowding(self) -> float | None:
        """The threads that the ranks on these cores may run operators on, for each core."""
        cores = self.usable_cores
        return self.threads * self.ranks / cores if self.threads and cores else None


def measure(facts: Facts) -> Scheduling | Skipped:
    """Read what the capture wrote."""
    told = facts.trace.meta.scheduling
    span, run, wait = (told.get(key) for key in ("span_ns", "run_ns", "wait_ns"))
    if not span or run is None or wait is None:
        return Skipped(
            analyzer="scheduling",
            reason="the trace does not say whether the training thread had a core",
            how_to_get="record with profkit capture, on Linux",
        )
    return Scheduling(
        scope=scope_of(facts),
        span_ns=span,
        run_ns=run,
        wait_ns=wait,
        all_run_ns=told.get("all_run_ns"),
        all_wait_ns=told.get("all_wait_ns"),
        throttled_ns=told.get("throttled_ns"),
        children=told.get("children"),
        children_run_ns=told.get("children_run_ns", 0),
        cores=told.get("cores"),
        usable_cores=usable_cores(told),
        own_share=own_share(facts.trace),
        threads=told.get("threads"),
        ranks=max(told.get("ranks", 1), 1),
        quota_millicores=told.get("quota_millicores"),
        switches=_switches(told, ""),
        all_switches=_switches(told, "all_"),
        others=threads_of(facts),
        asleep_share=_asleep(facts, (span - run - wait) / span),
        most_ns=None if facts.main_device is None else facts.main_device.gains.all_host_ns,
    )


def _asleep(facts: Facts, share: float) -> float:
    """The share of the time without a core in which the thread waits neither for data nor for ranks."""
    if facts.cpu_budget is None:
        return 0.0
    elsewhere = sum(facts.cpu_budget.fraction(name) for name in ("idle_data", "comm_exposed"))
    return min(max(share - elsewhere, 0.0), facts.cpu_budget.fraction("compute"))


def _switches(told: Mapping[str, int], whose: str) -> Switches | None:
    """None where there are none at all: then nobody counted."""
    counts = [told.get(f"{whose}{kind}_switches") for kind in ("voluntary", "involuntary")]
    voluntary, involuntary = counts
    return (
        Switches(voluntary, involuntary) if voluntary is not None and involuntary is not None and any(counts) else None
    )


def judge(result: Scheduling) -> tuple[Finding, ...]:
    """What holds it up: other threads on its cores, programs of others there, or one with the lock of Python."""
    waits = _waits(result)
    if waits and waits[0].id == CORES_TAKEN.id:  # while others run, too many threads of its own take time as well
        waits = (*waits, *_waits(replace(result, is_beside=True)))
    if result.others is None:
        return waits
    is_own = bool(waits) and waits[0].id == CONTENTION.id and not result.is_asleep
    return (*waits, *judge_threads(result.others, result.wait_ns if is_own else 0))


def _waits(result: Scheduling) -> tuple[Finding, ...]:
    """`host.contention` where it waited for long enough, `host.cores_taken` where others took its cores."""
    share = 0.0 if result.is_beside else result.wait_share
    if share < CONTENTION.limit("window") and not result.is_asleep:
        return ()
    scope = result.scope
    lost_ns = round(min(share + result.helpers_share, 1.0) * scope.window_ns)
    if result.is_asleep:
        share = scope.fraction(lost_ns)
    if result.most_ns is not None:  # a GPU that is busy meanwhile loses nothing
        lost_ns = min(lost_ns, result.most_ns)
        share = scope.fraction(lost_ns)
        if share < CONTENTION.limit("window"):
            return ()
    if _fits(result):
        return ()
    kind = CORES_TAKEN if _is_outside(result) or not _is_known(result) else CONTENTION
    return (
        kind.found(
            title=_title(result),
            fraction=share,
            confidence=_CONFIDENCE,
            recoverable_ns=0 if _is_outside(result) else scope.per_step(lost_ns),  # no change of the job gives it
            evidence=(
                *(_helped(result) if result.is_asleep else ()),
                Evidence(
                    statement=f"the training thread was ready and waited for a core for {format_fraction(result.wait_share)} of the"
                    f" recorded time ({format_ns(result.wait_ns)} of {format_ns(result.span_ns)})",
                    metric="scheduling.wait_ns",
                    value=float(result.wait_ns),
                    unit="ns",
                    expected=f"< {format_fraction(CONTENTION.limit('window'))}",
                ),
                *_around(result),
            ),
            fix=_fix(result),
        ),
    )


def _around(result: Scheduling) -> tuple[Evidence, ...]:
    """What wanted to run, and what held it."""
    said = [] if result.is_asleep else [*_helped(result)]
    said += [*_switched(result), *_wanted(result), *_crowded(result)]
    if result.throttled_ns:
        said.append(
            Evidence(
                statement=f"the container's CPU quota held its processes for {format_ns(result.throttled_ns)}",
                metric="scheduling.throttled_ns",
                value=float(result.throttled_ns),
                unit="ns",
            )
        )
    return tuple(said)


def _switched(result: Scheduling) -> Iterator[Evidence]:
    """How often the training thread lost its core, beside how often it left it by itself."""
    mine = result.switches
    if mine is not None:
        yield Evidence(
            statement=f"the scheduler took the core from it {_times(mine.involuntary)} (involuntary context switches);"
            f" it gave the core up {_times(mine.voluntary)} to wait for something",
            metric="scheduling.involuntary_switches",
            value=float(mine.involuntary),
            unit="count",
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _wanted(result: Scheduling) -> Iterator[Evidence]:
    """The cores that the process wanted, where it may use that many only."""
    wanted, threads = result.wanted_cores, result.threads or 0
    if wanted is not None and result.cores:
        is_said = threads > 1 and not _is_crowded(result)
        yield Evidence(
            statement=f"the threads of this process wanted {wanted:.1f} cores at a time; it may use {result.cores}"
            + (f", and an operator runs on up to {threads}" if is_said else "")
            + (": other programs take them" if _is_outside(result) else ""),
            metric="scheduling.wanted_cores",
            value=wanted,
            unit="count",
        )
    if result.own_share is not None:
        started = f" and the {_processes(result)} that it started" if result.children else ""
        yield Evidence(
            statement=f"this process{started} ran on {format_fraction(result.own_share)} of the cores' time"
            + (": programs of others had the rest" if _is_outside(result) else ""),
            metric="scheduling.own_share",
            value=result.own_share,
            unit="fraction",
        )


def _crowded(result: Scheduling) -> Iterator[Evidence]:
    """More threads for operators than cores."""
    cores, crowding = result.usable_cores, result.crowding
    if cores is None or crowding is None or not _is_crowded(result):
        return
    n_ranks, threads = result.ranks, result.threads or 0
    quota = "cores of its container's CPU quota" if cores != result.cores else "cores that it may use"
    yield Evidence(
        statement=f"{n_ranks} ranks share {cores:g} cores, and operators of each run on up to {threads} threads"
        if n_ranks > 1
        else f"operators run on up to {threads} threads for the {cores:g} {quota}",
        metric="scheduling.threads_per_core",
        value=crowding,
        unit="count",
        expected=f"<= {CONTENTION.limit('crowding'):g}",
    )


def _helped(result: Scheduling) -> Iterator[Evidence]:
    """What operators wait for their own threads: the training thread then sleeps, and is not ready."""
    if result.helpers_share >= CONTENTION.limit("window"):
        share = format_fraction(result.helpers_share)
        slept = (
            f"the training thread slept for {share} of the time"
            if result.is_asleep
            else f"for another {share} it slept"
        )
        yield Evidence(
            statement=f"{slept}, beside waits for data and ranks: operators"
            " sleep so until their other threads are done",
            metric="scheduling.helpers_share",
            value=result.helpers_share,
            unit="fraction",
        )


def _is_crowded(result: Scheduling) -> bool:
    return result.crowding is not None and result.crowding > CONTENTION.limit("crowding")


def _is_outside(result: Scheduling) -> bool:
    """Whether it waits for what other programs run: this job does not fill the cores, and no quota stops it.

    With more threads for operators than cores its own wait for each other at half of that; and while the training
    thread waits all cores are taken, by the job where it ran for as long on all of them.
    """
    if result.throttled_ns or result.is_asleep:
        return False
    own = result.own_share
    if own is not None:
        most = CONTENTION.limit("own")
        return own < (min(most * _CROWDED, result.wait_share) if _is_crowded(result) else most)
    wanted, cores = result.wanted_cores, result.usable_cores
    if wanted is None or cores is None or result.crowding is None:
        return False
    return wanted < cores and not _is_crowded(result)


def _is_known(result: Scheduling) -> bool:
    """Whether the job's own threads are known to want its cores."""
    return result.wanted_cores is not None or _is_crowded(result) or bool(result.throttled_ns)


def _is_of_children(result: Scheduling) -> bool:
    """Whether what the process has started ran more than its own other threads."""
    others_ns = (result.all_run_ns or 0) - result.run_ns
    return bool(result.children) and result.children_run_ns > max(others_ns, 0)


def _processes(result: Scheduling) -> str:
    return f"{result.children} process{'' if result.children == 1 else 'es'}"


def _fits(result: Scheduling) -> bool:
    """Whether what the job wants to run has a core each: a core's wait then is no reason to have fewer workers."""
    cores, wanted = result.usable_cores, result.wanted_cores
    is_full = _is_outside(result) or _is_crowded(result) or bool(result.throttled_ns)
    return (
        not is_full
        and cores is not None
        and _is_of_children(result)
        and (result.children or 0) + (wanted or 1.0) <= cores + _SLACK
    )


def _title(result: Scheduling) -> str:
    """Who takes the cores, where that is known."""
    cores = result.usable_cores
    if _is_outside(result):
        return CORES_TAKEN.title
    if cores is None or not _is_known(result):
        return CONTENTION.title
    on = f"{cores:g} core{'' if cores == 1 else 's'}"
    if _is_of_children(result):
        return f"the training thread waits for a core: it shares {on} with {_processes(result)} that it started"
    if _is_crowded(result):
        n = (result.threads or 0) * result.ranks
        waits = "for its operators' threads" if result.is_asleep else "for a core"
        return f"the training thread waits {waits}: operators run on {n} threads for {on}"
    return CONTENTION.title


def _fix(result: Scheduling) -> str:
    """The number of threads that fits, where there are more; else what may be the reason."""
    if _is_outside(result):
        return CORES_TAKEN.fixes[0]
    if _is_of_children(result):
        return CONTENTION.fixes[1]
    if not _is_crowded(result) or result.usable_cores is None:
        return CONTENTION.fixes[0]
    fits = max(int(result.usable_cores) // result.ranks, 1)
    who = f"{result.ranks} ranks share" if result.ranks > 1 else "the process has"
    where = f"torch.set_num_threads({fits}) where the script sets more"
    return f"set OMP_NUM_THREADS={fits}: {who} {result.usable_cores:g} cores; {where}"


def present(result: Scheduling) -> Section:
    """Show what was read."""
    return Section(
        analyzer="scheduling",
        title="cores",
        values={
            "span_ns": result.span_ns,
            "run_ns": result.run_ns,
            "wait_ns": result.wait_ns,
            "all_run_ns": result.all_run_ns,
            "all_wait_ns": result.all_wait_ns,
            "throttled_ns": result.throttled_ns,
            "cores": result.cores,
            "threads": result.threads,
            "ranks": result.ranks,
            **({} if result.children is None else _of_children(result)),
            "quota_millicores": result.quota_millicores,
            **_counts("", result.switches),
            **_counts("all_", result.all_switches),
        },
        tables=() if result.others is None else (table(result.others),),
    )


def _of_children(result: Scheduling) -> dict[str, int | None]:
    return {"children": result.children, "children_run_ns": result.children_run_ns}


def _places(_: Facts, result: Scheduling) -> Mapping[str, tuple[PlaceShare, ...]]:
    """What the thread does that holds the lock."""
    holding = result.others.holding if result.others is not None else ()
    return {GIL.id: holding[0].lines} if holding else {}


def _counts(whose: str, switches: Switches | None) -> dict[str, int | None]:
    return {
        f"{whose}voluntary_switches": switches.voluntary if switches else None,
        f"{whose}involuntary_switches": switches.involuntary if switches else None,
    }


SCHEDULING = Analyzer(
    name="scheduling",
    question="did the training thread have a core to run on?",
    needs="what profkit capture reads from the scheduler of Linux",
    measure=measure,
    judge=judge,
    present=present,
    places=_places,
)
