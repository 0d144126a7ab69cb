"""Findings on device memory."""

from __future__ import annotations

from typing import Final

from profkit.findings import parts
from profkit.findings.kind import FindingKind, Supersedes, Threshold, Way
from profkit.model.documents.report import Bottleneck

PRESSURE: Final = FindingKind(
    id="memory.pressure",
    title="the allocator calls the driver inside the steps",
    bottleneck=Bottleneck.MEMORY,
    part=parts.SYNC,
    late_phase="host",
    late_word="allocator",
    notes=("the share of memory in use is context only: a published case had memory pressure at 81 %",),
    # allocator calls block the host: the same idle time stands under sync
    supersedes=(Supersedes("host.sync", Way.BEHIND),),
    meaning="After warm-up PyTorch's allocator serves every request from its cache. cudaMalloc or cudaFree inside steady steps means that the cache was too small and was flushed, which waits for every stream, or that shapes keep changing.",
    measured="Calls of cudaMalloc, cudaFree, cuMem* and their HIP twins in the window, the steps that have one, the idle time of the device inside the calls, and all idle time that begins there. A call while kernels run costs nothing.",
    thresholds={
        "steps": Threshold(2, "allocator calls in {} steps or more", "chosen; torchtitan warns at the first retry", ""),
        "window": Threshold(0.02, "and idle time of {} of the window", "chosen; less is noise between runs"),
    },
    lookalikes=(
        "shapes that vary need new allocations",
        "first steps and autotuning: capture after warm-up",
    ),
    proof="Lower memory without changing the work per token (smaller micro-batch, more accumulation): throughput rises.",
    fixes=(
        "expandable_segments:True",
        "bucketed shapes",
        "activation checkpointing",
        "smaller prefetch of FSDP",
    ),
)

WARMUP: Final = FindingKind(
    id="memory.warmup",
    title="convolutions try their algorithms: this is a first pass",
    # the device idles in trials and their allocations, whatever these are called
    supersedes=tuple(
        Supersedes(name, Way.BEHIND, 0.5) for name in ("host.launch_bound", "host.sync", "memory.pressure")
    ),
    meaning="With torch.backends.cudnn.benchmark = True the first call of a convolution with new shapes runs every algorithm, with memory of its own for each, and times it. It happens once per shape. Where shapes change from step to step it never ends.",
    measured="Convolution operators that wait for an event inside: that is a timed trial, which no later call makes. The share of the window in which the device idles inside them.",
    thresholds={
        "trials": Threshold(
            3, "{} waits for events inside convolutions", "chosen: one or two algorithms are no choice", ""
        ),
        "steps": Threshold(
            0.5, "in at most {} of the steps, of three or more", "chosen: in more, shapes change all the time"
        ),
        "window": Threshold(
            0.02, "and the device idles there for {} of the window", "chosen; less is noise between runs"
        ),
    },
    lookalikes=("shapes that change: with benchmark = True each new one is tried anew, also late in training",),
    proof="Record again after warm-up: the waits inside convolutions are gone. If they are not, set torch.backends.cudnn.benchmark = False.",
    fixes=(
        "record after warm-up steps",
        "fixed shapes, or torch.backends.cudnn.benchmark = False where shapes change",
    ),
)
