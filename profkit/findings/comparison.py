"""What the numbers of two sides say of the change between them."""

from __future__ import annotations

from typing import Final

from profkit.findings.kind import FindingKind, Threshold

EXPLAINED: Final = "compare.explained_ns"
"""The metric of what a reading explains of the step's change, ns per step; all of one comparison are disjoint."""
PER_WORK: Final = "compare.time_per_work_ratio"
"""The metric of the ratio of times for the same work."""
PROOF: Final = "profkit bench runs both sides in turns: the same reading must come back, and the answer with it."
_EFFECT: Final = Threshold(
    0.02, "silent below {} of the baseline's step", "chosen, run-to-run noise of a quiet machine"
)
_SAME_WORK: Final = {
    "slower": Threshold(
        0.03, "{} more or less on a device", "chosen, medians of one program on one quiet machine differ by up to 2 %"
    ),
    "slower_cpu": Threshold(0.1, "{} on a CPU", "chosen, there they differ by up to 8 %"),
    "matched": Threshold(0.5, "the same rows have {} of the compute", "chosen, the larger part"),
    "one_way": Threshold(0.8, "{} of their time moved the same way", "chosen, else it is not across the board"),
}

BOUGHT_NOTHING: Final = FindingKind(
    id="compare.overlap_bought_nothing",
    title="more communication is hidden, but none of that shortens the step",
    meaning="More communication runs under compute than before, and the step is no shorter. The gain is lost in kernels that run slower during communication, in collectives that take longer or in idle time; or the link was already busy. No schedule can save more than T - max(compute, communication).",
    measured="Hidden share of communication on both sides; kernels of the same name, grid and block (on a CPU: name and"
    " place in the step) under communication against alone; the same collectives on both sides.",
    thresholds={
        "hidden": Threshold(0.1, "hidden share up by {}", "chosen; one schedule differs by less", "points"),
        "effect": _EFFECT,
        "bought": Threshold(0.5, "less than {} of it gained", "chosen, the larger part"),
        "factor": Threshold(
            1.05, "contention and stretch from {}", "chosen, half of what one sees where overlap contends", "x"
        ),
        "busy_link": Threshold(0.9, "a busy link from {} of the step", "chosen"),
        "under": Threshold(0.8, "a row is under communication with {} of it", "chosen"),
        "alone": Threshold(0.05, "a row is alone with {} or less", "chosen"),
        "rows": Threshold(10, "{} rows of each", "chosen, one odd row moves fewer", ""),
    },
    lookalikes=(
        "a slower clock: kernels that run alone are slower by the same factor, which is removed",
        "a slower loader: its wait is subtracted from the step first",
        "a late peer makes a collective longer, as contention does; one rank cannot tell which",
    ),
    proof=PROOF,
    fixes=(),
)

GAINED: Final = FindingKind(
    id="compare.overlap_gained",
    title="more communication runs under compute, and the step is shorter for it",
    meaning="The step is shorter by at least half of the time that is now hidden.",
    measured="Hidden share of communication, and the step less the wait for data, on both sides.",
    thresholds={"effect": _EFFECT},
    lookalikes=("less communication altogether also raises the hidden share: look at the collectives",),
    proof=PROOF,
    fixes=(),
)

LOST: Final = FindingKind(
    id="compare.overlap_lost",
    title="less communication runs under compute",
    meaning="Collectives that overlapped compute now run alone.",
    measured="Hidden share of communication on both sides.",
    thresholds={"effect": _EFFECT},
    lookalikes=("less compute to hide it under: then the step is not always longer",),
    proof=PROOF,
    fixes=(),
)

INPUT: Final = FindingKind(
    id="compare.input",
    title="waiting for data changed",
    meaning="The step waits more, or less, for its DataLoader; or another kind of loader changed nothing.",
    measured="Idle time while the host was in the loader, on both sides; the loader's class shows where batches are made.",
    thresholds={"effect": _EFFECT},
    lookalikes=(
        "a shorter step leaves the workers less time: the wait is longer although the loader is as fast as before",
    ),
    proof=PROOF,
    fixes=(),
)

