"""Findings on the distance of the work from what its device can do."""

from __future__ import annotations

from typing import Final

from profkit.findings.kind import FindingKind, Threshold

BELOW_ROOF: Final = FindingKind(
    id="kernel.below_roof",
    title="kernels run far below what the device can do",
    is_about_work=True,
    meaning="The shapes of an operator say how much it computes and how much it moves at least. Divided by the device's peaks, that is the least time it can take: its roof. Here a family of operators takes far longer than its roof.",
    measured="FLOPs and bytes of each operator from its recorded shapes and types; the device's peak in the number format of the kernel, and its memory bandwidth, from the maker's data sheet; the time of the operator's kernels. Elementwise operators on data of up to 2.5 times the largest cache have no roof: it may never reach memory. Formulas and peaks: docs/roof.md.",
    thresholds={
        "share": Threshold(
            0.4,
            "good kernels reach {} of their roof",
            "chosen: large products of reference traces reach 40 to 95 %; FlashAttention-2's paper has 50 to 73 % on an A100",
        ),
        "window": Threshold(
            0.05, "a family of operators takes {} of the window beyond that", "chosen: the severity medium"
        ),
        "judged": Threshold(
            0.5, "operators with a roof have {} of compute time", "chosen: else what is not known may be the limit"
        ),
    },
    lookalikes=(
        "small shapes cannot fill the device: their roof is out of reach whatever the kernel",
        "a clock below that of the data sheet (power, heat) lowers every kernel",
        "a kernel that runs beside communication or another stream shares the device with it",
    ),
    proof="Run the slowest operator alone with the same shapes and types (torch.utils.benchmark): where it is as slow there, the kernel or the shape is the limit; where it is faster, what ran beside it is.",
    fixes=(
        "larger batches, sizes that are multiples of 64",
        "bf16, and fused attention (F.scaled_dot_product_attention without a dense mask)",
        "channels_last and torch.backends.cudnn.benchmark = True for convolutions",
        "torch.compile(mode='max-autotune') chooses among kernels for each shape",
    ),
)

ABOVE_ROOF: Final = FindingKind(
    id="roof.above",
    title="operators are faster than the roof allows: a formula or a peak is wrong",
    meaning="No kernel is faster than its device. Where the numbers say so, the device is another than its name says, the kernel leaves out work that the formula counts (sparsity, masks, values that were not recorded), or the data came from a cache. Rates and MFU of this report are then not to be trusted.",
    measured="The least time of each operator by its FLOPs, bytes and the device's peaks, against the time of its kernels.",
    thresholds={
        "above": Threshold(0.02, "operators are {} or more below their least time", "chosen: data sheets round to 1 %"),
        "time": Threshold(0.01, "and have {} of compute time", "chosen: less does not move a sum"),
    },
    lookalikes=(
        "tensors a little larger than the cache, of which most is still in it",
        "a card that clocks above its data sheet, as GeForce cards do: an RTX 4090 by 11 %",
    ),
    proof="profkit ncu on one such kernel: it counts instructions and bytes.",
    fixes=("tell us the operator, its shapes and the device: the formula is wrong",),
)
