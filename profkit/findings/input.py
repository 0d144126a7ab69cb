"""Findings on the input pipeline."""

from __future__ import annotations

import re
from typing import Final

from profkit.findings import parts
from profkit.findings.kind import FindingKind, Supersedes, Threshold, Way
from profkit.model.documents.report import Bottleneck
from profkit.redact.later import later

STARVED: Final = FindingKind(
    id="input.starved",
    tries=("workers", "prefetch", "persistent", "one_batch"),
    title="the step waits for its DataLoader",
    bottleneck=Bottleneck.DATA,
    part=parts.DATA,
    late_phase="data",
    late_word="loader",
    meaning="The host waits in DataLoader.__next__ and has nothing to launch, so the GPU becomes idle. Waits that are hidden under queued GPU work cost nothing and are not counted.",
    measured="The union of loader ranges intersected with the device's idle time before the next launch, over the"
    " whole window: with workers the wait comes once per num_workers steps, so a median per step hides it. On a"
    " CPU-only trace: the loader ranges themselves, with the operators that run inside them. A loader in a thread of its own is seen by the waits of the training thread for a batch in a queue (Queue.get) or of a Future. Without any loader: operators on the CPU before the copy of a batch that is the first call of a marked step.",
    thresholds={
        "window": Threshold(
            0.05, "fires at {} of the window", "torch-tb-profiler fires at 5 %; XProf uses 5 % and 20 %"
        ),
        "busy": Threshold(
            0.95,
            "on a CPU, where workers fetch for less than {} of their time, what all waits have in common is no starving:"
            " the step takes over batches that are ready",
            "measured in recordings of docs/accuracy.md: 99 % where workers were too few, 92 % and less elsewhere",
        ),
        "once": Threshold(
            0.8,
            "if one step has {} of the waiting, the finding says 'once'",
            "chosen; the end of an epoch or a first batch is such a step",
        ),
        "workers": Threshold(
            2,
            "up to {} workers are advised as a number, more are left to the machine's cores",
            "chosen: the trace does not say how many cores there are, and any that trains has two",
            "",
        ),
        "slow": Threshold(
            3,
            "a worker that takes {} times as long for each of its batches as the others is named",
            "chosen: half of the time of four such workers is then lost by one",
            "",
        ),
        "tensors": Threshold(
            32,
            "a batch of {} tensors or more, taken over for half of the waiting, is one handed over in pieces",
            "chosen: a usual batch has up to ten; each takes 0.5 ms on a CPU of two cores (trip_duration of"
            " round 7), so that fewer take 16 ms at most",
            "",
        ),
        "line": Threshold(0.3, "a line of the script's own with {} of the time comes first in what to do", "chosen"),
        "most": Threshold(
            0.8,
            "with {}, it comes before all that the loader can do",
            "chosen: all else gives a quarter of that at most",
        ),
        "free": Threshold(
            0.8, "more workers are advised where the job ran on less than {} of the cores' time", "chosen"
        ),
    },
    lookalikes=(
        "the end of an epoch or the first batch: then one step has most of the waiting",
        "another rank is slow and this rank waits in a collective: that is communication, not loader time",
        "a synchronising call hidden in the batch's collate or copy",
    ),
    proof="Fetch one batch before the loop and reuse it. If the step becomes shorter by at least 70 % of the predicted saving, this is the cause.",
    fixes=(
        "num_workers > 0, persistent_workers=True, prefetch_factor=4, pin_memory=True",
        "decode or tokenise once, store the result; larger sequential reads",
        "move augmentation to the GPU",
    ),
)

