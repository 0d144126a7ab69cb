"""`host.launch_bound` and `host.stall`: when launches are said to hold the device up, and why."""

from __future__ import annotations

from profkit.analyzers.base import Analyzer
from profkit.analyzers.launches.evidence import MIN_FRACTION, cpu_evidence, device_evidence
from profkit.analyzers.launches.measured import FEW_GAPS, Launches, measure
from profkit.analyzers.tools import py_spy_main, system_timeline
from profkit.model.finding import Evidence, Explanation, Finding, severity_of
from profkit.model.rank_report import Section, TableView
from profkit.units import format_fraction, format_ns

MIN_RHO = 0.5
MIN_BEFORE_LAUNCH = 0.25
ONE_OFF_SHARE = 0.5
# Chosen: of the public captures with a stall all but one, of 20 kernels in 0.8 ms, have a longer one.
_EVENT_NS = 1_000_000


def is_one_off(result: Launches) -> bool:
    """Tell whether a few long stretches hold the late time: start-up, compilation, a checkpoint; not launch cost."""
    is_short = result.scope.n_steps < 2 * FEW_GAPS
    return result.few_gaps_share >= ONE_OFF_SHARE and (is_short or result.worst_step_share >= ONE_OFF_SHARE)


def judge(result: Launches) -> tuple[Finding, ...]:
    """Give `host.launch_bound`, or `host.stall` where a few stretches hold most of the time."""
    scope = result.scope
    late = result.launch_idle_ns + result.host_idle_ns
    fraction = scope.fraction(late)
    if is_one_off(result):
        stalled = late + result.sync_idle_ns
        return (_stall(result, stalled, scope.fraction(stalled)),) if scope.fraction(stalled) >= MIN_FRACTION else ()
    if fraction < MIN_FRACTION:
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
        evidence=cpu_evidence(result, fraction) if scope.is_cpu else device_evidence(result, fraction),
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
                statement=f"{format_fraction(result.few_gaps_share)} of the late time sits in {FEW_GAPS} stretches at most, the longest"
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
