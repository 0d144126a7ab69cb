"""Is the host too slow for the device? Launches, their lag, and the idle time they leave (docs/method.md)."""

from __future__ import annotations

import msgspec
import numpy as np

from profkit.analyzers.base import Analyzer, Scope, scope_of
from profkit.analyzers.tools import py_spy_main, system_timeline
from profkit.model.arrays import median
from profkit.model.finding import Evidence, Explanation, Finding, severity_of
from profkit.model.intervals import Intervals
from profkit.model.report import Section, TableView
from profkit.model.trace import CallKind, Kind
from profkit.timeline import Facts
from profkit.timeline.facts import steps_in_window
from profkit.timeline.host import os_waits
from profkit.units import format_count, format_fraction, format_ns

MIN_FRACTION = 0.15
MIN_RHO = 0.5
MIN_BEFORE_LAUNCH = 0.25
ONE_OFF_SHARE = 0.5
MIN_OS_SHARE = 0.2  # chosen: below, the calls are noise beside the host's own work
_FEW_GAPS = 3
_EVENT_NS = (
    1_000_000  # chosen: of the public captures with a stall all but one, of 20 kernels in 0.8 ms, have a longer one
)


class Launches(msgspec.Struct, frozen=True, kw_only=True):
    """How work is issued. On a CPU-only trace an "operation" is a leaf operator and its cost is estimated."""

    scope: Scope
    n_operations: int
    n_launch_calls: int
    n_graph_launches: int
    n_drained: int
    rho_count: float | None
    rho_time: float | None
    floor_p5_ns: int | None
    floor_median_ns: int | None
    launch_idle_ns: int
    """Without `turnaround_ns`: what the host cannot shorten by being faster."""
    host_idle_ns: int
    sync_idle_ns: int
    data_idle_ns: int
    median_kernel_ns: int
    shorter_than_launch: float | None
    """Share of kernels that end sooner than their own launch call takes."""
    few_gaps_share: float
    """Share of launch, host and sync idle time in its three longest stretches."""
    worst_step_share: float
    """Share of it between the start of one step and that of the next, of the step that has most."""
    longest_gap_ns: tuple[int, int]
    top_operators: tuple[tuple[str, int, int], ...]
    """(operator, launches, device ns) with the most launches."""
    op_cost_ns: int
    has_ops: bool = True
    """Whether dispatch can be told from other host work."""
    turnaround_ns: int = 0
    """Idle time between operations that had been issued in time."""
    os_waits: tuple[tuple[str, int], ...] = ()
    """(call of the operating system, ns) of the launching threads in `host_idle_ns`."""


def measure(facts: Facts) -> Launches:
    """Count launches and the idle time between them."""
    return _measure_cpu(facts) if facts.cpu is not None else _measure_device(facts)


def _measure_device(facts: Facts) -> Launches:
    main = facts.main_device
    assert main is not None  # noqa: S101 - called only with a device
    trace, queue = facts.trace, main.queue
    late = main.idle.launch | main.idle.host | main.idle.sync
    share, longest = _concentration(late.start_ns, late.end_ns)
    worst_step = _worst_step_share(facts, late)
    del late
    rows = main.activity.rows
    kernels = rows[trace.gpu.kind[rows] == Kind.COMPUTE]
    duration = trace.gpu.end_ns[kernels] - trace.gpu.start_ns[kernels]
    launch = trace.gpu.launch_row[kernels]
    linked = launch >= 0
    linked[linked] &= trace.calls.kind[launch[linked]] != CallKind.GRAPH_LAUNCH  # one call for many kernels
    call = trace.calls.end_ns[launch[linked]] - trace.calls.start_ns[launch[linked]]
    return Launches(
        scope=scope_of(facts),
        n_operations=int(rows.size),
        n_launch_calls=int(facts.calls_in_window(CallKind.LAUNCH).size),
        n_graph_launches=int(facts.calls_in_window(CallKind.GRAPH_LAUNCH).size),
        n_drained=queue.n_drained,
        rho_count=queue.rho_count,
        rho_time=queue.rho_time,
        floor_p5_ns=queue.floor_p5_ns,
        floor_median_ns=queue.floor_median_ns,
        launch_idle_ns=main.budget.idle_launch - main.idle.turnaround.total_ns,
        turnaround_ns=main.idle.turnaround.total_ns,
        host_idle_ns=main.budget.idle_host,
        sync_idle_ns=main.budget.idle_sync,
        data_idle_ns=main.budget.idle_data,
        median_kernel_ns=median(duration) if duration.size else 0,
        shorter_than_launch=float((duration[linked] < call).mean()) if call.size else None,
        few_gaps_share=share,
        worst_step_share=worst_step,
        longest_gap_ns=longest,
        top_operators=_top_operators(facts),
        op_cost_ns=0,
        has_ops=facts.host.has_ops,
        os_waits=os_waits(trace, facts.host.threads, main.idle.host),
    )


