"""Findings on communication: what no compute hides, and what it is made of."""

from __future__ import annotations

from typing import Final

from profkit.findings import parts
from profkit.findings.kind import CONTAINED, FindingKind, Supersedes, Threshold, Way
from profkit.model.report import Bottleneck

_WAITING: Final = Threshold(0.5, "waiting and transfer are told apart at {} of both", "docs/sources.md, rule 18")
_MATCHED: Final = Threshold(
    20, "{} matched collectives on all ranks of the group, else nothing is said", "docs/sources.md, rule 6", ""
)
_SPLIT: Final = Supersedes("comm.exposed", Way.SAID_ONCE, 0)  # where all ranks are here, waiting and transfer are known

EXPOSED: Final = FindingKind(
    id="comm.exposed",
    title="communication is not hidden under compute",
    bottleneck=Bottleneck.COMM,
    part=parts.COMM,
    alone_caveat="one rank alone: waiting for a late peer and transfer cannot be told apart",
    meaning="Collectives run while no compute kernel does. That is an upper bound of what communication costs: part of"
    " it is waiting for a late rank, and an exposed collective need not delay anything.",
    measured="The union of communication (by kernel name or collective arguments, never by stream) without compute;"
    " what is this rank's to win leaves out the time in which the host, in no blocking call, had not launched the next"
    " compute."
    " On a CPU: gloo ranges of background threads without operators.",
    thresholds={
        "window": Threshold(
            0.05, "fires at {} of the window", "chosen between XProf's 3 % and torch-tb-profiler's 10 %"
        ),
        "lone_share": Threshold(0.5, "one call with {} of the exposed time", "chosen"),
        "lone_ratio": Threshold(
            10,
            "that takes {} as long as others of its name may be start-up, a late peer or another size",
            "chosen",
            "x",
        ),
    },
    lookalikes=(
        "a late peer: the collective is long here and short there; the rank with the most NCCL time is the victim",
        "a collective launched late because this host was late",
        "pipeline bubbles: send/receive kernels that spin",
    ),
    proof="Run with DDP.no_sync(), or halve the bytes (bf16 compression hook): exposed time must fall in proportion.",
    fixes=(
        "triage all ranks to find the late one",
        "bucket size, prefetch, accumulation",
        "fewer bytes, better topology",
    ),
)

SKEW: Final = FindingKind(
    id="comm.skew",
    title="ranks wait for each other, now for one and now for another",
    bottleneck=Bottleneck.COMM,
    part=parts.COMM,
    supersedes=(_SPLIT,),
    meaning="Collectives take long because ranks come at different times, and it is not one rank that is late. A"
    " faster network gives nothing.",
    measured="Waiting is the time from a rank's own start to the last rank's, transfer the time from there to the"
    " first end. The exposed part of waiting is what compute does not cover.",
    thresholds={
        "waiting": _WAITING,
        "window": Threshold(0.05, "exposed waiting from {} of the window", "docs/sources.md, rule 5"),
        "matched": _MATCHED,
        "mostly_one": Threshold(
            CONTAINED,
            "one rank with {} of the lateness is named: ranks do not take turns",
            "chosen, as for what explains a finding",
        ),
    },
    lookalikes=(
        "token counts that vary from batch to batch: the late rank is the one with most tokens",
        "more ranks than cores, on a CPU: the system lets ranks wait for a core in turn",
        "pipeline stages: send and receive kernels that spin are no skew",
    ),
    proof="Put a barrier before the collective on all ranks: the collective becomes short, the barrier long.",
    fixes=("batches of equal tokens on all ranks", "garbage collection and logging at the same step on all ranks"),
)

BANDWIDTH: Final = FindingKind(
    id="comm.bandwidth",
    title="collectives transfer rather than wait, with no compute over it",
    bottleneck=Bottleneck.COMM,
    part=parts.COMM,
    supersedes=(_SPLIT,),
    meaning="The ranks come together and the collectives take long all the same: bytes, links or the algorithm.",
    measured="Transfer is the time from the last rank's start to the first end; bus bandwidth is the message size"
    " over it, times 2(n-1)/n for an all-reduce, (n-1)/n for all-gather and reduce-scatter (nccl-tests).",
    thresholds={
        "waiting": _WAITING,
        "window": Threshold(0.05, "exposed transfer from {} of the window", "docs/sources.md, rule 5"),
        "matched": _MATCHED,
        "headline": Threshold(0.5, "from {} of the step it is said before a late rank", "chosen"),
    },
    lookalikes=(
        "small messages are limited by latency: compare bus bandwidth at the job's message size",
        "compute under the collective slows both: profkit compare with overlap off",
    ),
    proof="Halve the bytes (bf16 compression hook): exposed transfer must fall in proportion.",
    fixes=(
        "fewer bytes, larger buckets, gradient accumulation",
        "overlap with backward",
        "topology, NCCL's settings",
    ),
)

EXTRA: Final = FindingKind(
    id="collective.extra",
    title="a collective that the backward pass does not ask for",
    bottleneck=Bottleneck.COMM,
    part=parts.COMM,
    supersedes=(Supersedes("comm.bandwidth", Way.JOINED), Supersedes("comm.skew", Way.JOINED)),
    meaning="The script reduces something besides gradients: a loss, a metric, gradients for a second time.",
    measured="All-reduces by kind, size and the operator that asked for them; suspect is one that the script itself"
    " asks for while gradients are reduced in backward, with a tenth of the group's bytes or more, mostly exposed.",
    thresholds={
        "traffic": Threshold(0.1, "{} of the group's bytes or more", "chosen"),
        "exposed": Threshold(0.5, "{} of its time exposed", "chosen"),
        "window": Threshold(0.02, "{} of the window", "chosen; below lies the noise between runs"),
    },
    lookalikes=("a loss that is reduced on purpose: then do it less often", "SyncBatchNorm asks in forward"),
    proof="Leave the call out: bytes and time must drop together.",
    fixes=("defer it, fuse it with others, or do it every n-th step",),
)
