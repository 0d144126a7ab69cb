"""Findings on communication: what no compute hides, and what it is made of."""

from __future__ import annotations

from typing import Final

from profkit.findings import parts
from profkit.findings.kind import CONTAINED, TO_TRY, FindingKind, Supersedes, Threshold, Way
from profkit.model.documents.report import Bottleneck

_WAITING: Final = Threshold(
    0.5, "{} of waiting and transfer together decides which of the two is the cause", "docs/sources.md, rule 18"
)
_MATCHED: Final = Threshold(
    20, "{} matched collectives on all ranks of the group are needed", "docs/sources.md, rule 6", ""
)
SMALL_MESSAGE: Final = Threshold(
    65_536, "of messages up to {} the time is said, not a rate", "chosen: any link moves as much in some 10 us", "KiB"
)
_HEADLINE: Final = Threshold(0.5, "from {} of the step on, it is named before a late rank", "chosen")
_SPLIT: Final = Supersedes("comm.exposed", Way.SAID_ONCE, 0)  # where all ranks are here, waiting and transfer are known

_A_PART: Final = 0.4
"""Of communication, what the needless collectives must make. Chosen: of two passes one is needless, half of it."""
_OF_LOOP: Final = 0.3
"""The same of what a loop over tensors costs. Chosen: DDP hides what then is left, which nothing hides in a loop."""

LATENCY_METRIC: Final = "comm.small_message_ns"
"""The evidence by which transfers are latency: fewer and larger ones save most of it."""
SENDS_METRIC: Final = "comm.sends_fraction"
"""The evidence by which most of it is sends and receives of a CPU: stages of a pipeline wait in these for each other's work."""
SENDS_FIX: Final = "if the ranks are stages of a pipeline: spare work on the stages, which shortens the waits as well; more micro-batches; one forward, one backward (1F1B) in place of all forward passes first; move layers from the busiest stage"
DEFAULT_BUCKET_BYTES: Final = 25 * 2**20
"""DistributedDataParallel's `bucket_cap_mb` where nobody sets it."""

EXPOSED: Final = FindingKind(
    id="comm.exposed",
    leads_from=TO_TRY,
    tries=("ddp_bucket", "ddp_view", "fsdp_prefetch", "no_collectives"),
    title="communication is not hidden under compute",
    bottleneck=Bottleneck.COMM,
    part=parts.COMM,
    alone_caveat="one rank alone cannot separate waiting for a late peer from transfer",
    meaning="Collectives run while no compute kernel does. That is an upper bound of what communication costs: part of it is waiting for a late rank, and an exposed collective does not always delay something.",
    measured="The union of communication (by kernel name or collective arguments, never by stream) without compute;"
    " what a fix saves at most leaves out the time in which the host, outside blocking calls, had not launched the next compute."
    " Overlap alone hides no more of it than each step has compute without communication."
    " On a CPU: gloo ranges of background threads without operators.",
    thresholds={
        "window": Threshold(
            0.05, "fires at {} of the window", "chosen between XProf's 3 % and torch-tb-profiler's 10 %"
        ),
        "headline": _HEADLINE,
        "lone_share": Threshold(0.5, "one call with {} of the exposed time", "chosen"),
        "lone_ratio": Threshold(
            10,
            "that takes {} as long as others of its name may be start-up, a late peer or another size",
            "chosen",
            "x",
        ),
        "latency": Threshold(
            100_000,
            "a collective waits rather than transfers if it takes longer than {}",
            "chosen: several times what NCCL needs for a few bytes between nodes",
            "ns",
        ),
        "slow_link": Threshold(
            1,
            "and its bytes at {}",
            "chosen: below 10 Gb Ethernet, the slowest link that jobs train over",
            " GB/s",
        ),
        "mostly": Threshold(
            0.5,
            "for {} of its time; and said if such waiting, or on a CPU sends and receives, are that much of all",
            "chosen",
        ),
    },
    lookalikes=(
        "a late peer: the collective is long on the ranks that wait and short on the late rank; the rank with the most time in collectives is not the cause",
        "a collective launched late because this host was late",
        "pipeline bubbles: send/receive kernels that spin",
    ),
    proof="Halve the bytes for some steps (with DDP a bf16 compression hook, or no_sync()). If the exposed time falls in proportion, it is transfer; else the ranks wait for each other.",
    proof_on_cpu="Leave out every second exchange (with DDP no_sync(), as in gradient accumulation). If the exposed time per step halves, it is transfer; else the ranks wait for each other.",
    fixes=(
        "triage all ranks to find the late one",
        "bucket size, prefetch, accumulation",
        "fewer bytes, better topology",
        SENDS_FIX,
    ),
)