SAMPLER_FIX: Final = "make the sampler cheaper: it has {share} of this time, in the training process, whatever num_workers is; draw the indices of an epoch at once, as tensors or arrays"
MADE_FIX: Final = "create the tensors of {} on the GPU (device='cuda'), or make the batch ahead: in workers of a DataLoader (num_workers, pin_memory=True), or in another thread"
HANDED_FIX: Final = "pad or stack in collate_fn{} in the worker, so that it hands over a few large tensors a batch, not lists of small ones: each tensor costs a file descriptor, a map of memory and a message between the processes; more workers do not help"
REPEATED_FIX: Final = "divide files or records among the workers before these are read and decoded (files[info.id :: info.num_workers] of get_worker_info()), not when a sample is made"
_LINES: Final = (
    (
        # a path that an index chooses is of one item alone
        later(
            r"\b((json|pickle|yaml|np|numpy|joblib|torch)\.(safe_)?load|(pd|pandas|pl|polars)\.read_[a-z]+|h5py\.File|ZipFile"
            r"|loadtxt)\((?!.*\[\w+\])"
        ),
        "load a file that several items share once, and keep it, not for each item",
    ),
    (
        later(r"\.i?loc\[|\.iterrows\(|\.itertuples\("),
        "turn the table into arrays or tensors once, before the loop",
    ),
    (later(r"tokeni[sz]e", re.IGNORECASE), "tokenise once, before the training, and keep the numbers"),
)
"""What a line does that takes much of the time in which batches are made, and what to do about it. Not as in
`chores`: this line may run in a worker of the DataLoader already."""
LOCKS: Final = later(r"\bwith\b.*lock|\.acquire\(", re.IGNORECASE)
LOCK_FIX: Final = "hold the lock of {} for less, or take one for each file: one process has it at a time, so more workers wait longer for it"
_MOST: Final = (
    (
        later(r"\bsleep\(|\burlopen\(|\brequests\.|\.recv\("),
        "it waits and does not compute: ask for many items at once, or keep a copy near",
    ),
    (
        later(r"load|read|decompress|\bopen\(|\bh5py\b|\bz(ip)?f?\w*\["),
        "is the same file read or decompressed again for other samples? Keep as many files as samples are drawn from,"
        " draw the samples of one file together, or memory-map what is not compressed",
    ),
)
"""The same of a line that takes nearly all of it, by its text."""
_ANY: Final = (
    "compute only what the batch keeps (crop before all other transforms), and once where each epoch computes the same"
)


def fix_of_line(text: str) -> str:
    """What to do about a line that takes much of the time in which batches are made; "" where its text does not tell."""
    return next((fix for kind, fix in _LINES if kind.search(text)), "")


def fix_of_most(text: str) -> str:
    """What to do about a line that takes nearly all of it, by its text and what it calls."""
    return next((fix for kind, fix in _MOST if kind.search(text)), _ANY)


KEPT_FIX: Final = "keep what the loop takes of it: fetch the batch once before the loop, or make one iterator there and take its next batches, as iter(loader) starts workers each time"
RESTARTED: Final = FindingKind(
    id="input.restarted",
    tries=("persistent",),
    title="the workers of the DataLoader are started anew for each epoch",
    bottleneck=Bottleneck.DATA,
    late_phase="data",
    late_word="restarts workers",
    is_of_run=True,
    # the wait for the first batch and the pause before it are both of a start
    supersedes=(Supersedes("input.starved", Way.BEHIND, 0.5), Supersedes("host.stall", Way.SAID_ONCE, 0.5)),
    meaning="Without persistent_workers=True each pass over a DataLoader starts its processes, waits for their first batches and ends them. With short epochs that takes as long as the training.",
    measured="profkit capture times each start of workers after the first, the wait for the first batch and the end of the workers before, from the start of the run to the last recorded step: the share is of the unprofiled step with its part of them, by the batches between two starts, or by the steps where these are more; not of the window, which may hold none.",
    thresholds={
        "window": Threshold(0.05, "fires at {} of the run", "chosen: as input.starved"),
        "starts": Threshold(2, "from {} starts after the first on", "chosen: one may be a validation", ""),
    },
    lookalikes=("one long epoch: its start is paid once",),
    proof="Set persistent_workers=True, and build the DataLoader once: the run becomes shorter by about the share shown.",
    fixes=(
        "persistent_workers=True",
        "build the DataLoader once, before the loop over epochs",
        "num_workers=0 where a batch is made in less time than it takes to hand it over",
    ),
)
