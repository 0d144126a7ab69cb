"""Findings on the distance of the work from what its device can do."""

from __future__ import annotations

from typing import Final

from profkit.findings.kind import FindingKind, Threshold

BELOW_ROOF: Final = FindingKind(
    id="kernel.below_roof",
    tries=("cudnn_benchmark",),
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

UNALIGNED: Final = FindingKind(
    id="kernel.unaligned",
    title="sizes of matrix products are no multiples of what matrix units load",
    is_about_work=True,
    meaning="Matrix units are fed 16 bytes at a time: 8 numbers of bf16 or fp16, 16 of fp8, 4 of tf32. Where a row of a matrix is no multiple of that (a vocabulary of 50,257, a hidden size of 1,001), the next row begins between two loads, and the library takes a kernel with narrower loads, or one without matrix units.",
    measured="From recorded shapes and strides: the distance of rows in memory of both factors and of the result, for products in bf16, fp16, fp8 and tf32 on an NVIDIA device; products with a vector, and kernels whose names say wide loads (align8), are left out. What aligned sizes save at most: the time beyond what the products would take at the share of their roof that the other products of the trace reach, or good kernels (`kernel.below_roof`).",
    thresholds={
        "window": Threshold(0.02, "aligned sizes could save {} of the window", "chosen: the severity low"),
    },
    lookalikes=(
        "small products are slow whatever their sizes: they cannot fill the device",
        "libraries may pad inside, or have a good kernel for the size: then the gain is less",
    ),
    proof="Run the product alone with both sizes (torch.utils.benchmark), the padded one against the present one: the time falls by what padding gives.",
    fixes=(
        "pad the size in the model to a multiple of 8 (bf16, fp16), better of 64: a larger embedding and output layer whose last rows are never used",
        "pad ragged batches to a multiple of 8 tokens where the number of tokens is the size of a row",
    ),
)
