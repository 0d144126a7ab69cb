"""Changes that people make between two captures, each told by its signs."""

from __future__ import annotations

from typing import Final

from profkit.findings.comparison import PROOF
from profkit.findings.kind import FindingKind, Threshold

_SHARE: Final = Threshold(
    0.01, "{} of the step on one side, a tenth of that or less on the other", "chosen, as for generated kernels"
)

ATTENTION: Final = FindingKind(
    id="compare.attention",
    title="attention runs as one kernel",
    meaning="One side runs attention as one kernel (FlashAttention, memory-efficient, cuDNN), the other as products of matrices with a softmax between them.",
    measured="Time of kernels with these names; of attention, softmax and the products around it in all.",
    thresholds={"share": _SHARE},
    lookalikes=("longer sequences: attention grows with their square, whatever runs it",),
    proof=PROOF,
    fixes=(),
)

CHANNELS: Final = FindingKind(
    id="compare.layout",
    title="convolutions convert the layout of their tensors",
    meaning="cuDNN's kernels for tensor cores want channels last; tensors in NCHW are converted before and after.",
    measured="Time of kernels that convert between NCHW and NHWC, and that about as many convolutions run.",
    thresholds={
        "share": _SHARE,
        "convolutions": Threshold(
            0.2, "as many convolutions within {}", "chosen, cuDNN splits a few into several kernels"
        ),
    },
    lookalikes=("another algorithm (cudnn.benchmark) may need no conversion either",),
    proof=PROOF,
    fixes=(),
)

UPDATES: Final = FindingKind(
    id="compare.optimizer",
    title="the optimizer updates weights otherwise",
    meaning="A loop over tensors launches some ten kernels for each; foreach does one operation for many tensors, fused all operations.",
    measured="Names of kernels and operators of torch, apex and DeepSpeed; time of what the optimizer's range launched, or of kernels named so, and of elementwise ones.",
    thresholds={
        "named": Threshold(1, "{} kind of kernel or operator that is named so", "no other work has these names", "")
    },
    lookalikes=("gradient clipping and scaling run foreach kernels too, of other functors: they count for nothing",),
    proof=PROOF,
    fixes=(),
)

BUCKET_SIZE: Final = FindingKind(
    id="compare.buckets",
    title="gradients are all-reduced in other buckets",
    meaning="As many bytes in fewer all-reduces, or in more: DDP's bucket_cap_mb.",
    measured="All-reduces per step and their bytes, where these are recorded; and that as many kernels run.",
    thresholds={
        "ratio": Threshold(1.2, "{} as many all-reduces, and one more per step", "chosen", "x"),
        "bytes": Threshold(0.02, "the same bytes within {}", "chosen, padding of buckets"),
        "kernels": Threshold(0.05, "as many kernels within {}", "chosen, a library picks other kernels for a few"),
    },
    lookalikes=("more layers or another model: then other kernels run as well",),
    proof=PROOF,
    fixes=(),
)

BUFFERS: Final = FindingKind(
    id="compare.broadcast",
    title="buffers are broadcast in each step",
    meaning="DDP sends rank 0's buffers (BatchNorm's statistics) to all ranks before each forward pass; broadcast_buffers=False leaves that out.",
    measured="Broadcasts per step beside all-reduces, on one side only.",
    thresholds={
        "broadcasts": Threshold(0.5, "{} per step or more", "chosen, one in two steps", ""),
        "gone": Threshold(0.1, "{} of them on the other side at most", "chosen, weights are broadcast once"),
    },
    lookalikes=("a script that broadcasts a batch or a flag itself",),
    proof=PROOF,
    fixes=(),
)

BUCKET_COPIES: Final = FindingKind(
    id="compare.bucket_copies",
    title="gradients are copied out of their buckets",
    meaning="DDP reduces gradients in flat buckets, and copies each bucket back unless gradients are views of it (gradient_as_bucket_view=True).",
    measured="Copies within the device, their bytes, and that as many kernels run beside all-reduces.",
    thresholds={
        "copies": Threshold(2, "{} copies per step come or go", "chosen, more than one bucket", ""),
        "gone": Threshold(0.5, "with half of the bytes or more: {} are left at most", "chosen, the larger part"),
    },
    lookalikes=("other tensors that are copied within the device: a cache, an average of weights",),
    proof=PROOF,
    fixes=(),
)

