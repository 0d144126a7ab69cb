"""What `profkit explain` prints of findings across ranks: meaning, measure, thresholds, what else looks like them."""

from __future__ import annotations

from typing import Final

from profkit.model.finding import Explanation
from profkit.ranks.measure.pipeline_bubbles import PIPELINE_BUBBLE
from profkit.ranks.measure.tokens import PADDING_WASTE, TOKEN_SKEW

_MATCHED: Final = "20 matched collectives on all ranks of the group (diagnosis, rule 6); else it is not said"

_ALL: Final = (
    Explanation(
        id="straggler.rank",
        title="all ranks wait for one that comes late",
        meaning="A synchronising collective begins when its last rank comes. One rank is late, more than chance makes"
        " ranks late, by its own doing since the last collective; the others stand in the collective meanwhile. The"
        " ranks with most time in communication are the victims: the late one has the least.",
        measured="The same collective is found on all ranks (sequence numbers, else order checked by ends), clocks are"
        " brought together by the ends of collectives, which all ranks leave nearly at once, and each rank's arrival is"
        " compared with the middle of the others. Recoverable is what one would win if it alone came with the second"
        " last. The phase is what it spent longer on than the others since the collective before.",
        thresholds=(
            "lateness beyond the middle rank's from 3 % of the time, 5 % of two ranks (diagnosis, rule 7)",
            "on a CPU, lateness in compute from 15 %: shared cores differ by less for a whole capture (analyses/ddp)",
            "p < 0.005, shuffling ranks within blocks of time. Chosen: at 0.01 a healthy pair of gloo ranks was named",
            "half of the lateness is its own work since its last collective, and durations alone agree: chosen",
        ),
        lookalikes=(
            "pipeline stages differ by design: the last one holds the loss",
            "more tokens on one rank in every step: its kernels are more or larger, not slower",
            "a rank held up by another group's late rank is not blamed: its own work does not explain it",
            "clocks that are apart: waits by clocks and by durations disagree then, and the report says so",
        ),
        proof="Swap the data shards of the late rank and a peer, then their hosts: what the lateness follows is the"
        " cause. Or give that rank one cached batch: the step must fall by what is recoverable.",
        fixes=(
            "data: as many workers, shards and storage as the peers",
            "host: affinity, other processes, garbage collection",
            "compute: clocks, power and temperature; or a balanced share of the work",
        ),
    ),
    Explanation(
        id="rank0.work",
        title="all ranks wait for work that only rank 0 does",
        meaning="Rank 0 logs, evaluates, saves or downloads, and the others stand in the next collective meanwhile.",
        measured="Host ranges before collectives that rank 0 is late for, and that the other ranks do not have; or its"
        " lateness at barriers.",
        thresholds=(
            "rank 0 is a named straggler, and such ranges or barriers hold half of its lateness (diagnosis 2.18)",
        ),
        lookalikes=("the profiler itself, if it runs on rank 0 only: capture all ranks or none",),
        proof="Let another rank do the work: the lateness must move with it.",
        fixes=("save and log asynchronously, or every n-th step", "give each rank its share", "no barrier after it"),
    ),
    Explanation(
        id="comm.skew",
        title="ranks wait for each other, now for one and now for another",
        meaning="Collectives take long because ranks come at different times, and it is not one rank that is late. A"
        " faster network gives nothing.",
        measured="Waiting is the time from a rank's own start to the last rank's, transfer the time from there to the"
        " first end. The exposed part of waiting is what compute does not cover.",
        thresholds=(
            "waiting is half or more of waiting and transfer (diagnosis 2.13)",
            "exposed waiting from 5 % of the window (diagnosis, rule 5)",
            _MATCHED,
        ),
        lookalikes=(
            "token counts that vary from batch to batch: the late rank is the one with most tokens",
            "more ranks than cores, on a CPU: the system lets ranks wait for a core in turn",
            "pipeline stages: send and receive kernels that spin are no skew",
        ),
        proof="Put a barrier before the collective on all ranks: the collective becomes short, the barrier long.",
        fixes=("batches of equal tokens on all ranks", "garbage collection and logging at the same step on all ranks"),
    ),
    Explanation(
        id="comm.bandwidth",
        title="collectives transfer rather than wait, with no compute over it",
        meaning="The ranks come together and the collectives take long all the same: bytes, links or the algorithm.",
        measured="Transfer is the time from the last rank's start to the first end; bus bandwidth is the message size"
        " over it, times 2(n-1)/n for an all-reduce, (n-1)/n for all-gather and reduce-scatter (nccl-tests).",
        thresholds=("waiting below half (diagnosis 2.13)", "exposed transfer from 5 % of the window", _MATCHED),
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
    ),
    Explanation(
        id="collective.extra",
        title="a collective that the backward pass does not ask for",
        meaning="The script reduces something besides gradients: a loss, a metric, gradients for a second time.",
        measured="All-reduces by kind, size and the operator that asked for them; suspect is one that the script itself"
        " asks for while gradients are reduced in backward, with a tenth of the group's bytes or more, mostly exposed.",
        thresholds=("a tenth of the traffic, half of it exposed: chosen", "2 % of the window"),
        lookalikes=("a loss that is reduced on purpose: then do it less often", "SyncBatchNorm asks in forward"),
        proof="Leave the call out: bytes and time must drop together.",
        fixes=("defer it, fuse it with others, or do it every n-th step",),
    ),
)

EXPLANATIONS: Final = {
    explanation.id: explanation for explanation in (*_ALL, TOKEN_SKEW, PADDING_WASTE, PIPELINE_BUBBLE)
}