def _measure_cpu(facts: Facts) -> Launches:
    cpu = facts.cpu
    assert cpu is not None  # noqa: S101 - called only without a device
    idle = cpu.operators | cpu.data | cpu.comm | cpu.compute
    between = idle.gaps(*facts.trace.window_ns)
    share, longest = _concentration(between.start_ns, between.end_ns)
    worst_step = _worst_step_share(facts, between)
    return Launches(
        scope=scope_of(facts),
        n_operations=cpu.n_leaf_ops,
        n_launch_calls=0,
        n_graph_launches=0,
        n_drained=cpu.n_small_ops,
        rho_count=cpu.n_small_ops / cpu.n_leaf_ops if cpu.n_leaf_ops else None,
        rho_time=None,
        floor_p5_ns=None,
        floor_median_ns=None,
        launch_idle_ns=facts.budget.idle_launch,
        host_idle_ns=facts.budget.idle_host,
        sync_idle_ns=0,
        data_idle_ns=facts.budget.idle_data,
        median_kernel_ns=cpu.op_cost_ns,
        shorter_than_launch=None,
        few_gaps_share=share,
        worst_step_share=worst_step,
        longest_gap_ns=longest,
        top_operators=(),
        op_cost_ns=cpu.op_cost_ns,
    )


def _concentration(
    start: np.ndarray[tuple[int], np.dtype[np.int64]], end: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> tuple[float, tuple[int, int]]:
    length = end - start
    total = int(length.sum())
    if total == 0:
        return 0.0, (0, 0)
    worst = int(length.argmax())
    top = np.sort(length)[-_FEW_GAPS:]
    return float(top.sum() / total), (int(start[worst]), int(end[worst]))


def _worst_step_share(facts: Facts, late: Intervals) -> float:
    """Give the share that the worst step has, with what follows it until the next begins."""
    steps = [facts.trace.steps[index] for index in steps_in_window(facts.trace)]
    edges = np.array([step.start_ns for step in steps] + [facts.trace.window_ns[1]], np.int64)
    per_step = late.covered_ns(edges[:-1], edges[1:])
    return float(per_step.max() / late.total_ns) if per_step.size and late.total_ns else 0.0


def _top_operators(facts: Facts, n: int = 3) -> tuple[tuple[str, int, int], ...]:
    main = facts.main_device
    assert main is not None  # noqa: S101
    trace = facts.trace
    rows = main.activity.rows[trace.gpu.launch_row[main.activity.rows] >= 0]
    launch = trace.gpu.launch_row[rows]
    op = facts.op_of_call[launch]
    known = op >= 0
    names = trace.ops.name[op[known]]
    counts = np.bincount(names, minlength=1)
    device_ns = np.bincount(names, weights=(trace.gpu.end_ns - trace.gpu.start_ns)[rows[known]], minlength=1)
    order = np.argsort(-counts, kind="stable")[:n]
    return tuple((trace.name(code), int(counts[code]), int(device_ns[code])) for code in order if counts[code])


def is_one_off(result: Launches) -> bool:
    """Tell whether a few long stretches hold the late time: start-up, compilation, a checkpoint; not launch cost."""
    is_short = result.scope.n_steps < 2 * _FEW_GAPS
    return result.few_gaps_share >= ONE_OFF_SHARE and (is_short or result.worst_step_share >= ONE_OFF_SHARE)


def judge(result: Launches, *, min_fraction: float = MIN_FRACTION) -> tuple[Finding, ...]:
    """Give `host.launch_bound`, or `host.stall` where a few stretches hold most of the time."""
    scope = result.scope
    late = result.launch_idle_ns + result.host_idle_ns
    fraction = scope.fraction(late)
    if is_one_off(result):
        stalled = late + result.sync_idle_ns
        return (_stall(result, stalled, scope.fraction(stalled)),) if scope.fraction(stalled) >= min_fraction else ()
    if fraction < min_fraction:
        return ()
    before = scope.fraction(late + result.data_idle_ns + result.sync_idle_ns)
    if not scope.is_cpu and (result.rho_time or 0) < MIN_RHO and before < MIN_BEFORE_LAUNCH:
        return ()
    return (_launch_bound(result, late, fraction),)


def _launch_bound(result: Launches, late: int, fraction: float) -> Finding:
    scope = result.scope
    mostly_host = result.has_ops and result.host_idle_ns > 2 * result.launch_idle_ns
    rho = result.rho_count or 0
    clear = fraction >= 2 * MIN_FRACTION and (rho >= MIN_RHO or scope.is_cpu)
    tool = (
        py_spy_main(scope.command)
        if scope.is_cpu or mostly_host
        else system_timeline(
            scope,
            "is it Python, the dispatcher or the driver?",
            "the CPU row between cuda API calls: Python frames, futex waits, or back-to-back API calls",
        )
    )
    return Finding(
        id="host.launch_bound",
        title=_title(result, mostly_host=mostly_host),
        severity=severity_of(fraction),
        confidence=(0.85 if clear else 0.6) - (0.1 if scope.is_cpu else 0),
        recoverable_ns=scope.per_step(late),
        fraction=fraction,
        evidence=_cpu_evidence(result, fraction) if scope.is_cpu else _device_evidence(result, fraction),
        fix=_fix(is_cpu=scope.is_cpu, mostly_host=mostly_host),
        next_tools=(tool,),
    )


def _fix(*, is_cpu: bool, mostly_host: bool) -> str:
    if mostly_host:
        return "take the Python work out of the loop: hooks, logging, metrics, per-item loops; or give it to another process"
    compiled = "torch.compile" + ("" if is_cpu else " (mode='reduce-overhead') or CUDA graphs")
    return f"{compiled} for the hot blocks, foreach/fused optimizer, larger batch, fewer Python-level operators"


def _title(result: Launches, *, mostly_host: bool) -> str:
    if result.scope.is_cpu:
        return (
            "Python between operators takes more than dispatching them"
            if mostly_host
            else "dispatching operators and the Python between them hold the step up"
        )
    return (
        "the device waits for the host, mostly outside operators"
        if mostly_host
        else "the device waits for the host to launch work"
    )


def _device_evidence(result: Launches, fraction: float) -> tuple[Evidence, ...]:
    scope = result.scope
    rho = result.rho_count or 0.0
    floor = (
        f"; launch to start takes {format_ns(result.floor_median_ns)} on the idle device"
        if result.floor_median_ns
        else ""
    )
    evidence = [
        Evidence(
            statement=f"{format_ns(scope.per_step(result.launch_idle_ns + result.host_idle_ns))} {scope.each} idle before launches:"
            f" {format_fraction(scope.fraction(result.launch_idle_ns))} {'dispatching' if result.has_ops else 'in CUDA calls'},"
            f" {format_fraction(scope.fraction(result.host_idle_ns))} {'other host work' if result.has_ops else 'outside them (no operators recorded: Python or dispatch)'}",
            metric="budget_ns.idle_launch+idle_host-launches.turnaround_ns",
            value=float(result.launch_idle_ns + result.host_idle_ns),
            unit="ns",
            expected=f"< {format_fraction(MIN_FRACTION)} of the window",
            span_ns=result.longest_gap_ns,
        ),
        Evidence(
            statement=f"{format_count(result.n_drained)} operations ({format_fraction(rho)} of all) were launched into a"
            f" drained device{floor}",
            metric="launches.rho_count",
            value=rho,
            unit="fraction",
            expected="< 50 % when the host runs ahead",
        ),
    ]
    if result.shorter_than_launch is not None:
        evidence.append(
            Evidence(
                statement=f"median kernel {format_ns(result.median_kernel_ns)};"
                f" {format_fraction(result.shorter_than_launch)} of kernels are shorter than their own launch call",
                metric="launches.median_kernel_ns",
                value=float(result.median_kernel_ns),
                unit="ns",
            )
        )
    evidence += _os_evidence(result)
    if result.top_operators:
        named = ", ".join(name for name, _, _ in result.top_operators)
        share = sum(count for _, count, _ in result.top_operators) / max(result.n_operations, 1)
        evidence.append(
            Evidence(
                statement=f"{named}: {format_fraction(share)} of all device operations",
                metric="launches.top_operator_share",
                value=share,
                unit="fraction",
            )
        )
    return tuple(evidence)


def _os_evidence(result: Launches) -> list[Evidence]:
    total = sum(spent for _, spent in result.os_waits)
    if not result.host_idle_ns or total < MIN_OS_SHARE * result.host_idle_ns:
        return []
    named = ", ".join(f"{name} {format_fraction(spent / result.host_idle_ns)}" for name, spent in result.os_waits[:3])
    return [
        Evidence(
            statement=f"of that host time the launching thread spent {named} in the operating system:"
            " it waited for another thread, a process or a file",
            metric="launches.os_wait_ns",
            value=float(total),
            unit="ns",
        )
    ]


def _cpu_evidence(result: Launches, fraction: float) -> tuple[Evidence, ...]:
    scope = result.scope
    cost = (
        f"; the fixed cost of one is about {format_ns(result.op_cost_ns)} (estimated), the rest of dispatch is time inside"
        " operators around those that they call"
        if result.op_cost_ns
        else ""
    )
    return (
        Evidence(
            statement=f"{format_fraction(scope.fraction(result.launch_idle_ns))} of the window goes into dispatching operators,"
            f" {format_fraction(scope.fraction(result.host_idle_ns))} into Python between them",
            metric="budget_ns.idle_launch+idle_host",
            value=float(result.launch_idle_ns + result.host_idle_ns),
            unit="ns",
            expected=f"< {format_fraction(MIN_FRACTION)} of the window",
        ),
        Evidence(
            statement=f"{format_count(scope.per_step(result.n_operations))} operators {scope.each},"
            f" {format_fraction(result.rho_count or 0)} of them up to 10 us long" + cost,
            metric="launches.small_operator_fraction",
            value=result.rho_count or 0.0,
            unit="fraction",
        ),
    )


def _stall(result: Launches, late: int, fraction: float) -> Finding:
    low, high = result.longest_gap_ns
    return Finding(
        id="host.stall",
        title="a few long stalls of the host hold most of the idle time",
        severity=severity_of(fraction),
        confidence=0.4,
        recoverable_ns=result.scope.per_step(late),
        fraction=fraction,
        evidence=(
            Evidence(
                statement=f"{format_fraction(result.few_gaps_share)} of the late time sits in {_FEW_GAPS} stretches at most, the longest"
                f" {format_ns(high - low)}"
                + (
                    ": start-up, compilation, loading of modules or a checkpoint look like this"
                    if high - low >= _EVENT_NS
                    else ": too few to tell the cost of launching from that of single events"
                ),
                metric="launches.few_gaps_share",
                value=result.few_gaps_share,
                unit="fraction",
                expected=f"< {format_fraction(ONE_OFF_SHARE)}",
                span_ns=result.longest_gap_ns,
            ),
        ),
        fix="capture steady steps (wait 10, warm up 5, record 12): a stall that stays is real",
        next_tools=(),
    )


def present(result: Launches) -> Section:
    """Show the launch numbers and the operators that launch most."""
    return Section(
        analyzer="launches",
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
            **({} if result.scope.is_cpu else {"turnaround_ns": result.turnaround_ns}),
            "op_cost_ns": result.op_cost_ns,
        },
        tables=(
            TableView(
                title="operators with the most launches",
                headers=("operator", "launches", "device time"),
                units=("text", "count", "ns"),
                rows=result.top_operators,
            ),
        )
        if result.top_operators
        else (),
    )


