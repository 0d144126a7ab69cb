"""`host.launch_bound` and `host.stall`: when launches are said to hold the device up, and why."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from profkit.analyzers.base import Analyzer, idle_before, places_table, sampled_evidence
from profkit.analyzers.launches.measured import Apart, Launches, measure, rows_of
from profkit.analyzers.tools import py_spy_main, system_timeline
from profkit.findings.communication import EXPOSED
from profkit.findings.host import LAUNCH_BOUND, STALL
from profkit.model.budget import HOST_PARTS, label
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import SEVERITY_FROM, Evidence, Finding, NextTool, Severity
from profkit.timeline.idle import Place
from profkit.units import format_count, format_fraction, format_ns

_START_UP = "start-up: the host does what it does once"
_WORTH_SAYING = 0.01  # chosen: of the window, less explains nothing
# Chosen: of the public captures with a stall all but one, of 20 kernels in 0.8 ms, have a longer one.
_EVENT_NS = 1_000_000
_MORE_WORK = (
    "Give each launch twice the work (a larger problem). If the run grows by less than 10 %, the GPU was not the limit."
)
_WITHOUT = (
    "Leave out what stands at the line under `where` for some steps: the step becomes shorter by its part of the time"
    " shown. Or double the micro-batch: the time per sample falls by about half of the share shown."
)
_MOST_SAMPLED = 8  # chosen: rows of a table that is read
MIN_OS_SHARE = 0.2  # chosen: below, the calls are noise beside the host's own work


def is_one_each_step(result: Launches) -> bool:
    """Whether one long stretch in each step holds the late time: what comes in every step is steady, in few steps too."""
    return result.each_step_share >= STALL.limit("one_off")


def judge(result: Launches) -> tuple[Finding, ...]:
    """`host.launch_bound`, and `host.stall` for what is judged apart: first use, and a few long stretches."""
    scope = result.scope
    if scope.is_cpu and (not result.n_operations or result.n_launch_calls):
        return ()  # what the CPU, or a device that is not in the trace, worked on is not known
    apart = result.apart
    if apart is None:
        return _late(result, scope.window_ns)
    beside = replace(
        result,
        is_beside=True,
        launch_idle_ns=apart.launch_ns,
        host_idle_ns=apart.host_ns,
        gain_ns=apart.gain_ns,
        few_gaps_share=0.0,
    )
    stalls = (_stall(result, apart),) if scope.fraction(apart.total_ns) >= STALL.limit("window") else ()
    return (*stalls, *(_late(beside, scope.window_ns - apart.total_ns) if apart.shows_the_job(scope.window_ns) else ()))


def _late(result: Launches, of_ns: int) -> tuple[Finding, ...]:
    """`host.launch_bound`, where late launches take enough of that part of the window."""
    scope, late = result.scope, result.late_ns
    if late < LAUNCH_BOUND.limit("window") * of_ns:
        return ()
    before = late + result.data_idle_ns + result.sync_idle_ns
    is_ahead = (result.rho_time or 0) < LAUNCH_BOUND.limit("rho") and before < LAUNCH_BOUND.limit("before") * of_ns
    if not scope.is_cpu and is_ahead and not is_one_each_step(result):
        return ()
    idle = late - result.hidden_ns  # what the bar shows; what communication hides is part of the gain
    return (_launch_bound(result, late, scope.fraction(idle)),)


def _launch_bound(result: Launches, late: int, fraction: float) -> Finding:
    scope = result.scope
    outside = result.host_idle_ns > 2 * result.launch_idle_ns
    mostly_host, in_system = result.has_ops and outside, outside and result.waits_for_system
    rho = result.rho_count or 0
    place = None if scope.is_cpu or in_system else one_place(result)
    clear = fraction >= 2 * LAUNCH_BOUND.limit("window") and (rho >= LAUNCH_BOUND.limit("rho") or scope.is_cpu)
    clear |= not scope.is_cpu and is_one_each_step(result)
    return LAUNCH_BOUND.found(
        title=_title(result, mostly_host=mostly_host, in_system=in_system),
        confidence=(0.85 if clear else 0.6) - (0.1 if scope.is_cpu else 0),
        recoverable_ns=scope.per_step(round(late * result.cored) if result.gain_ns is None else result.gain_ns),
        fraction=fraction,
        evidence=(
            *(cpu_evidence(result) if scope.is_cpu else device_evidence(result)),
            *hidden_evidence(result),
            *_each_step(result),
        ),
        fix=_fix_of(place)
        if place is not None
        else _wait_fix(result)
        if in_system
        else _fix(result, mostly_host=mostly_host),
        proof=_MORE_WORK if not scope.is_of_torch else _WITHOUT if scope.is_cpu and mostly_host else "",
        next_tools=(_next_tool(result, mostly_host=mostly_host or place is not None, in_system=in_system),),
        one_stretch=scope.fraction(result.one_stretch_ns),
    )


def _next_tool(result: Launches, *, mostly_host: bool, in_system: bool) -> NextTool:
    scope = result.scope
    if in_system:
        return system_timeline(
            scope,
            f"what does the {'training' if scope.is_of_torch else 'launching'} thread wait for in the operating system?",
            "the Python stack above each long poll, futex or read of the training thread"
            if scope.is_of_torch
            else "each long poll, futex or read of the launching thread, and what calls it",
        )
    if not scope.is_of_torch:
        return system_timeline(
            scope,
            "what takes the host's time: the program's own code, waits or the driver?",
            "the CPU row between API calls: functions of your own, waits, or back-to-back calls",
        )
    if scope.is_cpu or mostly_host:
        return py_spy_main(scope.command)
    return system_timeline(
        scope,
        "what takes the host's time: Python, the dispatcher or the driver?",
        "the CPU row between cuda API calls: Python frames, futex waits, or back-to-back API calls",
    )


def _wait_fix(result: Launches) -> str:
    thread = "training" if result.scope.is_of_torch else "launching"
    find = (
        f"find what the {thread} thread waits for, a file, a lock or another process, and fetch or start that earlier"
    )
    if not result.scope.is_of_torch:
        return find
    marked = "torch.cuda.nvtx.range('data_loader')"
    return find if result.has_ops or result.scope.is_cpu else f"{find}; if it is the next batch, {marked} shows it"


def _fix(result: Launches, *, mostly_host: bool) -> str:
    if not result.scope.is_of_torch:
        return (
            "launch fewer and larger kernels (fuse loops), launch them asynchronously and wait once for several (OpenACC:"
            " async), or capture what repeats in a CUDA graph"
        )
    if mostly_host:
        return "move Python work out of the loop (hooks, logging, metrics, per-item loops), or into another process"
    graphs = "" if result.scope.is_cpu else " (mode='reduce-overhead') or CUDA graphs"
    compiled = f"torch.compile{graphs} for the hot blocks"
    if result.is_compiled:
        compiled = "CUDA graphs (mode='reduce-overhead')" if graphs else "larger compiled regions"
        compiled += ": parts are compiled, and TORCH_LOGS=graph_breaks names what is not"
    optimizer = "a foreach or fused optimizer, " if result.trains else ""
    return f"use {compiled}, {optimizer}a larger batch, fewer Python-level operators"


def _fix_of(place: Place) -> str:
    """What happens before the gap is the host's own: the operation that ends it is only where it shows."""
    each = format_ns(place.in_parts(HOST_PARTS) // max(place.n_gaps, 1))
    who = place.meanwhile or place.line or place.op or place.span  # what fills the gap, else what ends it
    if not place.before:
        return f"find out what the host does at the window's end, where the GPU is idle for {each}"
    if place.before.startswith("Memcpy HtoD") and who:
        return (
            f"make what the host does before each {place.before} cheaper: the GPU waits {each} for it. Look at {who}: prepare"
            " the data in a worker, create it on the GPU, or keep it there"
        )
    work = f"make what the host does before {place.before} cheaper: the GPU waits {each} for it each time"
    if not who:
        return f"{work}. Nothing in this trace says what that is: the next tool does"
    return (
        f"{work}. Look at {who}: cache what it works out on every call, leave out checks, or capture the block in a CUDA"
        " graph"
    )


def _title(result: Launches, *, mostly_host: bool, in_system: bool) -> str:
    if in_system:
        beside = "between operators, the" if result.scope.is_cpu else "the GPU waits while the"
        thread = "training" if result.scope.is_of_torch else "launching"
        return f"{beside} {thread} thread waits in the operating system"
    if result.scope.is_cpu:
        if mostly_host:
            return "Python between operators slows the step"
        is_dispatch = result.launch_idle_ns > 2 * result.host_idle_ns
        return (
            f"{'operator' if is_dispatch else 'Python and operator'} overhead slow{'s' if is_dispatch else ''} the step"
        )
    return (
        "the GPU waits for the host, mostly outside operators"
        if mostly_host
        else "the GPU waits for the host to launch work"
    )


def _each_step(result: Launches) -> Iterator[Evidence]:
    """Say that the late time is one stretch in each step, where it is; on a CPU where it is some of the step."""
    low, high = result.longest_gap_ns
    whole = result.scope.fraction(result.one_stretch_ns)
    if whole >= SEVERITY_FROM[Severity.MEDIUM]:
        yield Evidence.share(
            "launches.one_stretch_fraction",
            whole,
            f"{format_fraction(whole)} of the window is one stretch between two operators in each of"
            f" {result.scope.n_steps} steps; the longest takes {format_ns(high - low)}",
            span_ns=result.longest_gap_ns,
        )
        return
    if not is_one_each_step(result):
        return
    yield Evidence.share(
        "launches.each_step_share",
        result.each_step_share,
        f"{format_fraction(result.each_step_share)} of the idle time that the host causes is one gap in each"
        f" of {result.scope.n_steps} steps; the longest takes {format_ns(high - low)}",
        span_ns=result.longest_gap_ns,
    )


def _stall(result: Launches, apart: Apart) -> Finding:
    low, high = result.longest_gap_ns
    scope, known_ns = result.scope, sum(ns for _, ns in apart.known)
    is_known = 2 * known_ns >= apart.total_ns
    title = "" if high - low >= _EVENT_NS else "a few gaps hold most of the idle time that the host causes"
    return STALL.found(
        title=_START_UP if is_known else title,
        confidence=0.9 if is_known else 0.4,
        recoverable_ns=scope.per_step(apart.total_ns),
        fraction=scope.fraction(apart.total_ns),
        evidence=(
            *_known(result, apart),
            *(() if result.few_gaps_share < STALL.limit("one_off") else (_few(result),)),
            *idle_before(result.places, scope, *HOST_PARTS, "idle_sync"),
            *sampled_evidence(result.samples, is_cpu=scope.is_cpu),
        ),
        fix="record steady steps (wait 10, warm up 5, record 12): a stall that recurs is real"
        if scope.is_of_torch
        else "record a longer run: a stall that recurs is real",
    )


def _known(result: Launches, apart: Apart) -> tuple[Evidence, ...]:
    """What is done once, as the trace records it."""
    scope = result.scope
    return tuple(
        Evidence.time(
            "launches.apart_ns",
            ns,
            f"{'the step waits' if scope.is_cpu else 'the GPU is idle'} {format_ns(ns)} while {words}"
            f" ({format_fraction(scope.fraction(ns))} of the window): that is done once",
        )
        for words, ns in apart.known
        if scope.fraction(ns) >= _WORTH_SAYING
    )


def _few(result: Launches) -> Evidence:
    low, high = result.longest_gap_ns
    return Evidence.share(
        "launches.few_gaps_share",
        result.few_gaps_share,
        f"{format_fraction(result.few_gaps_share)} of the idle time that the host causes is in at most"
        f" {STALL.limit('stretches'):g} gaps; the longest takes {format_ns(high - low)}"
        + (
            ", as in start-up, compilation, module loading or a checkpoint"
            if high - low >= _EVENT_NS
            else ", too few to separate the cost of launches from single events"
        ),
        expected=f"< {format_fraction(STALL.limit('one_off'))}",
        span_ns=result.longest_gap_ns,
    )


def present(result: Launches) -> Section:
    """Show the launch numbers and the operators that launch most."""
    return Section(
        title="launches",
        values={
            "n_operations": result.n_operations,
            "n_launch_calls": result.n_launch_calls,
            "n_graph_launches": result.n_graph_launches,
            "n_drained": result.n_drained,
            "rho_count": result.rho_count,
            "rho_time": result.rho_time,
            "lag_floor_p5_ns": result.floor_p5_ns,
            "lag_floor_median_ns": result.floor_median_ns,
            "median_kernel_ns": result.median_kernel_ns,
            "shorter_than_launch_fraction": result.shorter_than_launch,
            "few_gaps_share": result.few_gaps_share,
            "each_step_share": result.each_step_share,
            **_apart_values(result.apart),
            **({} if result.scope.is_cpu else {"turnaround_ns": result.turnaround_ns}),
            "op_cost_ns": result.op_cost_ns,
            **({"n_samples": sum(one.n for one in result.samples)} if result.samples else {}),
        },
        tables=(*places_table(result.places), *_top_operators(result), *_sampled(result)),
    )


def _apart_values(apart: Apart | None) -> dict[str, int]:
    if apart is None:
        return {}
    return {"apart_ns": apart.total_ns, "beside_ns": apart.launch_ns + apart.host_ns}


def _sampled(result: Launches) -> Iterator[TableView]:
    if not result.samples:
        return
    yield TableView.of(
        "CPU samples " + _when_sampled(result),
        {"thread": "text", "function": "text", "called from": "text", "samples": "count", "share": "fraction"},
        tuple(
            (one.thread, one.words, one.caller if one.caller != one.words else "", one.n, one.share)
            for one in result.samples[:_MOST_SAMPLED]
        ),
        note="A thread is sampled only while it runs on a CPU, not while it waits.",
    )


def _when_sampled(result: Launches) -> str:
    if not result.scope.is_cpu:
        return "while the GPU waits for a launch"
    return "between operators" if result.n_operations else "beside waits for input"


def _top_operators(result: Launches) -> Iterator[TableView]:
    if not result.top_operators:
        return
    yield TableView.of(
        "operators with the most launches",
        {"operator": "text", "launches": "count", "device time": "ns"},
        result.top_operators,
    )


def _queued_gaps(result: Launches) -> str:
    """What the budget's late launches have beside these, where it shows."""
    gaps = result.scope.fraction(result.turnaround_ns)
    if round(1000 * gaps) == 0:
        return ""
    return f"; not counted: {format_fraction(gaps)} in gaps between operations that were queued in time"


def _parts(result: Launches) -> str:
    """What the host does before late launches, as shares of the window."""
    scope = result.scope
    is_unknown = scope.is_of_torch and not result.has_ops
    host = "Python or dispatch (no operators recorded)" if is_unknown else label("idle_host", is_cpu=False)
    return (
        f"{scope.share(result.launch_idle_ns, 'idle_launch')} of the window in"
        f" {'operator dispatch' if result.has_ops else 'CUDA calls'}, {scope.share(result.host_idle_ns, 'idle_host')} in"
        f" {host}" + _queued_gaps(result)
    )


def _beside(result: Launches) -> str:
    """The share of late launches beside what is judged apart, which has the rest of these parts of the bar."""
    budget = result.scope.budget
    share = budget.shown(*HOST_PARTS, total_ns=result.launch_idle_ns + result.host_idle_ns)
    rest = sum(budget.tenths[name] for name in HOST_PARTS) - round(1000 * share)
    return f"{format_fraction(share)} of the window; not counted: {format_fraction(rest / 1000)} that is start-up or single stalls"


def device_evidence(result: Launches) -> Iterator[Evidence]:
    """Say how long the device waits for launches, how many find it drained, how long kernels are, what the host did."""
    scope = result.scope
    rho = result.rho_count or 0.0
    floor = f"; launch latency is {format_ns(result.floor_median_ns)}" if result.floor_median_ns else ""
    yield Evidence.time(
        "launches.beside_ns" if result.is_beside else "budget_ns.idle_launch+idle_host-launches.turnaround_ns",
        result.launch_idle_ns + result.host_idle_ns,
        f"the GPU is idle {scope.time(result.launch_idle_ns + result.host_idle_ns)} before"
        f" launches: {_beside(result) if result.is_beside else _parts(result)}",
        expected=f"< {format_fraction(LAUNCH_BOUND.limit('window'))} of the window",
        span_ns=result.longest_gap_ns,
    )
    yield from _os_evidence(result)
    if not result.is_beside:
        yield from idle_before(result.places, scope, *HOST_PARTS)
    yield from sampled_evidence(result.samples, is_cpu=scope.is_cpu)
    yield Evidence.share(
        "launches.rho_count",
        rho,
        f"{format_count(result.n_drained)} operations ({format_fraction(rho)} of all) were launched while"
        f" the GPU was idle{floor}",
        expected="< 50 % when the host runs ahead",
    )
    if result.shorter_than_launch is not None:
        yield Evidence.time(
            "launches.median_kernel_ns",
            result.median_kernel_ns,
            f"the median kernel takes {format_ns(result.median_kernel_ns)};"
            f" {format_fraction(result.shorter_than_launch)} of kernels take less time than their own launch call",
        )
    if result.top_operators and one_place(result) is None:
        named = ", ".join(name for name, _, _ in result.top_operators)
        share = sum(count for _, count, _ in result.top_operators) / max(result.n_operations, 1)
        yield Evidence.share(
            "launches.top_operator_share",
            share,
            f"{named} launch {format_fraction(share)} of all device operations",
        )


def hidden_evidence(result: Launches) -> Iterator[Evidence]:
    """Say how much of the host's time communication hides, where that shows: with the idle time it is what it costs."""
    scope = result.scope
    if scope.fraction(result.hidden_ns) < EXPOSED.limit("window"):
        return
    yield Evidence.time(
        "launches.hidden_ns",
        result.hidden_ns,
        f"for {scope.time(result.hidden_ns)} communication runs alone because the"
        " host has not launched the next kernel: without the host's delay the step is so much shorter, too",
    )


def one_place(result: Launches) -> Place | None:
    """The one place before which most of the idle time of the host lies, if there is one that is no start-up."""
    if result.is_beside:
        return None
    return result.places.outstanding(HOST_PARTS, LAUNCH_BOUND.limit("place"))


def _os_evidence(result: Launches) -> Iterator[Evidence]:
    total = sum(spent for _, spent in result.os_waits)
    if not result.host_idle_ns or total < MIN_OS_SHARE * result.host_idle_ns:
        return
    named = ", ".join(
        f"{format_fraction(spent / result.host_idle_ns)} in {name}" for name, spent in result.os_waits[:3]
    )
    of = (
        "of the time between operators, the training"
        if result.scope.is_cpu
        else "of that other host time, the launching"
    )
    yield Evidence.time(
        "launches.os_wait_ns",
        total,
        f"{of} thread spends {named} (operating system): it waits for another thread, a process or a file",
    )


def cpu_evidence(result: Launches) -> tuple[Evidence, ...]:
    """Say what dispatching costs on a CPU, and what lies between operators."""
    scope = result.scope
    fixed_ns = result.op_cost_ns * result.n_operations
    cost = (
        f"; their fixed cost is about {format_ns(scope.per_step(fixed_ns))} of the"
        f" {format_ns(scope.per_step(result.launch_idle_ns))} of dispatch (estimated), the rest is operators that call others"
        if 0 < fixed_ns <= result.launch_idle_ns
        else ""
    )
    return (
        Evidence.time(
            "budget_ns.idle_launch+idle_host",
            result.launch_idle_ns + result.host_idle_ns,
            f"{scope.share(result.launch_idle_ns, 'idle_launch')} of the window is operator dispatch,"
            f" {scope.share(result.host_idle_ns, 'idle_host')} is"
            f" {'between operators' if result.waits_for_system else 'Python between operators'}",
            expected=f"< {format_fraction(LAUNCH_BOUND.limit('window'))} of the window",
        ),
        Evidence.share(
            "launches.small_operator_fraction",
            result.rho_count or 0.0,
            f"{format_count(scope.per_step(result.n_operations))} operators {scope.each};"
            f" {format_fraction(result.rho_count or 0)} of them take at most 10 us" + cost,
        ),
        *_os_evidence(result),
        *sampled_evidence(result.samples, is_cpu=scope.is_cpu),
    )


ANALYZER = Analyzer(
    name="launches",
    question="is the host too slow for the device?",
    needs="runtime calls and device rows with correlations; operators for a CPU",
    measure=measure,
    judge=judge,
    rows=rows_of,
    present=present,
)