SKEW: Final = FindingKind(
    id="comm.skew",
    leads_from=TO_TRY,
    title="ranks wait for each other; which rank is late changes",
    bottleneck=Bottleneck.COMM,
    part=parts.COMM,
    supersedes=(_SPLIT,),
    meaning="Collectives take long because ranks arrive at different times, but no single rank is late. A faster network does not help.",
    measured="Waiting is the time from a rank's own start to the last rank's, transfer the time from there to the"
    " first end. The exposed part of waiting is what neither compute nor host work that comes anyway covers."
    " Ranks that come at the same time win the mean of theirs, at most that of the rank that waits longest.",
    thresholds={
        "waiting": _WAITING,
        "window": Threshold(
            0.05,
            "exposed waiting from {} of the window; a saving where it is as much in the mean of the ranks",
            "docs/sources.md, rule 5",
        ),
        "tested": Threshold(
            20,
            "and in fewer than {} steps",
            "chosen: in more, a rank that is late by as much in each is named (straggler.rank)",
            "",
        ),
        "matched": _MATCHED,
        "mostly_one": Threshold(
            CONTAINED,
            "one rank with {} of the delay is named",
            "chosen, as for what explains a finding",
        ),
    },
    lookalikes=(
        "token counts that vary from batch to batch: the late rank is the one with the most tokens",
        "more ranks than cores, on a CPU: ranks take turns in waiting for a core",
        "pipeline stages: send and receive kernels that wait are not skew",
    ),
    proof="Put a barrier before the collective on all ranks: the collective becomes short, the barrier long.",
    fixes=("batches of equal tokens on all ranks", "garbage collection and logging at the same step on all ranks"),
)

BANDWIDTH: Final = FindingKind(
    id="comm.bandwidth",
    leads_from=TO_TRY,
    tries=("no_collectives",),
    title="collective time is mostly data transfer, not hidden under compute",
    bottleneck=Bottleneck.COMM,
    part=parts.COMM,
    supersedes=(_SPLIT,),
    meaning="The ranks arrive at the same time, but the collectives still take long: bytes, links or the algorithm.",
    measured="Transfer is the time from the last rank's start to the first end; bus bandwidth is the message size"
    " over it, times 2(n-1)/n for an all-reduce, (n-1)/n for all-gather and reduce-scatter (nccl-tests)."
    " Between hosts over TCP, the kernel's time with data under way of each connection says which link is slow.",
    thresholds={
        "waiting": _WAITING,
        "window": Threshold(0.05, "exposed transfer from {} of the window", "docs/sources.md, rule 5"),
        "matched": _MATCHED,
        "small": SMALL_MESSAGE,
        "headline": _HEADLINE,
        "busy": Threshold(
            0.9,
            "a link is slow where data is under way for {} of the sender's collectives",
            "chosen from analyses/netlab, 97 % and more where the link has a limit",
        ),
        "free": Threshold(
            0.4,
            "while on another that carries as much it is for at most {}",
            "chosen from analyses/netlab, 1 % to 26 % on links without a limit, 69 % and more where acknowledgements wait behind one",
        ),
        "alike": Threshold(0.5, "links count from {} of the bytes of the largest", "chosen"),
        "counted": Threshold(
            100_000_000, "and data under way for {} in all", "chosen: 25 ticks of 4 ms, in which Linux counts it", "ns"
        ),
        "rate": Threshold(
            0.00125,
            "at {} or more",
            "chosen: 10 Mbit/s, below that it is words of control that wait for acknowledgements",
            " GB/s",
        ),
        "lost": Threshold(0.01, "sending {} of it twice is said", "chosen: 0.02 % in analyses/netlab, 0.7 % at most"),
        "carried": Threshold(0.1, "and with {} of the messages' bytes or more, where these are known", "chosen"),
    },
    lookalikes=(
        "small messages are limited by latency: compare bus bandwidth at the job's message size",
        "compute under the collective slows both: profkit compare with overlap off",
    ),
    proof="Halve the bytes (bf16 compression hook): exposed transfer must fall in proportion.",
    proof_on_cpu="Leave out every second exchange (with DDP no_sync(), as in gradient accumulation): exposed transfer per step must halve. To compress the bytes would take time of the same cores.",
    fixes=(
        "fewer bytes, larger buckets, gradient accumulation",
        "overlap with backward",
        "topology, the library's settings (NCCL_..., also RCCL's)",
    ),
)

