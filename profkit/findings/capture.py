"""`capture.quality`, and the checks behind it: what each allows, and what its failure leaves of confidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from profkit.findings.kind import FindingKind, Threshold


class CheckKind(msgspec.Struct, frozen=True, kw_only=True):
    """One check of a capture. `QUALITY.limit(id)` is what it allows."""

    id: str
    meaning: str
    """What it means where it fails."""
    allows: Threshold
    cap: float
    """The most a finding may claim where it fails (0-1). Chosen: an ordinal ladder, not calibrated."""
    is_refusing: bool = False
    """Whether its failure makes idle time meaningless: the verdict is `inconclusive`."""


_SOUND: Final = "chosen; sound reference traces show 0"

LOST: Final = CheckKind(
    id="launches.lost",
    meaning="Kernels were launched but are not in the trace: what the device did then is unknown.",
    allows=Threshold(0.02, "launches lost <= {}", _SOUND),
    cap=0.2,
    is_refusing=True,
)
UNLINKED: Final = CheckKind(
    id="device.unlinked",
    meaning="Device rows whose launch call was not recorded: what the host did before them is unknown.",
    allows=Threshold(0.02, "unlinked rows <= {}", _SOUND),
    cap=0.6,
)
EARLY: Final = CheckKind(
    id="causality",
    meaning="A kernel cannot run before it is launched: the clocks of host and device disagree.",
    allows=Threshold(0.01, "rows before their launch <= {}", _SOUND),
    cap=0.5,
)
OVERLAPPED: Final = CheckKind(
    id="stream.overlap",
    meaning="One stream runs one operation at a time: rows that overlap have wrong times.",
    allows=Threshold(
        0.01, "overlapping time of rows <= {}", "chosen; healthy reference traces show 0 outside CUDA graphs"
    ),
    cap=0.7,
)
LAG_FLOOR: Final = CheckKind(
    id="lag.floor",
    meaning="The time from launch to start on an idle device. Where it is long, the cause of short idle times is less certain.",
    allows=Threshold(25_000, "lag floor <= {}", "bare metal shows 4-20 us, WSL2 42-47 us", "ns"),
    cap=0.7,
)
OUTRUN: Final = CheckKind(
    id="steps.outrun",
    meaning="The host runs ahead of the device, so the step markers do not show the device's steps.",
    allows=Threshold(
        0.1,
        "the lag of the device behind the host changes by at most {} of the window",
        "chosen; sound reference traces show up to 6 %",
    ),
    cap=0.6,
)
OVERHEAD: Final = CheckKind(
    id="profiler.overhead",
    meaning="The device waits while the profiler handles its own buffers: this idle time is not the job's.",
    allows=Threshold(
        0.05,
        "idle under the profiler's own work <= {}",
        "chosen, as its cost; reference traces show under 0.1 %",
    ),
    cap=0.7,
)
WHOLE_GRAPHS: Final = CheckKind(
    id="graphs.whole",
    meaning="nsys recorded CUDA graphs as one row each: what runs inside is unknown.",
    allows=Threshold(
        0.5, "CUDA graphs without their kernels <= {} of the window", "chosen; above, most of the step is unknown"
    ),
    cap=0.4,
)
IMPOSSIBLE: Final = CheckKind(
    id="times.impossible",
    meaning="Timestamps of zero or durations that overflowed: the trace is not a record of what ran.",
    allows=Threshold(0, "rows with zero timestamps or overflowed durations <= {}", "no real row has them", ""),
    cap=0.4,
    is_refusing=True,
)
DAMAGED: Final = CheckKind(
    id="input.damaged",
    meaning="With --lenient, parts of the file were left out: what was in them is unknown.",
    allows=Threshold(0, "parts of the file that could not be read <= {}", "what was in them is unknown", ""),
    cap=0.4,
    is_refusing=True,
)
FEW_STEPS: Final = CheckKind(
    id="steps.few",
    meaning="One or two steps do not show how much steps differ, nor whether they are steady.",
    allows=Threshold(3, "steps >= {}", "chosen; fewer do not show the variation", ""),
    cap=0.6,
)
STARTUP: Final = CheckKind(
    id="steps.startup",
    meaning="Much of the window lies before or after the steps that were found: start-up, not training.",
    allows=Threshold(
        0.25,
        "outside the steps found by their period <= {} of the window",
        "chosen; the length of two steps is allowed",
    ),
    cap=0.4,
    is_refusing=True,
)
FIRST_PASS: Final = CheckKind(
    id="steps.first_pass",
    meaning="A first pass allocates memory, loads kernels and times algorithms: later steps do not.",
    allows=Threshold(
        0.25,
        "with fewer than 3 steps, calls of a first pass <= {} of the device's idle time",
        "chosen: as steps.startup; steady captures allocate and load next to nothing",
    ),
    cap=0.5,
)
FIRST_BATCH: Final = CheckKind(
    id="input.first_batch",
    meaning="The only wait for a batch lies before the first kernel: it holds the start of the loader, and what a later step waits is not known.",
    allows=Threshold(
        0.25,
        "without steps or waits for input in the window, waits before it <= {} of both",
        "chosen: as steps.startup",
    ),
    cap=0.4,
    is_refusing=True,
)
NO_OPERATORS: Final = CheckKind(
    id="operators.none",
    meaning="Without a device, operators are all that shows the work. There are none in the window.",
    allows=Threshold(1, "on a CPU trace, operators in the window >= {}", "without operators nothing is known", ""),
    cap=0.2,
    is_refusing=True,
)
UNRECORDED: Final = CheckKind(
    id="device.unrecorded",
    meaning="Operators show that the program ran on a device of which the file holds nothing: what the host did is no account of it.",
    allows=Threshold(0, "devices without a record <= {}", "what is not recorded is not known", ""),
    cap=0.2,
    is_refusing=True,
)
UNSEEN: Final = CheckKind(
    id="operators.unseen",
    meaning="Without a device, operators show the work. There are none in the window, but most of it is a wait for input, which its ranges show.",
    allows=Threshold(
        0.0, "beside waits for input, window without operators <= {}", "what is not recorded is not known"
    ),
    cap=0.7,
)
MOST_IS_INPUT: Final = 0.5
"""From this share of the window on, waiting for input is its largest part whatever the rest is, and needs no operators."""
MOST_IS_WORK: Final = 0.8
"""Chosen: from this share of the window on, in long kernels, what the device does is known however few they are."""
MUCH_WORK_NS: Final = 100_000_000
"""Chosen: a recording of so much work is of a program, not of a trial of the profiler."""
TINY: Final = CheckKind(
    id="content.tiny",
    meaning="The trace holds almost nothing.",
    allows=Threshold(
        20,
        "rows of activity >= {}, a marked step, or 100 ms of a device that works for 80 % of the window",
        "chosen",
        "",
    ),
    cap=0.2,
    is_refusing=True,
)
COST: Final = CheckKind(
    id="profiler.cost",
    meaning="The profiler itself makes steps longer, mostly at each operator: operator overhead is smaller without it. Step and savings are shown without the profiler, where the capture timed steps without it (`profkit capture --unprofiled-steps`).",
    allows=Threshold(0.05, "profiler cost <= {}", "chosen"),
    cap=0.7,
)
STACKED: Final = CheckKind(
    id="profiler.stacks",
    meaning="Python stacks make the host's own time longer, and nothing in this trace says by how much: no step was timed without the profiler.",
    allows=Threshold(
        0.15,
        "recorded with stacks, the host's own time <= {} of the window",
        "from there on launches compete for the verdict",
    ),
    cap=0.6,
)
UNREAD: Final = CheckKind(
    id="device.read",
    meaning="Confidence rests on captures of others that experts have read beside profkit (docs/field.md). Of devices of this maker, recorded by this tool, there are few or none.",
    allows=Threshold(
        10,
        "public captures of the maker's devices by the same tool that were read >= {}",
        "chosen: fewer show no rate",
        "",
    ),
    cap=0.6,
)
READ: Final[Mapping[tuple[str, str], int]] = {("nvidia", "kineto"): 121, ("nvidia", "nsys"): 106, ("amd", "kineto"): 14}
"""Captures of docs/field.md by (maker, tool); a test counts them again."""
HIGH_COST_CAP: Final = 0.6
"""The cap of `profiler.cost` beyond its `high_cost`; and never more than the unprofiled part of a recorded step."""

CHECKS: Final = {check.id: check for check in tuple(vars().values()) if isinstance(check, CheckKind)}
REFUSING: Final = frozenset(check.id for check in CHECKS.values() if check.is_refusing)
"""The ids of checks without which there is no verdict."""

_RECAPTURE: Final = """from torch.profiler import profile, schedule, ProfilerActivity
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
             schedule=schedule(wait=10, warmup=5, active=12, repeat=1),
             on_trace_ready=lambda p: p.export_chrome_trace("trace.json.gz")) as prof:
    for batch in loader:
        train_step(batch)
        prof.step()"""

QUALITY: Final = FindingKind(
    id="capture.quality",
    title="the trace limits or forbids a verdict",
    meaning="Traces can be silently incomplete or impossible: kernels dropped at the start of a session, rows that begin before their launch, durations that overflowed, a single step that does not show any variation.",
    measured="Launch calls in the window without a device row of their correlation (stream capture excluded, last"
    " tenth ignored); device rows without a launch call; rows that start before their call; rows of one stream that"
    " overlap; zero timestamps and overflowed durations; marked steps; 5th percentile of launch latency on an idle device;"
    " mean profiled over mean unprofiled step, if the capture recorded unprofiled ones; waits for input that were recorded before the window only; the share of the window in"
    " CUDA graphs that nsys recorded without their kernels; idle time under the profiler's own rows (buffers flushed,"
    " requested); how much the lag of the device behind the host changes from the start of the steps to their end; with"
    " fewer than three steps, the device's idle time under calls that a first pass makes: allocation of device and"
    " pinned memory, loading of modules, waits for events (cuDNN times its algorithms so).",
    thresholds={
        **{check.id: check.allows for check in CHECKS.values()},
        "no_cause": Threshold(
            0.1,
            "with rows before their launch > {}, the cause of short idle times is unknown",
            "chosen; sound captures have none, the one known with wrong clocks 63 %",
        ),
        "clock_error": Threshold(
            4,
            "of those shorter than {} what such rows are too early",
            "chosen: a longer one has its cause to a quarter",
            "x",
        ),
        "high_cost": Threshold(0.5, "profiler cost > {} lowers the confidence", "chosen"),
    },
    lookalikes=(
        "launches recorded into a CUDA graph run nothing: they are not lost",
        "kernels launched before the profiler started have no launch call: these do not count as unlinked",
        "programmatic dependent launch on Hopper lets rows of one stream overlap on purpose",
    ),
    proof="Record again as below: the check passes, and the verdict stays or changes.",
    fixes=(
        "profkit capture --unprofiled-steps 10 --warmup-steps 5 --steps 12 -- python train.py",
        "or paste this into the training script:\n" + _RECAPTURE,
    ),
)
