"""Findings on the host: launches that come late, single stalls, calls that wait for the device."""

from __future__ import annotations

from typing import Final

from profkit.findings import parts
from profkit.findings.kind import CONTAINED, FindingKind, Supersedes, Threshold, Way
from profkit.model.documents.report import Bottleneck

_LATE: Final = Threshold(
    0.15, "late launches and other host work from {} of the window", "XProf's high mark for launches"
)
_ONE_OFF: Final = Threshold(0.5, "{} of the idle time that the host causes", "chosen")

LAUNCH_BOUND: Final = FindingKind(
    id="host.launch_bound",
    tries=("compile", "fused"),
    title="the GPU waits for the host to launch work",
    bottleneck=Bottleneck.OVERHEAD,
    part=parts.LAUNCHES,
    late_phase="host",
    late_word="launching",
    meaning="The GPU finishes each operation before the next one is launched: Python, the dispatcher and the driver limit the speed. On a CPU-only trace: the fixed cost of operators and the Python between them take much of the step.",
    measured="Idle time before a launch while the host dispatches (operators that launch, runtime calls, the launch"
    " latency itself) plus idle time in other host work, without the gaps between operations that were issued in time"
    " (a faster host would not shorten them), plus communication alone during which the host had not launched the next kernel, as far as a replay saves it; rho = share of operations launched after everything before them had ended, that is, while the GPU was idle; launch latency is measured on those launches (5 us on bare metal, 45 us on WSL2)."
    " CPU: the median duration of leaf operators up to 10 us is taken as the fixed cost of each; time of an operator outside the operators that it calls is dispatch too, in stretches up to 50 us.",
    # where the calls explain less than CONTAINED of it, the host is late by itself as well: that is the larger cause
    supersedes=(Supersedes("host.sync", Way.SECOND, 1 / CONTAINED),),
    thresholds={
        "window": _LATE,
        "usual": Threshold(
            0.225,
            "on a CPU {} of the window is usual and does not compete for the verdict; one stretch in each step does",
            "measured: the best on docs/accuracy.md, which tries it on families that it never saw",
        ),
        "rho": Threshold(
            0.5,
            "and the share of operations launched late, by time, from {}",
            "host-bound public traces show 0.65-1.00, GPU-ahead ones 0.01-0.03",
            "",
        ),
        "place": Threshold(
            0.5,
            "with {} of this idle time before one operation, in gaps twice as long as usual, the advice is about that operation",
            "chosen",
        ),
        "before": Threshold(0.25, "or {} of the window idle before launches", "chosen"),
    },
    lookalikes=(
        "the profiler's own cost of 1-3 us per operator, more with stacks and shapes: the share is an upper bound",
        "WSL2 and Windows batch launches: the check lag.floor shows this",
        "one stall (compilation, checkpoint): then it is `host.stall`",
    ),
    proof="Double the micro-batch. If the step grows by less than 10 %, the GPU was not the limit.",
    proof_on_cpu="Double the micro-batch. If the time per sample falls by about half of the share shown, this overhead is the cause.",
    fixes=(
        "torch.compile(mode='reduce-overhead'), or torch.cuda.graph around the hot block",
        "optimizers with foreach=True or fused=True",
        "larger micro-batches, fewer and larger operators, no hooks or logging inside the step",
    ),
)

STALL: Final = FindingKind(
    id="host.stall",
    tries=("no_saves",),
    title="a few long host stalls cause most of the idle time",
    meaning="Single events, not the cost of launches: the first call of a kernel library, compilation, a"
    " checkpoint, an evaluation. In a trace without warm-up, they say nothing about the steady step.",
    measured="What is done once, with fewer than three steps: modules that CUDA loads, first compilations, convolutions that try their algorithms, memory that is taken from the driver. And, with fewer than six steps, the three longest gaps where they have half of the idle time that the host causes; with more, where one step has half of it, up to the start of the next. Not where every step has a gap, half as long as the median of these or longer, what single ones have beyond it is a third of them or less, and they have half of the idle time: that is steady. The verdict is on what lies beside, if that repeats.",
    thresholds={
        "window": _LATE,
        "one_off": _ONE_OFF,
        "stretches": Threshold(
            3,
            "in at most {} gaps, with twice as many steps or more also in one step",
            "chosen; launch-bound captures show under 10 %",
            "",
        ),
    },
    lookalikes=("a real stall every few steps: record more steps, and it recurs",),
    proof="Record again after warm-up: a one-off stall is gone.",
    fixes=(
        "warm up before capturing",
        "cache compilation (TORCHINDUCTOR_FX_GRAPH_CACHE=1)",
        "checkpoint asynchronously",
    ),
)

SYNC_AT_ONCE: Final = "budget_ns.idle_sync"
"""The metric of what comes right after the calls, where most of what they cost comes later."""
SYNC: Final = FindingKind(
    id="host.sync",
    tries=("no_item",),
    title="synchronising calls leave the GPU idle",
    bottleneck=Bottleneck.SYNC,
    part=parts.SYNC,
    late_phase="host",
    late_word="syncs",
    meaning="With .item(), .cpu(), nonzero or printing a loss, the host waits until the GPU is done. Nothing is queued then, so the GPU is idle while the host prepares the next launch.",
    measured="The launches of the window are replayed without the time that blocking calls held the host: an operation starts when it is launched and its stream is free, other calls still wait. What idle time is gone then is what the calls cost, also in gaps long after them: a host that waits launches nothing, and is late until it has caught up. A wait for work that takes as long anyway costs nothing. The sync part of the budget is only the idle time right after a call: the smaller of that gap and the time that the host waited while the device worked.",
    thresholds={
        "window": Threshold(0.03, "fires at {} of the window", "chosen; nsys-ai uses 2 % of GPU time"),
        "calls": Threshold(1, "and {} blocking call per step", "chosen", ""),
        "one_off": Threshold(0.5, "one call with {} of the cost is a single event", "as in host.stall"),
        "headline": Threshold(0.5, "from {} of the step on, they are named before late launches", "chosen"),
        "held": Threshold(0.5, "never ruled out where they hold the host for more than {} of the window", "chosen"),
        "at_once": Threshold(0.8, "with less than {} of it right after the calls, the finding says so", "chosen"),
        "later": Threshold(0.1, "and with less than {} it is less sure", "chosen: field captures that were read"),
    },
    lookalikes=(
        "the profiler's own synchronisation at the window's edge",
        "allocator calls (cudaFree synchronises): see memory.pressure",
        "event queries of the NCCL watchdog do not block",
    ),
    proof="Remove or batch the call (read the loss every 50 steps): the step becomes shorter by about the cost shown."
    " torch.cuda.set_sync_debug_mode('warn') lists the lines.",
    # the host is late for those launches because it was held
    supersedes=(Supersedes("host.launch_bound", Way.BEHIND),),
    fixes=(
        "accumulate metrics on the device",
        "pinned memory and non_blocking=True",
        "capturable or fused optimizers",
    ),
)