EXTRA: Final = FindingKind(
    id="collective.extra",
    title="an extra collective that is not part of the backward pass",
    bottleneck=Bottleneck.COMM,
    part=parts.COMM,
    supersedes=(
        Supersedes("comm.asked", Way.SAID_ONCE, 0.5),
        Supersedes("comm.bandwidth", Way.JOINED, 0.5),
        Supersedes("comm.skew", Way.JOINED),
    ),
    meaning="The script reduces something besides gradients: a loss, a metric, gradients for a second time.",
    measured="All-reduces by kind, size and the operator that issued them; one is suspect if the script itself issues it while gradients are reduced in backward, if it has a tenth of the group's bytes or more, and if it is mostly exposed.",
    thresholds={
        "traffic": Threshold(0.1, "{} of the group's bytes or more", "chosen"),
        "exposed": Threshold(0.5, "{} of its time exposed", "chosen"),
        "window": Threshold(0.02, "{} of the window", "chosen; below lies the noise between runs"),
    },
    lookalikes=("an intentional reduction of the loss: do it less often", "SyncBatchNorm, which reduces in forward"),
    proof="Leave the call out: bytes and time must fall together.",
    fixes=("defer it, fuse it with others, or do it every n-th step",),
)

MICRO_REDUCED: Final = FindingKind(
    id="comm.accumulation",
    title="gradients are reduced several times for each update",
    bottleneck=Bottleneck.COMM,
    part=parts.COMM,
    supersedes=(
        Supersedes("comm.exposed", Way.JOINED, _A_PART),
        Supersedes("comm.bandwidth", Way.JOINED, _A_PART),
        Supersedes("comm.skew", Way.BEHIND, _A_PART),
    ),
    meaning="The optimizer steps once for several micro-batches, and the gradients of all ranks are added up after each of them. Only the sum at the end is needed: what lies between is sent for nothing.",
    measured="Requests of DistributedDataParallel's reducer (FSDP2's reduce-scatters) between two steps of an optimizer, by the forward pass that came before: as many after each, and only the first of these passes finds no gradients to add its own to. What the collectives of all but the last pass hold up counts: what no compute hides, and on a CPU also what asks for them and copies gradients back.",
    thresholds={
        "window": Threshold(
            0.03, "fires at {} of the window", "chosen: as for a late rank, nothing about it is a guess"
        ),
        "updates": Threshold(2, "in each of {} updates or more", "chosen: one may be no habit", ""),
    },
    lookalikes=(
        "two models that share an optimizer: their gradients are not the same, and nothing is added to",
        "zero_grad(set_to_none=False) leaves gradients of zeros to add to: this finding is silent then",
    ),
    proof="Leave out the collectives of all but the last micro-batch for some steps: the step becomes shorter by about the time shown, and the losses stay what they were but for rounding.",
    fixes=(
        "DDP: with model.no_sync() around all but the last micro-batch (forward and backward)",
        "FSDP2: model.set_requires_gradient_sync(False) for all but the last, where memory holds unsharded gradients",
        "fewer, larger micro-batches, where memory allows it",
    ),
)

