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
from profkit.timeline.scheduled import own_share, ranks_here, usable_cores
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


class Scheduling(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over the recorded steps, ns; None where the capture could not read them."""

    scope: Scope
    told: Mapping[str, int]
    """As the capture wrote it (`profkit/capture/inside/record/host_watch.py`)."""
    span_ns: int
    run_ns: int
    wait_ns: int
    usable_cores: float | None
    """Those of the process, or less where the container has a quota."""
    own_share: float | None
    """Share (0-1) of their time in which this job ran: its ranks here, and what they started."""
    others: Threads | None
    """The other threads of Python; None where there are none."""
    most_ns: int | None
    """Of a GPU: by how much the window would be shorter if the host took no time at all."""
    asleep_share: float
    """Share (0-1) of the recorded time in which the training thread wanted no core, but for waits for data and ranks:
    it waits for other threads. Where the CPU is the device."""
    is_beside: bool = False
    """Whether its waits for a core are those for programs of others, and count as such."""

    @property
    def ranks(self) -> int:
        """Processes of the job that were started with the same cores."""
        return ranks_here(self.told)

    @property
    def threads(self) -> int:
        """Threads that share one operator, 0 where nobody counted."""
        return self.told.get("threads", 0)

    @property
    def wait_share(self) -> float:
        """Share (0-1) of the recorded time in which the training thread waited for a core."""
        return min(self.wait_ns / self.span_ns, 1.0)

    @property
    def wanted_cores(self) -> float | None:
        """The cores that the threads of this process ran on or waited for, on average."""
        run_ns, wait_ns = self.told.get("all_run_ns"), self.told.get("all_wait_ns")
        return None if run_ns is None or wait_ns is None else (run_ns + wait_ns) / self.span_ns

    @property
    def helpers_share(self) -> float:
        """Share (0-1) of the recorded time in which operators wait for their own threads, which are more than cores."""
        return self.asleep_share if _is_crowded(self) and self.threads > 1 else 0.0

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
        told=told,
        span_ns=span,
        run_ns=run,
        wait_ns=wait,
        usable_cores=usable_cores(told),
        own_share=own_share(facts.trace),
        others=threads_of(facts, span, run, wait),
        asleep_share=_asleep(facts, (span - run - wait) / span),
        most_ns=None if facts.main_device is None else facts.main_device.gains.all_host_ns,
    )


def _asleep(facts: Facts, share: float) -> float:
    """The share of the time without a core in which the thread waits neither for data nor for ranks."""
    if facts.cpu_budget is None:
        return 0.0
    elsewhere = sum(facts.cpu_budget.fraction(name) for name in ("idle_data", "comm_exposed"))
    return min(max(share - elsewhere, 0.0), facts.cpu_budget.fraction("compute"))


def _switches(told: Mapping[str, int], whose: str) -> tuple[int, int] | tuple[None, None]:
    """How often threads left their core: because they had to wait, and because it was taken; None where nobody counted."""
    kept, lost = (told.get(f"{whose}{kind}_switches") for kind in ("voluntary", "involuntary"))
    return (kept, lost) if kept is not None and lost is not None and (kept or lost) else (None, None)


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
            most_recoverable_ns=_most_ns(result),
            evidence=tuple(_evidence(result)),
            fix=_fix(result),
        ),
    )


def _most_ns(result: Scheduling) -> int | None:
    """What a fix saves at most, where that may be more than what is told; None elsewhere.

    With more threads than cores on a CPU, all that operators take: a thread that spins until the others have had a core
    looks like work. Where programs of others run, and its own threads alone want more cores than there are, its waits
    for a core as well: nobody tells whose turn it waits for. Elsewhere these are in what a fix saves, or others' alone.
    """
    if result.scope.is_cpu and _is_crowded(result) and not result.is_beside and not _is_outside(result):
        return result.scope.per_step(result.scope.budget.compute)
    wanted, cores = result.wanted_cores, result.usable_cores
    if not result.is_beside or wanted is None or cores is None or wanted <= cores:
        return None
    return result.scope.per_step(round(min(result.wait_share + result.helpers_share, 1.0) * result.scope.window_ns))


def _evidence(result: Scheduling) -> Iterator[Evidence]:
    """How long it waited or slept, what wanted to run, and what held it."""
    helped, least = tuple(_helped(result)), f"< {format_fraction(CONTENTION.limit('window'))}"
    if result.is_asleep:
        yield from helped
    share, times = format_fraction(result.wait_share), f"{format_ns(result.wait_ns)} of {format_ns(result.span_ns)}"
    said = f"the training thread was ready and waited for a core for {share} of the recorded time ({times})"
    yield Evidence(said, "scheduling.wait_ns", float(result.wait_ns), "ns", least)
    if not result.is_asleep:
        yield from helped
    kept, lost = _switches(result.told, "")
    if kept is not None and lost is not None:
        said = f"the scheduler took the core from it {_times(lost)} (involuntary context switches); it gave the core up {_times(kept)} to wait for something"
        yield Evidence(said, "scheduling.involuntary_switches", float(lost), "count")
    yield from (*_wanted(result), *_crowded(result))
    if throttled_ns := result.told.get("throttled_ns"):
        said = f"the container's CPU quota held its processes for {format_ns(throttled_ns)}"
        yield Evidence(said, "scheduling.throttled_ns", float(throttled_ns), "ns")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _wanted(result: Scheduling) -> Iterator[Evidence]:
    """The cores that the process wanted, where it may use that many only."""
    wanted, cores, is_outside = result.wanted_cores, result.told.get("cores"), _is_outside(result)
    if wanted is not None and cores:
        is_said = result.threads > 1 and not _is_crowded(result)
        several = f", and an operator runs on up to {result.threads}" if is_said else ""
        taken = ": other programs take them" if is_outside else ""
        said = f"the threads of this process wanted {wanted:.1f} cores at a time; it may use {cores}{several}{taken}"
        yield Evidence(said, "scheduling.wanted_cores", wanted, "count")
    if result.own_share is not None:
        started = f" and the {_processes(result)} that it started" if result.told.get("children") else ""
        rest = ": programs of others had the rest" if is_outside else ""
        said = f"this process{started} ran on {format_fraction(result.own_share)} of the cores' time{rest}"
        yield Evidence(said, "scheduling.own_share", result.own_share, "fraction")


def _crowded(result: Scheduling) -> Iterator[Evidence]:
    cores, crowding, threads = result.usable_cores, result.crowding, result.threads
    if cores is None or crowding is None or not _is_crowded(result):
        return
    quota = "cores of its container's CPU quota" if cores != result.told.get("cores") else "cores that it may use"
    said = f"operators run on up to {threads} threads for the {cores:g} {quota}"
    if result.ranks > 1:
        said = f"{result.ranks} ranks share {cores:g} cores, and operators of each run on up to {threads} threads"
    yield Evidence(said, "scheduling.threads_per_core", crowding, "count", f"<= {CONTENTION.limit('crowding'):g}")


def _helped(result: Scheduling) -> Iterator[Evidence]:
    """What operators wait for their own threads: the training thread then sleeps, and is not ready."""
    if result.helpers_share >= CONTENTION.limit("window"):
        share = format_fraction(result.helpers_share)
        slept = (
            f"the training thread slept for {share} of the time"
            if result.is_asleep
            else f"for another {share} it slept"
        )
        said = f"{slept}, beside waits for data and ranks: operators sleep so until their other threads are done"
        yield Evidence(said, "scheduling.helpers_share", result.helpers_share, "fraction")


def _is_crowded(result: Scheduling) -> bool:
    return result.crowding is not None and result.crowding > CONTENTION.limit("crowding")


def _is_outside(result: Scheduling) -> bool:
    """Whether it waits for what other programs run: this job does not fill the cores, and no quota stops it.

    With more threads for operators than cores its own wait for each other at half of that; and while the training
    thread waits all cores are taken, by the job where it ran for as long on all of them.
    """
    if result.told.get("throttled_ns") or result.is_asleep:
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
    return result.wanted_cores is not None or _is_crowded(result) or bool(result.told.get("throttled_ns"))


def _is_of_children(result: Scheduling) -> bool:
    """Whether what the process has started ran more than its own other threads."""
    others_ns = result.told.get("all_run_ns", 0) - result.run_ns
    return bool(result.told.get("children")) and result.told.get("children_run_ns", 0) > max(others_ns, 0)


def _processes(result: Scheduling) -> str:
    n = result.told.get("children")
    return f"{n} process{'' if n == 1 else 'es'}"


def _fits(result: Scheduling) -> bool:
    """Whether what the job wants to run has a core each: a core's wait then is no reason to have fewer workers."""
    cores, wanted = result.usable_cores, result.wanted_cores
    is_full = _is_outside(result) or _is_crowded(result) or bool(result.told.get("throttled_ns"))
    return (
        not is_full
        and cores is not None
        and _is_of_children(result)
        and result.told.get("children", 0) + (wanted or 1.0) <= cores + _SLACK
    )


def _title(result: Scheduling) -> str:
    cores = result.usable_cores
    if _is_outside(result):
        return CORES_TAKEN.title
    if cores is None or not _is_known(result):
        return CONTENTION.title
    on = f"{cores:g} core{'' if cores == 1 else 's'}"
    if _is_of_children(result):
        return f"the training thread waits for a core: it shares {on} with {_processes(result)} that it started"
    if _is_crowded(result):
        n = result.threads * result.ranks
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
    told = result.told
    switches = {
        f"{whose}{kind}_switches": count
        for whose in ("", "all_")
        for kind, count in zip(("voluntary", "involuntary"), _switches(told, whose), strict=True)
    }
    names = ("span_ns", "run_ns", "wait_ns", "all_run_ns", "all_wait_ns", "throttled_ns", "cores", "threads")
    children = {"children": told.get("children"), "children_run_ns": told.get("children_run_ns", 0)}
    return Section(
        analyzer="scheduling",
        title="cores",
        values={
            **{name: told.get(name) for name in names},
            "ranks": result.ranks,
            **({} if children["children"] is None else children),
            "quota_millicores": told.get("quota_millicores"),
            **switches,
        },
        tables=() if result.others is None else (table(result.others),),
    )


def _places(_: Facts, result: Scheduling) -> Mapping[str, tuple[PlaceShare, ...]]:
    """What the thread does that holds the lock."""
    holding = result.others.holding if result.others is not None else ()
    return {GIL.id: holding[0].lines} if holding else {}


SCHEDULING = Analyzer(
    name="scheduling",
    question="did the training thread have a core to run on?",
    needs="what profkit capture reads from the scheduler of Linux",
    measure=measure,
    judge=judge,
    present=present,
    places=_places,
)