PRECISION: Final = FindingKind(
    id="compare.precision",
    title="matrix products run in another precision",
    meaning="The number format of matrix kernels changed.",
    measured="Time of matrix kernels by the format in their names; bits of an operand: 64 of fp64, 32 of fp32, 19 of tf32, 16 of bf16 and fp16, 8 of fp8 and int8.",
    thresholds={
        "shift": Threshold(
            0.2, "{} of matrix time changed its format", "chosen, a module or more and not one kernel", "points"
        ),
        "matrix": Threshold(
            0.05, "matrix kernels are {} of the step or more, on one side at least", "as in precision.fallback"
        ),
        "known": Threshold(0.5, "the format of {} of their time is known, on both sides", "chosen, the larger part"),
    },
    lookalikes=("a library that picked other kernels of the same format is not this",),
    proof=PROOF,
    fixes=(),
)

CASTS: Final = FindingKind(
    id="compare.casts",
    title="tensors are cast to another number format",
    meaning="On a CPU, kernel names do not show the number format. Mixed precision shows as casts in the backward pass, on one side only.",
    measured="ToCopyBackward0 nodes and aten::_to_copy operators per step.",
    thresholds={"casts": Threshold(1, "none on one side, {} per step or more on the other", "chosen", "")},
    lookalikes=("moving a tensor that needs a gradient to another device, which a CPU job does not do",),
    proof=PROOF,
    fixes=(),
)

COMPILED: Final = FindingKind(
    id="compare.compiled",
    title="the work is compiled, or replayed as CUDA graphs",
    meaning="One side runs kernels that Inductor generated, or replays recorded launches.",
    measured="Kernels named triton_*, calls of compiled graphs on a CPU, graph launches; operations and launches per step.",
    thresholds={
        "generated": Threshold(
            0.01, "{} of compute in generated kernels", "chosen, one generated helper kernel is not a compiled model"
        ),
        "more": Threshold(
            0.1, "where both are compiled, {} more of compute", "chosen, another part of the model", "points"
        ),
        "launches": Threshold(
            0.1, "replays that save {} of the launches", "chosen, a graph that replaces fewer is not how the step runs"
        ),
    },
    lookalikes=("one generated helper kernel (below 1 % of compute) is not a compiled model",),
    proof=PROOF,
    fixes=(),
)

RECOMPUTE: Final = FindingKind(
    id="compare.recompute",
    title="activations are recomputed in the backward pass",
    meaning="Activation checkpointing: forward operators run again inside the backward pass, for less memory.",
    measured="Operators of the forward pass that no backward formula calls, inside autograd's nodes.",
    thresholds={"share": Threshold(0.1, "{} of the forward operators", "chosen, one block of ten")},
    lookalikes=("an evaluation beside the step runs forward operators too, but outside the backward pass",),
    proof=PROOF,
    fixes=(),
)

PRODUCTS: Final = FindingKind(
    id="compare.products",
    title="matrix products are called more or less often",
    meaning="A step calls more matrix products, while most other operators run as often as before: something is computed in more pieces (a loss in chunks, a loop over samples or experts), or products were added (adapters). Each piece reads its weights again and costs a call.",
    measured="Calls of aten::mm, addmm, bmm and baddbmm per step, with their time on a CPU; and of how many other kinds of operators a step has as many calls as before. Not said where activations are recomputed, or the work is compiled, on one side only.",
    thresholds={
        "ratio": Threshold(
            1.1, "{} as often, or the inverse", "chosen: calls are counted, and steady steps have as many each", "x"
        ),
        "alike": Threshold(
            0.5,
            "with {} of the other kinds of operators called as often as before",
            "chosen: with more micro-batches or layers nearly all are called more often",
        ),
    },
    lookalikes=(
        "adapters (LoRA) add products of their own: then more is computed",
        "smaller pieces may be meant, to save memory: compare peak memory too",
    ),
    proof=PROOF,
    fixes=(),
)

