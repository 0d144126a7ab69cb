"""Findings on ranks that the others wait for."""

from __future__ import annotations

from typing import Final

from profkit.findings.kind import FindingKind, Supersedes, Threshold, Way
from profkit.model.report import Bottleneck

_VICTIMS: Final = Supersedes("comm.exposed", Way.SAID_ONCE)  # their waiting is not theirs to win
_TURNS: Final = Supersedes("comm.skew", Way.SAID_ONCE)
_BEFORE_TRANSFER: Final = Supersedes("comm.bandwidth", Way.SECOND, 0)
"""Causes rank by the lower bound of what they give (docs/sources.md, rule 22). Of lateness, tested against
chance, that is its share; of transfer it is nothing, for the traces do not say what the links could do."""

LATE_RANK: Final = FindingKind(
    id="straggler.rank",
    title="all ranks wait for one that comes late",
    bottleneck=Bottleneck.STRAGGLER,
    supersedes=(_VICTIMS, _TURNS, _BEFORE_TRANSFER),
    meaning="A synchronising collective begins when its last rank comes. One rank is late, more than chance makes"
    " ranks late, by its own doing since the last collective; the others stand in the collective meanwhile. The"
    " ranks with most time in communication are the victims: the late one has the least.",
    measured="The same collective is found on all ranks (sequence numbers, else order checked by ends), clocks are"
    " brought together by the ends of collectives, which all ranks leave nearly at once, and each rank's arrival is"
    " compared with the middle of the others. Recoverable is what one would win if it alone came with the second"
    " last. The phase is what it spent longer on than the others since the collective before.",
    thresholds={
        "effect": Threshold(0.03, "lateness beyond the middle rank's from {} of the time", "docs/sources.md, rule 7"),
        "effect_of_two": Threshold(0.05, "{} of two ranks", "docs/sources.md, rule 7"),
        "effect_of_cores": Threshold(
            0.15,
            "on a CPU, lateness in compute from {}",
            "chosen from analyses/ddp, shared cores differ by less for a whole capture",
        ),
        "p": Threshold(
            0.005,
            "p < {}, shuffling ranks within blocks of time",
            "chosen; at 0.01 a healthy pair of gloo ranks was named, with p = 0.0095",
            "",
        ),
        "own_work": Threshold(0.5, "{} of the lateness is its own work since its last collective", "chosen"),
        "agreed": Threshold(0.5, "durations alone, without clocks, give {} of it", "chosen"),
        "share": Threshold(
            0.1,
            "a rank with less than {} of what lateness costs is named as hidden behind others",
            "chosen; on the Megatron set the two stragglers have 51 and 41 %, the next rank 7 %",
        ),
        "slow_kernels": Threshold(
            1.05, "the same kernels take {} as long: the device is slow, not the work", "docs/sources.md, rule 19", "x"
        ),
    },
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
)

RANK0: Final = FindingKind(
    id="rank0.work",
    title="all ranks wait for work that only rank 0 does",
    bottleneck=Bottleneck.STRAGGLER,
    supersedes=(Supersedes("straggler.rank", Way.JOINED), _VICTIMS, _BEFORE_TRANSFER),
    meaning="Rank 0 logs, evaluates, saves or downloads, and the others stand in the next collective meanwhile.",
    measured="Host ranges before collectives that rank 0 is late for, and that the other ranks do not have; or its"
    " lateness at barriers.",
    thresholds={
        "covered": Threshold(
            0.5,
            "rank 0 is a named straggler, and such ranges or barriers hold {} of its lateness",
            "docs/sources.md, rule 13",
        ),
        "only_here": Threshold(
            0.1, "a range is its own where the others have less than {} of its time in the median", "chosen"
        ),
    },
    lookalikes=("the profiler itself, if it runs on rank 0 only: capture all ranks or none",),
    proof="Let another rank do the work: the lateness must move with it.",
    fixes=("save and log asynchronously, or every n-th step", "give each rank its share", "no barrier after it"),
)