PINNED: Final = FindingKind(
    id="compare.pinned",
    title="batches are copied from pinned memory",
    meaning="From pageable memory the driver copies through a buffer of its own, and the call waits; from pinned memory (pin_memory=True) the device copies by itself, and with non_blocking=True the host goes on.",
    measured="Bytes copied to the device by the kind of memory they come from.",
    thresholds={
        "bytes": Threshold(64, "{} per step or more", "chosen, scalars are no batch", " bytes"),
        "share": Threshold(0.5, "{} of them change their memory", "chosen, the larger part"),
    },
    lookalikes=("smaller batches may be copied from pageable memory as fast",),
    proof=PROOF,
    fixes=(),
)

COPY_STREAM: Final = FindingKind(
    id="compare.copy_stream",
    title="copies to the device run on a stream of their own",
    meaning="Work on one stream runs in order: a batch is copied, then computed on. On a stream of its own the copy of the next batch can run beside the kernels, where the memory is pinned and the copy is issued early enough.",
    measured="Bytes copied to the device on streams that run no kernels; time of these copies, and the part of it under compute.",
    thresholds={
        "bytes": Threshold(64, "{} per step or more", "as in compare.pinned", " bytes"),
        "share": Threshold(0.5, "{} of them change their stream", "chosen, the larger part"),
    },
    lookalikes=("a copy on the same stream that runs beside kernels of another stream",),
    proof=PROOF,
    fixes=(),
)

ACCUMULATION: Final = FindingKind(
    id="compare.accumulation",
    title="gradients are accumulated over another number of passes",
    meaning="The optimizer steps after more, or fewer, passes forward and backward.",
    measured="Ranges of the optimizer per step; where a step has one on both sides, kernels by name that all run more often by one whole factor, and bytes copied to the device, which stay.",
    thresholds={
        "ratio": Threshold(1.5, "{} as many passes for a step of the optimizer", "chosen", "x"),
        "repeated": Threshold(0.8, "{} of kernel time in kernels of that factor", "as in compare.work_changed"),
        "factor": Threshold(0.1, "within {} of a whole factor", "as in compare.work_changed"),
    },
    lookalikes=("two optimizers that take turns",),
    proof=PROOF,
    fixes=(),
)

SLOW_STEP: Final = FindingKind(
    id="compare.slow_step",
    title="one step is slow among many",
    meaning="A single step takes twice the median or more. The mean has it, no other step does: it says nothing of the change unless it comes back.",
    measured="The lengths of the steps, and the parts of the slow one; the other readings leave it out.",
    thresholds={
        "effect": Threshold(0.02, "silent below {} of the baseline's step", "as in the other readings"),
    },
    lookalikes=("every tenth step is slow: that comes back, and short recordings show one of them",),
    proof="Record more steps, or both sides again: the slow step must not come back.",
    fixes=(),
)

DEVICE: Final = FindingKind(
    id="compare.device",
    title="the work runs on another kind of device",
    meaning="A GPU on one side, the CPU on the other: the kernels have nothing in common, and no part of the step is set against another.",
    measured="Whether device rows were recorded.",
    thresholds={"kinds": Threshold(2, "{} kinds of devices", "a CPU stands for traces without device rows", "")},
    lookalikes=("a recording that lost its device rows looks like the CPU's: profkit triage says so",),
    proof=PROOF,
    fixes=(),
)

COLLECTIVES: Final = FindingKind(
    id="compare.collectives",
    title="ranks exchange by other collectives",
    meaning="All-reduces of a replicated model became all-gathers and reduce-scatters of a sharded one (FSDP, ZeRO), or the reverse; or tokens go to experts by all-to-all.",
    measured="Collectives by kind; kinds that one side alone has.",
    thresholds={
        "calls": Threshold(1, "{} call per step or more of a kind that came, and of one that went", "chosen", "")
    },
    lookalikes=("a library that writes an all-reduce as reduce-scatter and all-gather",),
    proof=PROOF,
    fixes=(),
)

ALLOCATOR: Final = FindingKind(
    id="compare.allocator",
    title="the device idles more or less in calls of the allocator",
    meaning="cudaMalloc and cudaFree inside the steps wait for the device, as .item() does, but what ends them is less memory or a cache that fits, not fewer reads.",
    measured="Calls of cudaMalloc, cudaFree and their kin, and the idle time in and right behind them, on both sides; where one slow step is apart from the others, nothing.",
    thresholds={"effect": Threshold(0.02, "silent below {} of the baseline's step", "as compare.syncs")},
    lookalikes=("a recording that begins in warm-up: first steps fill the cache",),
    proof=PROOF,
    fixes=(),
)