WORK_CHANGED: Final = FindingKind(
    id="compare.work_changed",
    title="a step does a different amount of work",
    meaning="Batch, sequence length or resolution differ. Then compare only time per unit of work, not steps.",
    measured="Grids of kernels that both sides launch equally often, launch by launch; bytes copied to the device; how often kernels of one grid are launched. Where shapes were recorded, elements that operators work on per step come first.",
    thresholds={
        "matched": Threshold(
            0.1,
            "{} of kernel time in kernels that both sides launch equally often",
            "chosen, the reference pairs of one batch size match 12 % and more",
        ),
        "changed": Threshold(
            0.5,
            "{} of that time with other grids",
            "chosen, 0 to 10 % in the reference pairs of one batch size, 64 % and more where the batch was doubled",
        ),
        "names": Threshold(
            0.25,
            "and {} of their names",
            "chosen: 8 % where fused layers pad, 81 % and more where the batch was doubled",
        ),
        "agreeing": Threshold(0.9, "{} of it by much the same factor", "chosen"),
        "near": Threshold(0.5, "within {} of its logarithm", "chosen: tiles round grids up"),
        "same": Threshold(
            1.05,
            "work that differs by less than {} is the same",
            "chosen, padding varies a batch by less over several steps",
            "x",
        ),
        "copied": Threshold(
            512, "copies to the device tell of it from {} per step", "chosen, a few scalars are no batch", " bytes"
        ),
        "input": Threshold(
            512 * 1024, "windows that copied {} and as much hold the same input", "chosen, scalars add up", "KiB"
        ),
        "passes": Threshold(
            1.25,
            "where steps are not marked, {} as many bytes copied, products and shared kernels",
            "chosen, another choice of kernels changes products by less",
            "x",
        ),
        "blocks": Threshold(
            0.5, "other kernels with {} of that factor in blocks", "chosen, large blocks take a part of a larger batch"
        ),
        "repeated": Threshold(
            0.8,
            "{} of kernel time in kernels of one grid that are launched more or less often by one factor",
            "chosen, an optimizer's part stays as it is",
        ),
        "factor": Threshold(
            0.1, "within {} of that factor, or one launch", "chosen, a window cuts a pass of the model anywhere"
        ),
        "kinds": Threshold(5, "{} kinds of kernels at least", "chosen, one kernel alone may be launched otherwise", ""),
        "operators": Threshold(10, "{} operators with shapes on both sides", "chosen, one layer has as many", ""),
        "shapes": Threshold(
            0.3, "{} of them with other numbers of elements per step", "chosen, weights and optimizer stay as they are"
        ),
        "shapes_apart": Threshold(0.5, "{} where they changed by several factors", "chosen, the larger part"),
        "alike": Threshold(0.5, "{} of these by one factor", "chosen, attention grows with the square of a sequence"),
        "unchanged": Threshold(
            0.05, "with {} or less, shapes say that the work is the same", "chosen, padding and lengths vary a little"
        ),
        "window": Threshold(
            0.01, "windows without steps hold the same within {}", "chosen, a fixed piece of work runs the same"
        ),
    },
    lookalikes=(
        "inputs of another width: fewer bytes, the same grids",
        "another kernel for the same work: only kernels of one name are compared",
    ),
    proof=PROOF,
    fixes=(),
)

SYNCS: Final = FindingKind(
    id="compare.syncs",
    title="the host waits for the device more or less often",
    meaning="Calls that return only when the device is done, and the idle time they leave: other calls, or as many that leave more or less.",
    measured="Blocking calls per step and idle time after them, on both sides.",
    thresholds={"effect": _EFFECT, "ratio": Threshold(1.5, "{} as many calls, and one more per step", "chosen", "x")},
    lookalikes=("waiting at the end of a step that is device-bound costs nothing",),
    proof=PROOF,
    fixes=(),
)

