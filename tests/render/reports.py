"""Reports built by hand, one per thing a reader may meet; the renderer tests print them, nothing is measured here."""

from typing import Final

from msgspec.structs import replace

from profkit.model.budget import Budget
from profkit.model.documents.rank_report import Check, DeviceReport, RankReport, Section, Steps, StreamUse, TableView
from profkit.model.documents.report import Bottleneck, Failure, Report, Verdict
from profkit.model.finding import Evidence, Finding, NextTool, Severity, Skipped
from profkit.shell import DEFAULT_COMMAND, line_of

MS: Final = 1_000_000
H100: Final = "NVIDIA H100 80GB HBM3"
NSYS: Final = NextTool(
    name="nsys",
    line=line_of(
        "nsys profile --trace=cuda,nvtx,osrt --sample=process-tree --delay=30 --duration=20 --kill=none"
        " --output=profkit_nsys --force-overwrite=true python train.py --batch 32"
    ),
    purpose="what takes the host's time: Python, the dispatcher or the driver?",
    look_for="the CPU row between CUDA API calls: Python frames, futex waits, or back-to-back API calls",
)
RECAPTURE: Final = NextTool(
    name="torch.profiler",
    line=line_of("profkit explain capture.quality"),
    purpose="record a longer trace of steady steps",
    look_for="steady steps after warm-up, and all checks ok",
)
PY_SPY: Final = NextTool(
    name="py-spy",
    line=DEFAULT_COMMAND.under("py-spy record --subprocesses --duration 30 --output loader.svg"),
    purpose="what does the loader do while the step waits: decode, read or wait for locks?",
    look_for="wide frames below Dataset.__getitem__ and collate: read() means storage, numpy or PIL means CPU",
)
OK_CHECKS: Final = (
    Check(id="launches.lost", ok=True, value=0.0, message="0.0 % of 16,320 kernel launches have no kernel"),
    Check(id="steps.few", ok=True, value=5.0, message="5 marked steps"),
)


def budget(window_ns: int, **parts: int) -> Budget:
    """Give a budget from some parts; what is not named is 0, what is left over is compute."""
    names = ("comm_exposed", "copy_exposed", *(f"idle_{n}" for n in ("data", "sync", "launch", "host", "dependency")))
    filled = {name: parts.get(name, 0) for name in (*names, "idle_unknown")}
    return Budget(window_ns=window_ns, compute=window_ns - sum(filled.values()), **filled)


def gpu(parts: Budget, *, device: int = 0, comm_ns: int = 0, overlapped_ns: int = 0) -> DeviceReport:
    """Give a GPU with one compute stream, and one for communication where there is some."""
    window = parts.window_ns
    uses = [StreamUse(stream=7, label="compute", busy_ns=parts.compute, occupancy=parts.compute / window, n_ops=16_320)]
    if comm_ns:
        uses.append(StreamUse(stream=20, label="comm", busy_ns=comm_ns, occupancy=comm_ns / window, n_ops=60))
    return DeviceReport(
        device=device,
        name=H100,
        kind="gpu",
        budget=parts,
        busy_compute_ns=parts.compute,
        busy_comm_ns=comm_ns,
        busy_copy_ns=parts.copy_exposed,
        busy_any_ns=window - parts.idle_ns,
        comm_overlapped_ns=overlapped_ns,
        streams=tuple(uses),
    )


def cpu(parts: Budget) -> DeviceReport:
    """Give the device of a trace without GPU rows."""
    return replace(gpu(parts), name="CPU", kind="cpu", streams=())