ONE_BY_ONE: Final = FindingKind(
    id="comm.one_by_one",
    title="many collectives one after another, one for each tensor",
    bottleneck=Bottleneck.COMM,
    part=parts.COMM,
    supersedes=(
        Supersedes("comm.exposed", Way.JOINED, _OF_LOOP),
        Supersedes("comm.bandwidth", Way.JOINED, _OF_LOOP),
        Supersedes("collective.extra", Way.BEHIND, _A_PART),
        Supersedes("comm.skew", Way.BEHIND, _A_PART),
    ),
    meaning="The script itself reduces, sends or broadcasts each tensor in a loop, and waits for it before the next. Each pays the latency of a message and the way through Python; the bytes hardly matter.",
    measured="Collectives (all-reduce, reduce, broadcast, send, receive) that no autograd node asks for, many between two operators of backward passes, in a job without DistributedDataParallel. One for all of them would spare what each of them takes at least (a tenth take no more) and the time between two.",
    thresholds={
        "window": Threshold(0.05, "fires at {} of the window", "docs/sources.md, rule 5"),
        "many": Threshold(8, "{} or more in a row", "chosen, as for small buckets", ""),
        "runs": Threshold(2, "in {} runs or more", "chosen: one may be the start", ""),
        "latency": Threshold(
            0.25,
            "from where one for all spares {} of them",
            "chosen: on busy cores half of a message is waiting for one",
        ),
    },
    lookalikes=(
        "large tensors, where the bytes take the time: nothing is said where latency is less than a quarter of a run",
    ),
    proof="Put all tensors into one (torch.cat of the flattened ones), reduce that and copy it back: the run becomes one collective.",
    fixes=(
        "gradients: wrap the model in DistributedDataParallel, which reduces in buckets beside the backward pass; averaged"
        " parameters: average them every n-th step; both: flatten all tensors into one, reduce that once, copy the parts back",
    ),
)

_REDUCES: Final = (
    "add up metrics and losses on each rank and reduce the sums every n-th step, all in one tensor; drop what"
    " DistributedDataParallel reduces already"
)
_GATHERS: Final = (
    "gather only what is needed of other ranks: pooled or projected outputs, a softmax's row maxima and sums, not whole"
    " activations, logits or inputs; labels and features in one tensor"
)
_SENDS: Final = (
    "let each rank read or draw its own part of the batch (DistributedSampler, one seed for all) instead of"
    " sending it in each step"
)
ASKED_FIXES: Final = {
    "all-reduce": _REDUCES,
    "all-gather": _GATHERS,
    "broadcast": _SENDS,
    "scatter": _SENDS,
    "gather": _GATHERS,
    "reduce": _REDUCES,
}
"""What there is against collectives that a script asks for itself, by the kind that takes most of the time."""

ASKED: Final = FindingKind(
    id="comm.asked",
    title="the script itself asks for collectives in each step",
    bottleneck=Bottleneck.COMM,
    part=parts.COMM,
    supersedes=(
        Supersedes("comm.exposed", Way.JOINED, _OF_LOOP),
        Supersedes("comm.bandwidth", Way.JOINED, _OF_LOOP),
        Supersedes("comm.skew", Way.BEHIND, _A_PART),
    ),
    meaning="The script reduces, gathers, sends or waits for something beside the gradients that DistributedDataParallel reduces by itself, in each step, and nothing runs beside it. In a job without that, it gathers.",
    measured="Collectives that neither an autograd node nor DistributedDataParallel's forward pass asks for, one a step or more; in a job without it gathers of lists of tensors alone: the part of each without compute, on a CPU from the call to the end. Of those at one place of a step the median counts for all: the longest may wait for a late rank. A fix of gathers on a CPU also saves of the operators behind them, up to what a gradient goes through, another request or the step's end, what puts the rows of all ranks side by side, and of the rest the part of the other ranks: at most all of them.",
    thresholds={
        "window": Threshold(
            0.08,
            "fires at {} of the window, with what a fix spares behind them",
            "chosen: a small gather that a loss needs took 5 % on two gloo ranks",
        ),
    },
    notes=("barriers are not counted: what they take is waiting, which the next collective would hold",),
    lookalikes=(
        "outputs that a loss needs of all ranks (contrastive learning): gather as little as it reads",
        "a late rank: its lateness then waits in the next collective",
    ),
    proof="Leave these calls out for some steps: the step becomes shorter by about the time shown.",
    fixes=(_REDUCES, _GATHERS, _SENDS),
)

