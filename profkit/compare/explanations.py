"""What `profkit explain compare.*` prints: what each reading means, how it is measured, and what looks like it."""

from __future__ import annotations

from typing import Final

from profkit.model.finding import Explanation

_EFFECT: Final = "silent below 2 % of the baseline's step (chosen: run-to-run noise of a quiet machine)"
_PROOF: Final = "profkit bench runs both sides in turns: the same reading must come back, and the answer with it."


def _explanation(
    name: str, title: str, meaning: str, measured: str, *lookalikes: str, thresholds: tuple[str, ...] = (_EFFECT,)
) -> Explanation:
    return Explanation(
        id=f"compare.{name}",
        title=title,
        meaning=meaning,
        measured=measured,
        thresholds=thresholds,
        lookalikes=lookalikes,
        proof=_PROOF,
        fixes=(),
    )


_ALL: Final = (
    _explanation(
        "overlap_bought_nothing",
        "the overlap is real and bought nothing",
        "More communication runs under compute than before, and the step is no shorter. The gain went into kernels that"
        " run slower beside communication, into collectives that take longer, into idle time, or the link was busy"
        " all along. No schedule can take more off the step than T - max(compute, communication).",
        "Hidden share of communication on both sides; kernels of the same name, grid and block (on a CPU: name and"
        " place in the step) under communication against alone; the same collectives on both sides.",
        "a slower clock: kernels that run alone on both sides are as much slower, and are divided out",
        "a slower loader: its wait is taken off the step first",
        "a late peer stretches a collective as contention does; one rank cannot tell",
        thresholds=(
            "hidden share up by 10 points and 2 % of the step, and less than half of it gained: chosen",
            "under: 80 % of a row or more; alone: 5 % or less; 10 rows of each: chosen",
            "contention and stretch from 1.05x and 2 % of the step, a busy link from 90 %: chosen",
        ),
    ),
    _explanation(
        "overlap_gained",
        "more communication runs under compute, and the step is shorter for it",
        "At least half of what was hidden came off the step.",
        "Hidden share of communication, and the step less the wait for data, on both sides.",
        "less communication altogether also raises the hidden share: look at the collectives",
    ),
    _explanation(
        "overlap_lost",
        "less communication runs under compute",
        "Collectives that ran beside compute now run alone.",
        "Hidden share of communication on both sides.",
        "less compute to hide it under: then the step need not be longer",
    ),
    _explanation(
        "input",
        "waiting for data changed",
        "The step waits more, or less, for its DataLoader; or another kind of loader changed nothing.",
        "Idle time while the host was in the loader, on both sides; the loader's class tells where batches are made.",
        "a shorter step leaves workers less time: the wait rises although the loader is as fast as before",
    ),
    _explanation(
        "precision",
        "matrix products run in another precision",
        "The number format of matrix kernels changed.",
        "Time of matrix kernels by the format that their names tell.",
        "a library that picked other kernels of the same format is not this",
        thresholds=("20 points of matrix time, which is 5 % of the step or more: chosen",),
    ),
    _explanation(
        "casts",
        "tensors are cast on their way",
        "On a CPU no kernel name tells a number format. Casts that the backward pass differentiates, on one side only,"
        " are what mixed precision leaves in a trace.",
        "ToCopyBackward0 nodes and aten::_to_copy operators per step.",
        "moving a tensor that needs a gradient to another device, which a CPU job does not do",
        thresholds=("none on one side, one per step or more on the other: chosen",),
    ),
    _explanation(
        "compiled",
        "the work is compiled, or replayed as CUDA graphs",
        "One side runs kernels that Inductor generated, or replays recorded launches.",
        "Kernels named triton_*, calls of compiled graphs on a CPU, graph launches; operations and launches per step.",
        "one generated helper kernel (below 1 % of the step) is no compiled model",
        thresholds=("1 % of the step in generated kernels; replays that save 10 % of the launches: chosen",),
    ),
    _explanation(
        "recompute",
        "activations are recomputed in the backward pass",
        "Activation checkpointing: forward operators run again inside the backward pass, for less memory.",
        "Operators of the forward pass that no backward formula calls, inside autograd's nodes.",
        "an evaluation beside the step runs forward operators too, but outside the backward pass",
        thresholds=("a tenth of the forward operators: chosen, one block of ten",),
    ),
    _explanation(
        "work_changed",
        "a step does another amount of work",
        "Batch, sequence length or resolution differ. Then steps must not be compared, only time per unit of work.",
        "Grids of kernels that both sides launch equally often, launch by launch; bytes copied to the device.",
        "inputs of another width: fewer bytes, the same grids",
        "another kernel for the same work: only kernels of one name are compared",
        thresholds=("half of the matched kernel time with other grids, nine tenths of it one way: chosen",),
    ),
    _explanation(
        "syncs",
        "the host waits for the device more or less often",
        "Calls that return only when the device is done, and the idle time they leave.",
        "Blocking calls per step and idle time after them, on both sides.",
        "waiting at the end of a step that is device-bound costs nothing",
    ),
    _explanation(
        "launches",
        "the device waits longer or less for the host",
        "Idle time because launches came late, or the host did other work.",
        "Idle time put down to launching and other host work; launches per step.",
        "a faster device makes the same host look slower",
    ),
    _explanation(
        "same_work_slower",
        "the same kernels take longer, across the board",
        "Nothing else changed for these rows: clocks, power, another device, or cores that others use.",
        "Medians of the same kernels, alone on both sides; most of their time must have moved the same way.",
        "larger batches take longer too: that is compare.work_changed, and comes first",
        thresholds=("1.03x on a device, 1.1x on a CPU, over half of the compute, four fifths of it one way: chosen",),
    ),
    _explanation(
        "same_work_faster",
        "the same kernels take less time, across the board",
        "The mirror of compare.same_work_slower.",
        "As compare.same_work_slower.",
        "a smaller batch: that is compare.work_changed",
    ),
)

EXPLANATIONS: Final = {explanation.id: explanation for explanation in _ALL}
