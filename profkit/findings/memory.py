"""Findings on device memory."""

from __future__ import annotations

from typing import Final

from profkit.findings import parts
from profkit.findings.kind import FindingKind, Supersedes, Threshold, Way
from profkit.model.documents.report import Bottleneck

PRESSURE: Final = FindingKind(
    id="memory.pressure",
    tries=("segments",),
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

LEAK: Final = FindingKind(
    id="memory.leak",
    title="allocated memory grows in each step",
    meaning="What a training step allocates it also frees, but for the first steps, which create gradients and the optimizer's state. Here more is allocated at the end of each step than at the end of the one before, by about the same amount: something keeps tensors of every step alive. A run that is long enough ends without memory.",
    measured="The allocator's total after the last allocation or free of each step, per device; the rise from step to step. What stays: allocations of all steps but the first and the last that nothing frees before the last step ends, paired with their frees by address.",
    thresholds={
        "steps": Threshold(5, "{} marked steps or more", "chosen: of random totals 1 in 120 rises in all of five", ""),
        "bytes": Threshold(100_000, "it rises by {} bytes in a step", "chosen: 100,000 steps of it are 10 GB", ""),
        "steady": Threshold(
            0.5,
            "the least rise is {} of the median, the largest its inverse",
            "chosen: what varies more follows the batches",
        ),
    },
    lookalikes=(
        "a cache that is meant to grow: key and value of generated tokens, a replay buffer, predictions kept until an evaluation ends",
        "batches that become longer from step to step, where something of the last one is kept",
    ),
    proof="Record twice as many steps with --memory: a leak has risen twice as far. Then remove what keeps the tensors: the total is the same at the end of each step.",
    fixes=(
        "keep numbers, not tensors with their graph: losses.append(loss.detach()) or loss.item() every N steps, no total += loss;"
        " look for lists, hooks and caches that hold outputs of each step",
        "del outputs at the end of the step, or leave the function that holds them",
    ),
)

FRAGMENTED: Final = FindingKind(
    id="memory.fragmented",
    tries=("segments",),
    title="much of the reserved memory is in no tensor at the peak, and the device is nearly full",
    meaning="PyTorch's allocator reserves memory from the driver in segments and cuts tensors out of them. Free pieces between tensors serve only requests that fit. At the moment when most is allocated, what is reserved and free is either fragmented so, or left from an earlier, larger peak. On a device that is nearly full the next large request then flushes the cache, or fails.",
    measured="Reserved minus allocated memory of the device when most is allocated in the recording, and reserved memory as a share of the device's.",
    thresholds={
        "unused": Threshold(
            0.2,
            "{} of what is reserved is unused at the peak",
            "chosen: rounding to blocks and segments takes some percent",
        ),
        "reserved": Threshold(
            0.8, "{} of the device is reserved", "chosen: a published case was under pressure at 81 %"
        ),
    },
    lookalikes=(
        "an earlier, larger peak (validation, cuDNN's trials, a longer batch) left its cache: torch.cuda.empty_cache() after it gives it back",
        "other processes on the device, and CUDA's own memory, are not counted",
    ),
    proof="Run with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: reserved memory falls towards what is allocated.",
    fixes=(
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; where shapes vary, pad them to a few sizes",
        "allocate the largest batch first, so that later ones fit its pieces",
    ),
)
