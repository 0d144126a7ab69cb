"""Findings on the whole run beside the recorded steps: rare steps that are long, and memory that grows."""

from __future__ import annotations

from typing import Final

from profkit.findings.kind import FindingKind, Supersedes, Threshold, Way
from profkit.model.documents.report import Bottleneck

_WORTH: Final = Threshold(
    0.03, "fires at {} of the run", "as the blind rounds have it: a cause that gives less counts as healthy"
)
REST_METRIC: Final = "whole_run.rest_ns"
"""Of the evidence that rare steps also do what no fix saves, ns per step of the run."""
_MEASURED: Final = "The capture times all steps of the run, not only the recorded ones, and beside the recording a thread of its own looks at the line that runs, four times a step, at most every 20 ms, after 500 looks every 50 ms. Rare are steps 1.5 times as long as the median or longer, and beyond three distances of the quartiles. What they take beyond the mean of the others counts, where two thirds of it lie at one line, or at up to three, and the other steps have clearly less there (30 points). Three such steps show it, or two that take four times the median or more: of these one may be a recorded step, or the one that the run ends in. Inside of a trainer's evaluation the line is that of what it does beside the model. Longer steps that are at the same lines as the others are no finding. Where they come every so many steps, up to the end of the run, and begin later than that, the share is of the steps from there on."

RARE: Final = FindingKind(
    id="host.rare",
    title="some steps also do something else",
    bottleneck=Bottleneck.OVERHEAD,
    is_of_run=True,
    supersedes=(Supersedes("host.chore", Way.SAID_ONCE, 0.6), Supersedes("host.stall", Way.SAID_ONCE, 0.5)),
    meaning="Every so many steps the loop does something beside training: it saves, evaluates, logs, collects experience. The recorded steps hold none of it, or more than the run does; its share is that of the run.",
    measured=_MEASURED,
    thresholds={
        "run": _WORTH,
        "evaluation": Threshold(
            0.3,
            "an evaluation that runs the model most of the time fires at {} of the run, and is `host.other_steps` below",
            "chosen on programs that docs/accuracy.md shows: evaluations of the healthy ones have up to a quarter",
        ),
        "acting": Threshold(
            0.5,
            "what makes the data that is trained on at {} of the run, and is `host.other_steps` below",
            "chosen: it has more of the run than all training steps",
        ),
    },
    lookalikes=(
        "an evaluation, or experience, that is wanted as often as this: its share is its price",
        "another program that takes the cores or the disk now and then",
    ),
    proof="Leave it out, or do it half as often: the mean step becomes shorter by the share shown, or by half of it.",
    fixes=(
        "do it less often, or in a thread or process beside the training",
        "save asynchronously (torch.distributed.checkpoint.async_save), or only what changes",
        "keep metrics as tensors on the device, write them every few hundred steps",
    ),
)

DECOMPOSES: Final = FindingKind(
    id="work.rare",
    title="some steps also decompose matrices",
    bottleneck=Bottleneck.KERNEL,
    is_of_run=True,
    supersedes=RARE.supersedes,
    meaning="Every so many steps a line decomposes a matrix: an optimizer's subspace, a preconditioner, a whitening. That is work of torch's own, not Python, and takes the cube of a side: often only a few directions of it are used, or one side is much longer than needed.",
    measured=_MEASURED + " It is a decomposition where the line's text calls one of torch.linalg.",
    thresholds={"run": _WORTH},
    lookalikes=("a decomposition of which all is used, as often as it is needed: its share is its price",),
    proof="Do it half as often for some steps: the mean step becomes shorter by half of the share shown.",
    fixes=(
        "eigh of the smaller Gram matrix (g @ g.T for a wide g, g.T @ g for a tall one) gives the singular vectors of the short side, and torch.svd_lowrank the first few",
        "do it less often: what it gives changes slowly; on blocks, or for the largest matrices alone",
    ),
)

OTHER_STEPS: Final = FindingKind(
    id="host.other_steps",
    title="some steps do work of another kind",
    is_of_run=True,
    meaning="Every so many steps the loop makes what it trains on: it plays, collects experience, computes targets. Or it runs the model on other data: an evaluation. That is part of the job, and a kind of step of its own: what is said of the training step holds beside it.",
    measured=_MEASURED,
    thresholds={"run": _WORTH},
    notes=("it is told by words of the line and its function (rollout, collect, act); it is no verdict",),
    lookalikes=("a save or an evaluation in a function with such a name",),
    proof="Record it by itself: call it in a loop of its own under profkit run.",
    fixes=(
        "where it asks a model for one item after the other, ask once for all; run it beside the training (other processes, a vector of environments); record it by itself, to see what it waits for",
    ),
)

RARE_INPUT: Final = FindingKind(
    id="input.rare",
    tries=("one_batch",),
    title="some batches take far longer than others",
    bottleneck=Bottleneck.DATA,
    is_of_run=True,
    meaning="Most batches come at once; now and then one takes many times as long, and the step waits for it: a broken record, a large file, a cache that is filled, workers that start anew with each epoch.",
    measured=_MEASURED,
    thresholds={"run": _WORTH},
    lookalikes=("storage that others use as well: the same items are fast another time",),
    proof="Leave the slow items out, or feed the same batch again: the mean step becomes shorter by the share shown.",
    fixes=(
        "repair or leave out the slow items, or prepare them once and store the result",
        "more workers and a larger prefetch_factor, so that a slow item has time",
        "persistent_workers=True, where workers start anew with each epoch",
    ),
)