EXPLANATIONS = (
    Explanation(
        id="host.launch_bound",
        title="the device waits for the host to launch work",
        meaning="The device finishes each operation before the next one is issued: Python, the dispatcher and the driver"
        " set the pace. On a CPU-only trace: the fixed cost of operators and the Python between them take much of the step.",
        measured="Idle time before a launch while the host dispatches (operators that launch, runtime calls, the launch"
        " latency itself) plus idle time in other host work, without the gaps between operations that were issued in time"
        " (a faster host would not shorten them); rho = share of operations launched after everything before"
        " them had ended; the latency floor is calibrated on those launches, since it is 5 us here and 45 us on WSL2."
        " CPU: the median duration of leaf operators up to 10 us is taken as the fixed cost of each; time inside an operator"
        " around those that it calls is dispatch too, in stretches up to 50 us.",
        thresholds=(
            "launch + host idle >= 15 % of the window, and rho by time >= 0.5 or >= 25 % of the window idle before launches:"
            " host-bound public traces show rho 0.65-1.00, GPU-ahead ones 0.01-0.03; 15 % is XProf's high mark for launches",
        ),
        lookalikes=(
            "the profiler's own cost of 1-3 us per operator, more with stacks and shapes: the share is an upper bound",
            "WSL2 and Windows batch launches: the lag floor check says so",
            "one stall (compilation, checkpoint): then it is `host.stall`",
        ),
        proof="Double the micro-batch. If the step grows by less than 10 %, the device was not the limit.",
        fixes=(
            "torch.compile(mode='reduce-overhead'), or torch.cuda.graph around the hot block",
            "optimizers with foreach=True or fused=True",
            "larger micro-batches, fewer and larger operators, no hooks or logging inside the step",
        ),
    ),
    Explanation(
        id="host.stall",
        title="a few long stalls of the host hold most of the idle time",
        meaning="Not the cost of launching, but single events: the first call of a kernel library, compilation, a"
        " checkpoint, an evaluation. In a capture without warm-up they say nothing about the steady step.",
        measured="The three longest stretches of late time, as a share of all of it, in a capture of fewer than six steps;"
        " in a longer one the share of the step that has most, with what follows it until the next begins.",
        thresholds=(
            "half of the late time in three stretches, of six steps or more also in one step: chosen; launch-bound captures show under 10 %",
        ),
        lookalikes=("a real stall in every step: capture more steps and it recurs",),
        proof="Capture again after warm-up; a one-off is gone.",
        fixes=(
            "warm up before capturing",
            "cache compilation (TORCHINDUCTOR_FX_GRAPH_CACHE=1)",
            "checkpoint asynchronously",
        ),
    ),
)

ANALYZER = Analyzer(
    name="launches",
    question="is the host too slow for the device?",
    needs="runtime calls and device rows with correlations; operators for a CPU",
    measure=measure,
    judge=judge,
    present=present,
    explanations=EXPLANATIONS,
)
