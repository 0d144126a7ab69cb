"""Findings on ranks, and on links, that the others wait for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from profkit.findings.communication import SMALL_MESSAGE
from profkit.findings.kind import FindingKind, Supersedes, Threshold, Way
from profkit.model.documents.report import Bottleneck

_STAGES: Final = Supersedes("pipeline.bubble", Way.BEHIND, 0)  # what the other stages wait for
_VICTIMS: Final = Supersedes("comm.exposed", Way.SAID_ONCE)  # their waiting is not theirs to win
_TURNS: Final = Supersedes("comm.skew", Way.SAID_ONCE)
_BEFORE_TRANSFER: Final = (Supersedes("comm.bandwidth", Way.SECOND, 0), Supersedes("comm.exposed", Way.SECOND, 0))
"""Causes rank by the lower bound of what they give (docs/sources.md, rule 22). Of lateness, tested against
chance, that is its share; of transfer it is nothing, for the traces do not say what the links could do."""


class LateWords(msgspec.Struct, frozen=True):
    """How a late rank's phase is said: of one rank, of several, and as what it spends its time on."""

    one: str
    several: str
    spent: str


LATE_WORDS: Final[Mapping[str | None, LateWords]] = {
    "data": LateWords("which waits for its DataLoader", "which wait for their DataLoaders", "on input data"),
    "compute": LateWords("which computes longer", "which compute longer", "in compute"),
    "host": LateWords("which is held up by its CPU", "which are held up by their CPUs", "in host work"),
    "copy": LateWords("which spends longer in copies", "which spend longer in copies", "in copies"),
    "device": LateWords(
        "whose device starts its work late",
        "whose devices start their work late",
        "with launched work that its idle device has not started",
    ),
    None: LateWords(*2 * ("for which the traces show no single cause",), "in no single phase"),
}
"""By phase (`PHASES` in `profkit/ranks/reduce/records.py`), None where no phase explains it. The word for what in a phase
a rank has more of is its finding's `late_word`."""
MORE_SPENT: Final = "in operators and the time between them"
MORE_FIX: Final = (
    "balance the ranks' batches: deal batches sorted by length in turn (batches[rank::world_size]), not in contiguous"
    " parts, or give all ranks batches of about as many tokens"
)
"""Of a CPU rank with more to do, which shows in operators as well as in what dispatches them."""
OWN_FIX: Final = (
    "share that work among the ranks (each evaluates a part of the data, then all_reduce), or do it less often: while one"
    " rank evaluates or logs, the others wait in the next barrier or all-reduce"
)
"""Of a CPU rank that runs operators of its own, without a backward pass."""
UNRECORDED: Final = "whose host does something that its trace does not show"

LATE_RANK: Final = FindingKind(
    id="straggler.rank",
    title="all ranks wait for one late rank",
    bottleneck=Bottleneck.STRAGGLER,
    supersedes=(_VICTIMS, _TURNS, _STAGES, *_BEFORE_TRANSFER),
    meaning="A synchronising collective begins when its last rank arrives. One rank is significantly late because of its own work since the last collective, and the others wait in the collective. The ranks with the most communication time are the ones that wait; the late rank has the least.",
    measured="The same collective is found on all ranks (sequence numbers, else order checked by ends), clocks are aligned by the ends of collectives, which all ranks leave nearly at the same time, and the arrival of each rank is compared with the median of the others. Recoverable is the time saved if this rank were no later than the next-slowest rank. The phase is what it spent longer on than the others since the previous collective. A stage of a pipeline is compared with the same stage of other pipelines, or with the other stages; rank 0 is also named for copies in one step that no other rank makes, and a rank for a single delay of its host that is three times any other.",
    thresholds={
        "effect": Threshold(0.03, "a delay against the median rank from {} of the time", "docs/sources.md, rule 7"),
        "effect_of_two": Threshold(0.05, "with two ranks from {}", "docs/sources.md, rule 7"),
        "effect_of_cores": Threshold(
            0.15,
            "on a CPU, a delay in compute from {}",
            "chosen from analyses/ddp, shared cores differ by less for a whole capture",
        ),
        "p": Threshold(
            0.005,
            "p < {} (permutation test, ranks shuffled within blocks of time)",
            "chosen; at 0.01 a healthy pair of gloo ranks was named, with p = 0.0095",
            "",
        ),
        "few": Threshold(
            20,
            "with fewer than {} matched collectives, or fewer than six steps, lateness of this size needs no such test:",
            "docs/sources.md, rule 6",
            "",
        ),
        "gross_ratio": Threshold(
            3,
            "in each of two to five steps more than {} as late as any other rank",
            "measured: 300 drawn healthy jobs have up to 2.2x in two steps, and of three ranks 5.8x: there, twice as much",
            "x",
        ),
        "gross_effect": Threshold(0.2, "in one step, or without steps, from {} of the time besides", "chosen"),
        "own_work": Threshold(0.5, "its own work since its last collective explains {} of the delay", "chosen"),
        "agreed": Threshold(0.5, "durations alone, without clocks, give {} of it", "chosen"),
        "share": Threshold(
            0.1,
            "a rank with less than {} of the cost of all delays is named as hidden behind others",
            "chosen; on the Megatron set the two stragglers have 51 and 41 %, the next rank 7 %",
        ),
        "beside_peers": Threshold(
            0.5,
            "a cause is named of which the rank has more than its peers, by {} of what it is said to explain",
            "chosen, as for its own work",
        ),
        "verdict": Threshold(
            0.03,
            "from {} of the step the late rank is the verdict, however long the work itself takes",
            "as its effect: it is tested, and mending it needs no faster work",
        ),
        "slow_kernels": Threshold(
            1.05,
            "the same kernels take {} as long, nearly all of them alike: the device is slow, not the work larger",
            "docs/sources.md, rule 19",
            "x",
        ),
    },
    lookalikes=(
        "stages of one pipeline differ by design (the last one holds the loss): their compute counts only where the device is slow",
        "more tokens on one rank in every step: its kernels are more or larger; where a kernel's grid does not grow with its work (persistent ones), it looks like a slow device",
        "a rank held up by another group's late rank is not blamed: its own work does not explain it",
        "wrong clocks: then waits from clocks and waits from durations disagree, and the report says so",
    ),
    proof="Swap the late rank's shards with a peer's: if the delay moves, the data is the cause. Swap hosts: if it moves, the host is.",
    fixes=(
        "data: as many workers, shards and storage as the peers",
        "host: affinity, other processes, garbage collection",
        "compute: clocks, power and temperature; or a balanced share of the work",
    ),
)