_SLOWER: Final = "The capture times all steps of the run. They grow where each quarter of them takes longer than the one before (by its lower quartile: other programs on the machine only make steps longer), by at least 0.4 of what it should (0.2 where it grows by a quarter or more), and the last quarter 5 % longer than the first. What they cost is what all steps take beyond the pace that the run has where it begins. The line is named where two thirds of the growth are at it by the looks at the first and the last third of the steps, and where the rest of the step grows at a third of its rate or less. Other programs on the machine may hide that steps grow: on a CPU a line is named as well that takes twice as much, beside all else, in the last third of the run as in the first, more in each, by 3 deviations of the looks at it. It costs what these looks find there beyond the share that it has where the run begins. On a GPU the time of the host says little of that: there nothing is named. Nor where the CPU time of the training thread grows at less than half the rate of the steps, and by less than 15 %: they wait for a core. Lines that come with a second loop, where those of the first go, do not grow."

RECOPIES: Final = FindingKind(
    id="memory.recopies",
    title="what the run has kept is copied anew in each step",
    bottleneck=Bottleneck.MEMORY,
    is_of_run=True,
    supersedes=(Supersedes("host.chore", Way.SAID_ONCE, 0.6),),
    meaning="A line joins what it has kept so far and what is new into one array, tensor or table. That copies all that was kept before, in each step: twice as many steps take four times the copies. The recorded steps, early in the run, show little of it.",
    measured=_SLOWER
    + " It is a copy where the line's text or what it calls joins arrays: cat, concatenate, append of NumPy, concat.",
    thresholds={"run": _WORTH},
    lookalikes=("a line that joins batches of growing size: the work grows, not what is kept",),
    proof="Append to a Python list in its place, and join once after the loop: the steps stay as short as the first ones.",
    fixes=(
        "append to a Python list and join once after the loop",
        "write into an array that was made for the whole run",
        "keep running sums and counts where only these are read",
    ),
)

SLOWS: Final = FindingKind(
    id="host.slows",
    title="each step takes longer than the one before",
    bottleneck=Bottleneck.OVERHEAD,
    is_of_run=True,
    supersedes=(Supersedes("host.chore", Way.SAID_ONCE, 0.6),),
    meaning="A line goes through something that grows with each step: a history, a log, a list of all that was seen. Twice as many steps take four times as long there. The recorded steps, early in the run, show little of it.",
    measured=_SLOWER,
    thresholds={"run": _WORTH},
    lookalikes=(
        "sequences that become longer by design: there all lines of the step grow",
        "episodes that become longer as an agent learns: what is played grows, not what is kept",
        "a machine that becomes slower, by its heat or by other programs: there, too",
    ),
    proof="Leave the line out: the steps stay as short as the first ones.",
    fixes=(
        "keep running sums, or a window of fixed length (deque(maxlen=...))",
        "look up in a set or a dictionary, not in a list",
        "do it once every few hundred steps",
    ),
)

FLUSH: Final = "call torch.set_flush_denormal(True) right behind import torch: it takes such numbers for zero, in this thread and in those that begin later"
"""Measured: called behind the first operator that two threads share, it leaves half of the values subnormal."""

SINKS: Final = FindingKind(
    id="work.sinks",
    tries=("flush_denormal",),
    title="numbers become subnormal as the run goes on",
    bottleneck=Bottleneck.KERNEL,
    is_of_run=True,
    supersedes=(Supersedes("host.chore", Way.SAID_ONCE, 0.6),),
    meaning="What decays at each step and is never reset falls below 1.2e-38 in single precision and stays there: traces, running averages, states. A CPU computes with such numbers by microcode, many times as slowly. Nothing that is kept grows: the same operators on the same shapes take longer.",
    measured=_SLOWER
    + " Numbers become subnormal where some values of the tensors that the script's functions, objects and optimizers hold are so after 2, 4, 8... times as many steps, more than at first; where the line computes; and where each of them costs 250 ns of a step or less. Where many lines compute with them none has most of the growth: then a line is named that multiplies or adds the tensor and takes 1.25 times as much of a step in the run's last third as in its first, at 2500 ns or less for each. By the CPU time of the steps each such number costs as much: the share is what all of them cost, 80 % of the run at most.",
    thresholds={"run": _WORTH},
    lookalikes=("a line that computes with more and more values, beside a large tensor that decays",),
    proof="Call torch.set_flush_denormal(True) right behind import torch: the steps stay as short as the first ones.",
    fixes=(
        FLUSH,
        "set what is small to zero now and then",
    ),
)

GROWS: Final = FindingKind(
    id="memory.grows",
    title="memory grows with every step",
    bottleneck=Bottleneck.MEMORY,
    is_of_run=True,
    meaning="What the process holds grows by as much in each step: something that each step leaves behind is kept. A loss that is kept with its graph keeps all activations of its step. In the end memory runs out; until then steps may become longer.",
    measured="The process's own pages, of a GPU the allocator's bytes, read up to 20 times a second beside the recorded steps. It is said where all quarters of these steps grow, none by less than 0.4 of what it should. Lists, dictionaries and sums of the script's own functions are measured twice: the one that grew, and holds tensors with a graph, is named. What it costs is half of what the step grows by from the run's first third to its last: that is the mean.",
    thresholds={
        "bytes": Threshold(32 * 2**20, "grown by {} or more", "chosen: what a process holds swings by less", "KiB"),
    },
    lookalikes=("a replay buffer or a cache that is meant to fill",),
    proof="Keep loss.item() or loss.detach() in place of the loss: memory stays level.",
    fixes=(
        "keep numbers, not tensors with a graph: loss.detach(), or loss.item() every few steps",
        "bound the container (deque(maxlen=...)), or empty it",
    ),
)