def rank(*devices: DeviceReport, n_steps: int = 5, **changes: object) -> RankReport:
    """Give a rank with equal steps over the devices' window."""
    window = devices[0].budget.window_ns if devices else 0
    mean = window // n_steps if n_steps else None
    plain = RankReport(
        source="runs/llama_rank0.json.gz",
        format="kineto",
        rank=None,
        world_size=None,
        torch_version="2.9.1",
        n_events=81_204,
        checks=OK_CHECKS,
        window_ns=(1_000, 1_000 + window),
        steps=Steps(
            n=n_steps,
            source="ProfilerStep" if n_steps else "span",
            mean_ns=mean,
            p50_ns=mean,
            p95_ns=None if mean is None else mean * 103 // 100,
            cv=0.02 if n_steps else None,
            durations_ns=() if mean is None else (mean,) * n_steps,
        ),
        devices=devices,
        sections=(KERNELS,),
        warnings=(),
        findings=(),
        skipped=(),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def finding(ident: str, title: str, *statements: str, fraction: float, **changes: object) -> Finding:
    """Give a finding with one piece of evidence per statement."""
    plain = Finding(
        id=ident,
        title=title,
        severity=Severity.HIGH,
        confidence=0.85,
        recoverable_ns=int(fraction * 41.2 * MS),
        fraction=fraction,
        evidence=tuple(
            Evidence(statement=statement, metric=f"{ident}.{place}", value=float(place), unit="ns", expected="< 5.0 %")
            for place, statement in enumerate(statements)
        ),
        fix="do less of it",
        next_tools=(NSYS,),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def verdict(bottleneck: Bottleneck, headline: str, *findings: Finding, **changes: object) -> Verdict:
    """Give a confident verdict on a step of 41.2 ms."""
    top = findings[0].recoverable_ns if findings else 0
    plain = Verdict(
        bottleneck=bottleneck,
        is_healthy=False,
        confidence=0.85,
        headline=headline,
        step_ns=int(41.2 * MS),
        recoverable_ns=top,
        speedup_ceiling=41.2 * MS / (41.2 * MS - top),
        next_tool=NSYS,
        fixes=tuple(finding.fix for finding in findings),
        caveats=("one run shows where time goes, not whether a change helps",),
        findings=findings,
        ruled_out=(),
        source="runs/llama_rank0.json.gz",
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def report(answer: Verdict, *ranks: RankReport, **changes: object) -> Report:
    """Give a report whose findings are the verdict's."""
    plain = Report(verdict=answer, ranks=ranks, findings=answer.findings, skipped=())
    return replace(plain, **changes)  # type: ignore[arg-type]


KERNELS: Final = Section(
    analyzer="kernels",
    title="kernels",
    values={"n_rows": 16_320, "shares": (0.58, float("nan")), "by_family_ns": {"elementwise": 12 * MS}},
    tables=(
        TableView(
            title="top kernels",
            headers=("kernel", "family", "count", "total", "share"),
            units=("text", "text", "count", "ns", "fraction"),
            rows=(
                (
                    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, char*>(int)",
                    "elementwise",
                    9_480,
                    12 * MS,
                    0.58,
                ),
                ("[bold]evil[/bold] \x1b[31mred\x1b[0m <T>", "other", 2, None, 0.0001),
            ),
            note="Times are sums over the window.",
        ),
    ),
)

LAUNCH: Final = finding(
    "host.launch_bound",
    "the GPU waits for the host to launch work",
    "3,264 operations (92.0 % of all) were launched while the GPU was idle; launch latency is 5 us",
    "the median kernel takes 3.10 us; 71.0 % of kernels take less time than their own launch call",
    "aten::mul, aten::add, aten::sigmoid: 58.0 % of launches, 9.0 % of GPU time",
    fraction=0.425,
    fix="torch.compile or CUDA graphs for the hot blocks; foreach or fused optimizer; larger batch",
)
SYNC: Final = finding(
    "host.sync",
    "the host waits for results in every step",
    "2 blocking calls per step, 1.20 ms in which nothing is queued behind them",
    "aten::item from the loss: 10 of 10",
    fraction=0.029,
    severity=Severity.LOW,
    fix="log the loss every 100 steps, not every step",
)
UNFUSED: Final = finding(
    "kernel.unfused",
    "elementwise kernels take much of the GPU time",
    "58.0 % of kernel time is in kernels limited by memory bandwidth",
    fraction=0.061,
    severity=Severity.MEDIUM,
)


def overhead() -> Report:
    """Give the standard case: a GPU that starves for launches, with everything a report can hold."""
    parts = budget(
        206 * MS,
        comm_exposed=8_652_000,
        copy_exposed=1_236_000,
        idle_data=824_000,
        idle_sync=5_974_000,
        idle_launch=87_550_000,
        idle_unknown=618_000,
    )
    device = gpu(parts, comm_ns=23_278_000, overlapped_ns=14_626_000)
    answer = verdict(
        Bottleneck.OVERHEAD,
        "the GPU waits for the host to launch work: 42.5 % of the window",
        LAUNCH,
        SYNC,
        ruled_out=("data (0.4 %)", "exposed communication (4.2 %)", "exposed copies (0.6 %)"),
        proof="Double the micro-batch. If the step grows by less than 10 %, the GPU was not the limit.",
    )
    skipped = (Skipped(analyzer="memory", reason="no memory events", how_to_get="profile_memory=True"),)
    return report(
        answer,
        rank(device, warnings=("12 events of an unknown category were ignored",)),
        findings=(LAUNCH, UNFUSED, SYNC),
        skipped=skipped,
    )


def data_bound_cpu() -> Report:
    """Give a CPU trace that waits for its DataLoader."""
    parts = budget(299 * MS, idle_data=278_369_000, idle_launch=4_186_000, idle_host=8_671_000)
    starved = finding(
        "input.starved",
        "the step waits for its DataLoader",
        "the training thread waits 34.9 ms per step for the DataLoader (93.1 % of the window)",
        "num_workers=0: the training process makes each batch itself, inside the step",
        fraction=0.931,
        recoverable_ns=34_900_000,
        fix="num_workers=4 or more, persistent_workers=True",
    )
    answer = verdict(
        Bottleneck.DATA,
        "the step waits for its DataLoader: 93.1 % of the window",
        starved,
        step_ns=37_375_000,
        speedup_ceiling=14.47,
        next_tool=PY_SPY,
    )
    return report(answer, rank(cpu(parts), n_steps=8))


def inconclusive() -> Report:
    """Give a capture that lost its kernels."""
    lost = "94.7 % of 3,264 kernel launches have no kernel in the trace"
    quality = finding(
        "capture.quality", "this trace does not allow a verdict", lost, fraction=0.0, recoverable_ns=0, confidence=0.95
    )
    answer = verdict(
        Bottleneck.INCONCLUSIVE,
        f"this trace does not allow a verdict: {lost}",
        quality,
        confidence=0.0,
        speedup_ceiling=None,
        next_tool=RECAPTURE,
        fixes=(),
        caveats=(lost, "one run shows where time goes, not whether a change helps"),
    )
    checks = (Check(id="launches.lost", ok=False, value=0.947, message=lost), OK_CHECKS[1])
    device = gpu(budget(206 * MS, idle_unknown=200 * MS))
    return report(answer, rank(device, checks=checks, torch_version=None))


def healthy() -> Report:
    """Give a GPU that computes."""
    answer = verdict(
        Bottleneck.KERNEL,
        "healthy: 94.9 % of the window is compute; matrix products are 85.6 % of kernel time",
        is_healthy=True,
        speedup_ceiling=1.0,
        fixes=("leave it alone: the next gain takes a better algorithm, a smaller model or lower precision",),
    )
    return report(answer, rank(gpu(budget(206 * MS, idle_launch=10_506_000))))


def two_devices() -> Report:
    """Give one process with two GPUs, the second of which does most of the work."""
    idle = gpu(budget(206 * MS, idle_dependency=150 * MS, idle_sync=6 * MS))
    busy = gpu(budget(206 * MS, idle_launch=87_550_000), device=1)
    return replace(overhead(), ranks=(rank(idle, busy),))


def two_ranks() -> Report:
    """Give two ranks, of which the second is the one spoken of, and a third that could not be read."""
    one = rank(gpu(budget(206 * MS, comm_exposed=90 * MS, idle_launch=2 * MS)), rank=0, world_size=3)
    two = replace(overhead().ranks[0], source="runs/llama_rank1.json.gz", rank=1, world_size=3)
    answer = replace(overhead().verdict, source=two.source, rank=1)
    failure = Failure(
        source="runs/llama_rank2.json.gz",
        error="TruncatedTraceError",
        message="runs/llama_rank2.json.gz ends inside event 81,204 (gzip stream cut at byte 4,194,304)",
    )
    return replace(overhead(), verdict=answer, ranks=(one, two), failures=(failure,))


def no_steps() -> Report:
    """Give a trace in which no steps were found."""
    answer = replace(overhead().verdict, step_ns=None, speedup_ceiling=None)
    return replace(overhead(), verdict=answer, ranks=(rank(overhead().ranks[0].devices[0], n_steps=0),))


def failure_only() -> Report:
    """Give a report on sources none of which could be read."""
    answer = verdict(
        Bottleneck.INCONCLUSIVE,
        "no source could be read",
        confidence=0.0,
        step_ns=None,
        speedup_ceiling=None,
        next_tool=RECAPTURE,
        caveats=(),
        source="",
    )
    bad = Failure(source="model.pt", error="TraceFormatError", message="it begins with a ZIP header (a checkpoint?)")
    return report(answer, failures=(bad,))


def hostile() -> Report:
    """Give a report whose names try to style, break or command the place where they are shown."""
    name = "[bold red]x[/] <script>alert(1)</script> |`*_a_*`|\n# head\r\x1b[31m\x9b2J\u202egnp.exe\ud800 foo<T[3]>"
    nasty = finding("host.evil", name, name, "1. " + name, fraction=0.425, fix=name)
    answer = verdict(
        Bottleneck.OVERHEAD,
        name,
        nasty,
        next_tool=NextTool(name=name, line=line_of("python", f"train.py\n rm ``` {name}"), purpose=name, look_for=name),
        caveats=(name,),
        ruled_out=(name,),
        proof=name,
        source=name,
    )
    check = Check(id="bad.check", ok=False, value=float("nan"), message=name)
    device = replace(gpu(budget(206 * MS, idle_launch=87_550_000)), name=name)
    section = Section(
        analyzer=name,
        title=name,
        values={name: name},
        tables=(TableView(title=name, headers=(name, "n"), units=("text", "count"), rows=((name, 1),), note=name),),
    )
    one = rank(device, source=name, checks=(check,), sections=(section,), warnings=(name,), torch_version=name)
    two = replace(one, source=name + "2")
    failure = Failure(source=name, error=name, message=name)
    skipped = Skipped(analyzer=name, reason=name, how_to_get=name)
    return report(answer, one, two, failures=(failure,), skipped=(skipped,))


MADE: Final = (
    overhead, data_bound_cpu, inconclusive, healthy, two_devices, two_ranks, no_steps, failure_only, hostile,
)  # fmt: skip
ALL: Final = {make.__name__: make() for make in MADE}
