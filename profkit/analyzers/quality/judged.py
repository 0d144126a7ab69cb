"""`capture.quality`: what failed checks mean for whoever reads the report."""

from __future__ import annotations

from profkit.analyzers.base import Analyzer
from profkit.analyzers.quality.checks import REFUSING, checks, confidence_cap
from profkit.analyzers.quality.measured import Quality, measure
from profkit.analyzers.tools import recapture
from profkit.model.finding import Evidence, Explanation, Finding, Severity
from profkit.model.rank_report import Section, TableView

RECAPTURE = """from torch.profiler import profile, schedule, ProfilerActivity
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
             schedule=schedule(wait=10, warmup=5, active=12, repeat=1),
             on_trace_ready=lambda p: p.export_chrome_trace("trace.json.gz")) as prof:
    for batch in loader:
        train_step(batch)
        prof.step()"""


def judge(result: Quality) -> tuple[Finding, ...]:
    """Give `capture.quality` when a check fails."""
    failed = [check for check in checks(result) if not check.ok]
    if not failed:
        return ()
    refuses = any(check.id in REFUSING for check in failed)
    severity = Severity.HIGH if refuses else Severity.INFO
    return (
        Finding(
            id="capture.quality",
            title="the trace does not allow a verdict" if refuses else "the trace limits the confidence",
            severity=severity,
            confidence=0.95,
            recoverable_ns=0,
            fraction=0.0,
            evidence=tuple(
                Evidence(statement=check.message, metric=check.id, value=check.value or 0.0, unit="")
                for check in failed
            ),
            fix=result.scope.traits.how_to_be_steady,
            next_tools=(
                recapture(
                    result.scope,
                    "record a longer trace of steady steps",
                    "all checks of `profkit info` pass",
                ),
            ),
        ),
    )


def present(result: Quality) -> Section:
    """Show every check with its value."""
    rows = tuple((check.id, "ok" if check.ok else "FAILS", check.message) for check in checks(result))
    return Section(
        analyzer="quality",
        title="capture quality",
        values={
            "confidence_cap": confidence_cap(result),
            "n_launches_during_capture": result.n_during_capture,
        },
        tables=(TableView(title="checks", headers=("check", "", "seen"), units=("text",) * 3, rows=rows),),
    )


EXPLANATIONS = (
    Explanation(
        id="capture.quality",
        title="the capture limits or forbids a verdict",
        meaning="Traces can be silently incomplete or impossible: kernels dropped at the start of a session, rows that"
        " begin before their launch, durations that wrapped, a single step that shows nothing of what varies.",
        measured="Launch calls in the window without a device row of their correlation (stream capture excluded, last"
        " tenth ignored); device rows without a launch call; rows that start before their call; rows of one stream that"
        " overlap; zero timestamps and overflowed durations; marked steps; p5 of launch-to-start on a drained device;"
        " mean profiled over mean unprofiled step, if the capture recorded unprofiled ones; the share of the window in"
        " CUDA graphs of which nsys recorded the whole alone; idle time under the profiler's own rows (buffers flushed,"
        " requested); how much further the device is behind the host at the end of the steps than at their start.",
        thresholds=(
            "launches lost <= 2 %, unlinked rows <= 2 %, early rows <= 1 %: chosen; sound reference traces show 0",
            "overlapping rows <= 1 %: chosen; healthy reference traces show 0 outside CUDA graphs",
            "lag floor <= 25 us: bare metal shows 4-20 us, WSL2 42-47 us",
            "at least 20 rows of activity, or a marked step: chosen",
            "profiler cost <= 5 %, >= 3 marked steps: chosen",
            "the device gains at most 10 % of the window in being behind: chosen; sound reference traces show up to 6 %",
            "idle under the profiler's own work <= 5 %: chosen, as its cost; reference traces show under 0.1 %",
            "beside steps found by their period <= 25 % of the window: chosen; two steps' worth of edges are free",
            "with a CPU as the device, an operator at work in the window: without any nothing is known",
            "rows before their launch > 10 %: idle time has no cause; chosen, sound reference traces show 0",
            "CUDA graphs as wholes <= half the window: chosen; above, the step's largest part is not known",
        ),
        lookalikes=(
            "launches recorded into a CUDA graph run nothing: they are not lost",
            "kernels launched before the profiler started have no launch call: the first step only",
            "programmatic dependent launch on Hopper lets rows of one stream overlap on purpose",
        ),
        proof="Capture again as below; the check passes, and the verdict stays or changes.",
        fixes=(
            "profkit capture --baseline 10 --warmup 5 --steps 12 -- python train.py",
            "or paste this into the training script:\n" + RECAPTURE,
        ),
    ),
)

ANALYZER = Analyzer(
    name="quality",
    question="can this trace be trusted?",
    needs="any trace",
    measure=measure,
    judge=judge,
    present=present,
    explanations=EXPLANATIONS,
)
