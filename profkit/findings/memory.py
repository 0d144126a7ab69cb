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