LAUNCHES: Final = FindingKind(
    id="compare.launches",
    title="the device waits longer or less for the host",
    meaning="Idle time because launches came late, or the host did other work.",
    measured="Idle time caused by launches and other host work; launches per step.",
    thresholds={
        "effect": _EFFECT,
        "fewer": Threshold(0.1, "other kernels are named where {} fewer or more run", "as in compare.compiled"),
        "other": Threshold(0.2, "and {} of kernel time on each side is in kernels of its own", "chosen"),
        "unlike": Threshold(1.5, "a caveat where one side launches {} as much and no reading says why", "chosen", "x"),
    },
    lookalikes=("a faster device makes the same host look slower",),
    proof=PROOF,
    fixes=(),
)

SLOWER: Final = FindingKind(
    id="compare.same_work_slower",
    title="the same kernels take longer, across the board",
    meaning="Nothing else changed for these rows: clocks, power, another device, or cores that others use.",
    measured="Medians of the same kernels, alone on both sides; most of their time must have moved the same way.",
    thresholds={"effect": _EFFECT, **_SAME_WORK},
    lookalikes=("larger batches take longer too: that is compare.work_changed, and comes first",),
    proof=PROOF,
    fixes=(),
)

FASTER: Final = FindingKind(
    id="compare.same_work_faster",
    title="the same kernels take less time, across the board",
    meaning="The opposite of compare.same_work_slower.",
    measured="As compare.same_work_slower.",
    thresholds={"effect": _EFFECT, **_SAME_WORK},
    lookalikes=("a smaller batch: that is compare.work_changed",),
    proof=PROOF,
    fixes=(),
)

COPIES: Final = FindingKind(
    id="compare.copies",
    title="copies hold the device longer or less long",
    meaning="Time in which the device only copies, or sets memory, changed.",
    measured="Copies with neither compute nor communication beside them, on both sides; number, time and bytes of the copy that changed most.",
    thresholds={"effect": _EFFECT},
    lookalikes=("copies that moved under compute cost nothing there: their number and bytes are then as before",),
    proof=PROOF,
    fixes=(),
)

COMM: Final = FindingKind(
    id="compare.comm",
    title="communication takes more or less time",
    meaning="Time in which only communication runs changed: because ranks wait more or less for each other, because communication itself takes more or less time, or because less or more of it runs under compute.",
    measured="Communication with no compute beside it, and all communication, on both sides; waiting and transfer, where the traces of all ranks tell them apart; the collective that changed most.",
    thresholds={
        "effect": _EFFECT,
        "itself": Threshold(0.5, "communication itself changed by {} of that or more", "chosen, the larger part"),
    },
    lookalikes=(
        "a rank that is late makes the others wait inside their collectives: triage of all ranks tells",
        "other collectives (another bucket size, another sharding) are no slower link: look at calls and elements",
    ),
    proof=PROOF,
    fixes=(),
)

IDLE: Final = FindingKind(
    id="compare.idle",
    title="the device idles longer or less long",
    meaning="Idle time changed that no other reading has: for other streams, for causes that the trace does not tell; on a CPU, time outside operators.",
    measured="The parts of the step that are left.",
    thresholds={
        "effect": Threshold(0.05, "silent below {} of the baseline's step", "chosen: what has no cause is noise first")
    },
    lookalikes=("on a CPU, dispatch is estimated: parts of it may be compute",),
    proof=PROOF,
    fixes=(),
)

COMPUTE: Final = FindingKind(
    id="compare.compute",
    title="compute takes more or less time",
    meaning="Compute changed, and neither number formats, compilation, recomputation nor a common slow-down say why.",
    measured="Compute on both sides, and the kernels or operators that changed most.",
    thresholds={
        "effect": _EFFECT,
        "compute": Threshold(0.03, "compute changed by {} on a device", "as in compare.same_work_slower"),
        "compute_cpu": Threshold(0.1, "by {} on a CPU", "as in compare.same_work_slower"),
    },
    lookalikes=("more work per step: that is compare.work_changed, where grids or bytes tell",),
    proof=PROOF,
    fixes=(),
)