RANK0: Final = FindingKind(
    id="rank0.work",
    tries=("no_saves",),
    title="all ranks wait for work that only rank 0 does",
    bottleneck=Bottleneck.STRAGGLER,
    supersedes=(Supersedes("straggler.rank", Way.JOINED), _VICTIMS, *_BEFORE_TRANSFER),
    meaning="Rank 0 logs, evaluates, saves or downloads while the others wait in the next collective.",
    measured="Host ranges that only rank 0 has, before collectives to which it is late; or its delay at barriers.",
    thresholds={
        "covered": Threshold(
            0.5,
            "rank 0 is a named straggler, and such ranges or barriers explain {} of its delay",
            "docs/sources.md, rule 13",
        ),
        "only_here": Threshold(
            0.1, "a range is its own where the others run it less than {} as often in the median", "chosen"
        ),
    },
    lookalikes=("the profiler itself, if it runs on rank 0 only: capture all ranks or none",),
    proof="Let another rank do the work: the delay must move with it.",
    fixes=("save and log asynchronously, or every n-th step", "give each rank its share", "no barrier after it"),
)

RARE_WORK: Final = FindingKind(
    id="straggler.rare",
    title="the ranks wait for what one rank alone does now and then",
    bottleneck=Bottleneck.STRAGGLER,
    is_of_run=True,
    supersedes=(
        Supersedes("host.rare", Way.SAID_ONCE),
        Supersedes("work.rare", Way.SAID_ONCE),
        Supersedes("host.other_steps", Way.SAID_ONCE),
        Supersedes("straggler.rank", Way.BEHIND),
        Supersedes("rank0.work", Way.BEHIND),
        _TURNS,
    ),
    meaning="Every so many steps one rank evaluates, saves or logs, and the others stand in the next barrier or all-reduce until it is there. The recorded steps hold little of it; its share is that of the run.",
    measured="What the capture of each rank says of rare long steps (host.rare). One rank is at lines of its own then, the others at a line that calls a collective, about as often and in steps as long. The share is that of their wait; of an evaluation, without the part of each rank where all share it.",
    thresholds={
        "run": Threshold(0.03, "fires at {} of the run", "as host.rare"),
        "waiting": Threshold(0.5, "{} of the other ranks or more wait so", "chosen: more than a look may miss"),
        "apart": Threshold(
            0.2, "their long steps differ by {} at most, in number and in length", "chosen: the ranks leave it together"
        ),
        "beside": Threshold(
            0.5,
            "and where the one rank is at the others' line less than {} of the time that these are",
            "chosen: else all do the same, as a backward pass of a longer batch",
        ),
    },
    lookalikes=("a rank on a machine where another program takes the cores now and then",),
    proof="Leave it out on that rank: the others do not wait, and the mean step becomes shorter by that share or more.",
    fixes=(OWN_FIX,),
)

SLOW_LINK: Final = FindingKind(
    id="comm.slow_link",
    tries=("no_collectives",),
    title="one group of ranks transfers more slowly than its twins",
    bottleneck=Bottleneck.COMM,
    supersedes=(
        Supersedes("comm.exposed", Way.SAID_ONCE, 0),
        *_BEFORE_TRANSFER,
        Supersedes("comm.skew", Way.BEHIND, 0.5),  # who waits for the group's ranks in other groups
        _STAGES,
    ),
    meaning="The same collective at the same size takes longer in one process group than in groups of as many other ranks that do the same. The ranks of that group then come late to everything they share with the others, though none of them worked longer.",
    measured="Bus bandwidth (nccl-tests' definition) of the transfer, from the last rank's arrival to the first end, by kind and size; a twin has as many ranks, none of this group's, and the same kinds and sizes; of a pair that sends, the same hop of other pipelines. Recoverable is what the group's transfers take longer than the median of its twins', as far as no compute hides it.",
    thresholds={
        "ratio": Threshold(
            1.2, "its twins are {} as fast", "chosen; twins within one machine differ by a few percent", "x"
        ),
        "always": Threshold(
            0.75, "in {} of its collectives of that size or more", "chosen: a communicator's first step is slow once"
        ),
        "instances": Threshold(4, "in {} collectives or more", "chosen", ""),
        "small": SMALL_MESSAGE,
        "window": Threshold(0.02, "{} of the window", "chosen; below lies the noise between runs"),
        "verdict": Threshold(
            0.03, "from {} of the step it is the verdict", "as for a late rank: it is measured against peers"
        ),
    },
    lookalikes=(
        "a group that spans hosts while its twins do not: the network is slower than NVLink by design; place the group within a host",
        "compute under the collectives of this group alone slows both",
    ),
    proof="Swap the places of this group and a twin (their hosts or devices): the low rate must stay with the place.",
    fixes=(
        "the link: nvidia-smi nvlink --status, topo -m, PCIe width, the network card's rate",
        "the placement: as the twins'",
    ),
)