MODULE_BUFFERS: Final = FindingKind(
    id="comm.buffers",
    title="small broadcasts hold each step up, as those of DDP's buffers do",
    bottleneck=Bottleneck.COMM,
    part=parts.COMM,
    supersedes=(
        Supersedes("comm.exposed", Way.JOINED, _A_PART),
        Supersedes("comm.bandwidth", Way.JOINED, _A_PART),
        Supersedes("comm.skew", Way.BEHIND, _A_PART),
    ),
    meaning="DistributedDataParallel sends rank 0's buffers (BatchNorm's running statistics, tables of positions) to all ranks before each forward pass. Every rank waits for them, and nothing runs beside them.",
    measured="Broadcasts beside all-reduces, at least one a step, and the part of their time without compute that holds something up. Where bytes are recorded, they are few beside those of the all-reduces. On a CPU, in a forward pass of DistributedDataParallel, all that comes before the model: buffers are joined, sent and copied back.",
    thresholds={
        "window": Threshold(0.02, "fires at {} of the window", "as in collective.extra"),
        "bytes": Threshold(
            0.1, "{} of the bytes of the all-reduces, or less", "chosen: more are weights, as ZeRO sends them"
        ),
    },
    lookalikes=(
        "a late peer: its lateness then waits in the next collective",
        "a script that broadcasts a batch or a flag itself",
        "ZeRO, which broadcasts weights, where the trace does not tell bytes",
    ),
    proof="Set broadcast_buffers=False for some steps: the broadcasts must go, and the step be shorter by about the time shown.",
    fixes=(
        "DistributedDataParallel(..., broadcast_buffers=False), where each rank may keep its own buffers (BatchNorm's"
        " running statistics)",
        "constant tables: no buffers, or ones that are made where they are used; only what the model needs of them",
    ),
)

BUCKETS: Final = FindingKind(
    id="comm.buckets",
    tries=("ddp_bucket", "no_collectives"),
    title="DDP's gradient buckets are too small, or one is too large",
    is_about_work=True,
    meaning="DistributedDataParallel reduces gradients in buckets while the backward pass goes on. Small buckets each pay the latency of a message. Of a large one the all-reduce begins only when its last gradient is there: where one bucket holds most of the gradients, that is when the backward pass is over, and nothing hides it.",
    measured="All-reduces that are asked for where autograd accumulates a gradient, in a job with DistributedDataParallel, with their sizes. A small one costs the time that it takes beyond its bytes at the rate of this trace's own large buckets, where no compute runs beside it; the median of these times counts for each. A last bucket costs the part of its all-reduce that has no compute beside it, in the step where that is shortest, less one last piece, which nothing can hide.",
    thresholds={
        "window": Threshold(0.05, "fires at {} of the window", "docs/sources.md, rule 5"),
        "many": Threshold(
            8,
            "small buckets are {} or more in a step",
            "chosen: DDP's default size leaves two or three small ones",
            "",
        ),
        "small": Threshold(0.25, "they have {} of the largest one's bytes or less", "chosen"),
        "slow": Threshold(
            0.5, "and reach {} of the large ones' rate or less", "chosen: half of the time is not transfer"
        ),
        "most": Threshold(0.5, "a last bucket holds {} of the step's bytes or more", "chosen"),
    },
    notes=(
        "a last bucket that moves less than 1 GB/s is not judged: it may wait for a peer",
        "buckets that are all equally small have nothing to be judged by, and are not",
    ),
    lookalikes=(
        "a late peer: all buckets of the ranks that wait take longer; triage all ranks",
        "one tensor with most of the bytes (an embedding): DDP does not split it",
        "find_unused_parameters=True reduces one more small tensor in every step",
    ),
    proof="Set bucket_cap_mb to another value and record again: communication without compute beside it becomes shorter by about the time shown.",
    fixes=(
        "bucket_cap_mb=25, the default, or larger",
        "a smaller bucket_cap_mb where one bucket holds most of the gradients",
        "gradient_as_bucket_view=True spares the copies into buckets and out of them",
        "find_unused_parameters=False where all parameters are used",
    ),
)
