"""Findings on the work itself: which kernels, in which number format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from profkit.findings.kind import MOST_HAVE_IT, FindingKind, Supersedes, Threshold, Way
from profkit.findings.patterns import NAMES
from profkit.redact.later import later

UNFUSED: Final = FindingKind(
    id="kernel.unfused",
    leads_from=MOST_HAVE_IT,
    tries=("compile", "fused"),
    title="elementwise, norm and reduction kernels take much of the GPU time",
    is_about_work=True,
    meaning="Each such kernel reads and writes whole tensors but computes little, so memory bandwidth limits it. Kernels that follow each other can be fused into one that moves the data once.",
    measured="Kernel time (on a CPU: operator self time) by family, from the names. Runs of such kernels of one step on one stream with"
    " nothing else between them; a fused run costs at least as much as its longest member; fusing can save at most the rest.",
    thresholds={
        "memory": Threshold(
            0.3,
            "kernels limited by memory bandwidth have {} of the work",
            "chosen; the healthy workload shows 9 %, the elementwise one 87 %",
        ),
        "busy": Threshold(0.3, "the work is {} of the window", "chosen"),
        "saved": Threshold(0.05, "fusing saves {} of the window", "chosen; below, other findings matter more"),
    },
    lookalikes=(
        "small tensors that fit in cache are faster than memory allows: then launch cost matters, not bandwidth",
        "communication that overlaps these kernels slows them",
    ),
    proof="torch.compile the module: the time of each group falls towards its longest member. Or use bf16: with half the bytes, memory-bound time halves.",
    proof_on_cpu="torch.compile the module: the time of each group falls towards its longest member.",
    fixes=(
        "torch.compile",
        "fused kernels (Triton, Liger, apex)",
        "bf16 activations",
        "channels_last, fewer .contiguous()",
    ),
)

LINE: Final = FindingKind(
    id="work.line",
    title="one place has much of the work",
    meaning="A line or a function of your code has a large part of the step's work, and nothing else that was found explains as much. Whether all of it is needed no trace shows: it is a question, and no saving is promised.",
    measured="Work by line, forward and backward: kernels by their launch, on a CPU operators' own times. The place is that of the script's own operators, which no layer, loss or optimizer consists of, where these have enough of the step; else the line with most of the work. It leads where what else was found would save less than a part of it, and where the work is not called healthy. A line that calls a model of several layers leads only where most of its time is in operators that are often wasted: copies, sorts, inverses, one-hot vectors.",
    thresholds={
        "explained": Threshold(
            0.15, "another finding explains it with {} of it", "chosen: 10 % of the step for a line that has two thirds"
        ),
        "generic": Threshold(0.35, "kernel.unfused with {} of it", "chosen: it is true of most programs"),
        "own": Threshold(
            0.08,
            "operators in no layer have {} of the step at one place",
            "chosen, as the dominant share on a CPU: below, a line of any loop may have as much",
        ),
        "odd": Threshold(0.15, "work is not called healthy where such operators have {}", "chosen: twice that share"),
        "started": Threshold(
            0.25,
            "where operators' overhead is the bottleneck, {} of them are started at one place",
            "chosen: lines of usual loops start less",
        ),
        "own_explained": Threshold(
            0.5,
            "there, another finding explains it with {} of it",
            "chosen: what saves half of it names more than the place",
        ),
        "own_generic": Threshold(
            1.5, "there, kernel.unfused with {} of it", "chosen: fusing it, with what lies around, is no cause"
        ),
    },
    lookalikes=("a model that needs all that it computes: then leave it",),
    proof="Leave a part of that line's work out for some steps: what the step loses is what it costs.",
    fixes=("is all that this line computes needed",),
)
LINE_SHARE: Final = "code.line_share"
"""The metric of the evidence that says which part of the step a line has."""
OWN_SHARE: Final = "code.own_share"
"""The same of the script's own operators at one place."""
OWN_STARTED: Final = "code.own_started"
"""Which part of all operators is started there."""
_OFTEN_WASTED: Final = (
    (later(r"\b(?:sort|argsort|msort|unique)"), "sorted values of which few are kept (topk)"),
    (later(r"inverse|linalg_inv|pinv"), "an inverse that is multiplied (torch.linalg.solve)"),
    (later(r"one_hot|scatter"), "one-hot vectors that are multiplied (an embedding, an index)"),
    (later(r"svd|eigh?\b|cholesky|_qr\b|lstsq|cdist|fft"), "a larger input than needed, or one that does not change"),
    (later(r"aten::cat"), "what grows by torch.cat in a loop (it is copied each time: collect a list, join it once)"),
    (
        later(r"_to_copy|copy_|clone|repeat|contiguous"),
        "copies (views, as expand() makes, in place of repeat() and contiguous(); one number format)",
    ),
)
"""What lines with such operators often waste, from reports of strangers' programs."""
_OF_OWN: Final = (
    (
        later(r"aten::index\b|index_select|gather|index_put"),
        "rows gathered that are not kept, twice, or from a tensor that lies otherwise in memory",
    ),
    (later(r"coalesce|sparse"), "a matrix that could be built once, before the loop"),
    (later(r"aten::(?:sub|pow|exp|abs|where|lt|gt|eq)\b"), "pairs or positions that a mask drops or that come twice"),
)
"""The same of what scripts compute outside of layers."""
_OF_ANY_MODEL: Final = (
    later(r"mm\b|bmm|matmul|linear|addmm|conv"),
    "what a mask or an index throws away later, computed for all",
)
"""What most of a model's lines may be asked."""
_MOST_QUESTIONS: Final = 2
_A_LOOP: Final = 64
"""Calls per step, from which an operator is asked whether it runs in a loop. Chosen: more than layers of small models."""


def questions(operators: Sequence[tuple[str, float]], text: str) -> str:
    """What to ask of a line with these operators, each so often per step, and this text."""
    every = " ".join((*(name for name, _ in operators), text))
    asked = [said for pattern, said in (*_OFTEN_WASTED, *_OF_OWN, _OF_ANY_MODEL) if pattern.search(every)][
        :_MOST_QUESTIONS
    ]
    if any(count >= _A_LOOP for _, count in operators):
        asked.append("a loop of small calls that one batched call could do")
    often = f". Look for: {'; '.join(asked)}" if asked else ""
    return f"is all that this line computes needed, and once only? What has the same input again can be kept{often}"


def is_often_wasted(operators: Sequence[str]) -> bool:
    """Whether one of these operators is more than what any model multiplies with."""
    return any(pattern.search(name) for pattern, _ in _OFTEN_WASTED for name in operators)


PADDED_BATCHES: Final = FindingKind(
    id="work.padding",
    title="much of what the model computes is padding",
    is_about_work=True,
    meaning="Rows of a batch are filled up to one length. What stands there is computed as everything else is, in each layer, forward and backward, and then masked. A tokenizer that pads to max_length makes short rows cost what long ones do.",
    measured="profkit capture looks at the first batches that a DataLoader gives: of whole numbers with two dimensions, a mask of attention first, the value that fills the ends of rows and stands nowhere else. Its share of the positions, times the compute of the window; attention grows with the square of the length, and saves more.",
    thresholds={
        "padding": Threshold(
            0.5, "fires where {} of the positions are padding", "chosen: rows drawn by chance leave 20 to 45 %"
        ),
        "window": Threshold(0.05, "its compute is {} of the window", "chosen: the severity medium"),
    },
    lookalikes=("kernels for ragged batches (nested tensors, flash_attn_varlen): they skip it",),
    proof="Cut the batches to their longest row (input_ids[:, :n], attention_mask[:, :n]): the step becomes shorter by about the time shown.",
    fixes=(
        "pad to the longest row of each batch, not to max_length: padding='longest' or DataCollatorWithPadding, pad_sequence in a collate_fn of your own",
        "put rows of like length into one batch (group_by_length=True, a sampler by length), or pack several into a row",
    ),
)

UNUSED_DEVICE: Final = FindingKind(
    id="device.unused",
    title="all work is on the CPU, while a GPU stands idle",
    is_about_work=True,
    leads=True,
    meaning="The machine has a GPU, which the file lists, but model and batches are on the CPU: `.to(device)` is missing, or torch was installed without CUDA, or CUDA is not available in that environment.",
    measured="The file lists a device, no runtime call and no kernel was recorded, operators do not copy to another device again and again (then its side was not recorded, which is said instead), and operators that compute (products, convolutions, norms) take 1 ms or more each for half of their time, as they never do where they only launch. How much faster the GPU is the trace does not tell.",
    thresholds={
        "compute": Threshold(
            0.1, "fires where operators take {} of the window", "chosen: below that another cause is larger"
        )
    },
    lookalikes=(
        "a recording of the CPU alone (activities=[CPU]) of a job on the GPU: there such operators take microseconds",
        "a part of a job that is meant for the CPU: preprocessing, evaluation on the host",
    ),
    proof="Print next(model.parameters()).device and torch.cuda.is_available(), then move model and batch to the GPU and record again.",
    fixes=(
        "move model and batches to it: model.to('cuda'), batch.to('cuda', non_blocking=True); if torch.cuda.is_available() is False,"
        " install a build of torch with CUDA",
    ),
)

LAYOUT: Final = FindingKind(
    id="kernel.layout",
    tries=("channels_last",),
    title="convolutions convert the layout of their tensors",
    is_about_work=True,
    meaning="Tensors are kept as NCHW, but the fastest convolutions work on NHWC: cuDNN or MIOpen convert before and after each, and the conversion computes nothing.",
    measured="The time of cuDNN's nchwToNhwc and nhwcToNchw kernels and of MIOpen's batched_transpose, by name.",
    thresholds={
        "work": Threshold(0.05, "fires at {} of kernel time", "chosen; captures with them show 13 to 21 %"),
        "window": Threshold(0.02, "and {} of the window", "chosen; less is noise between runs"),
    },
    lookalikes=(
        "a layer that has no NHWC version converts all the same, also in channels_last",
        "a model that is mostly NHWC with one NCHW input converts once: that is short",
    ),
    proof="Convert model and batches with .to(memory_format=torch.channels_last): the conversion kernels disappear, and the step becomes shorter by up to their time.",
    fixes=(
        "model.to(memory_format=torch.channels_last), and the same for each batch",
        "keep .contiguous() and .view() out of between: they go back to NCHW",
        "on ROCm also PYTORCH_MIOPEN_SUGGEST_NHWC=1",
    ),
)

FALLBACK: Final = FindingKind(
    id="precision.fallback",
    tries=("bf16",),
    title="matrix kernels run in full precision",
    is_about_work=True,
    meaning="Some or all matrix products run in fp32 or tf32. If other matrix products run in half precision, a module was probably forgotten. If none do, full precision may be intentional.",
    measured="Kernel names show the format (sgemm and simt are fp32 without tensor cores; s1688 is tf32; bf16, h16816,"
    " nvjet, e4m3...). Time by format over all matrix kernels of the window. On a CPU, the recorded types of the operators that multiply; fp32 is usual there, so the finding asks for a sign that half precision is meant, and states a saving only where the capture says that the CPU has units for it.",
    thresholds={
        "full": Threshold(0.05, "full precision has {} of the time of matrix kernels", "chosen"),
        "unknown": Threshold(0.2, "names without a format have at most {} of it", "chosen"),
        "window": Threshold(
            0.02,
            "matrix kernels in full precision run in {} of the window",
            "chosen; less is noise between runs",
        ),
        "meant": Threshold(
            0.01,
            "on a CPU, half precision has {} of the time of matrix products, so that it is meant",
            "chosen: with autocast on, attention alone has more",
        ),
        "converted": Threshold(
            0.5,
            "or of the time of those in fp32, {} is on matrices of sizes that are converted from half precision",
            "chosen: inputs that are converted feed the first layer only",
        ),
        "best_ratio": Threshold(
            1 / 16,
            "bound of a device that is not known: 1 - {}, the A100's FP32 to BF16 ratio",
            "19.5 against 312 TFLOP/s; known devices have their own (docs/sources.md, rule 8), kernels limited by memory 1/2",
            "part",
        ),
    },
    lookalikes=(
        "intentional fp32: loss, norms, routers, master weights",
        "kernels that memory limits gain at most the ratio of bytes, 2x",
    ),
    proof="Run the module under torch.autocast(dtype=torch.bfloat16) and compare kernel name and time.",
    proof_on_cpu="Change that and record again with types (profkit capture --shapes): the products are in bf16, and their time tells whether that is faster on this CPU.",
    fixes=(
        "torch_dtype at load",
        "wider autocast scope",
        "set_float32_matmul_precision('high') for tf32",
    ),
)

NO_TF32: Final = FindingKind(
    id="precision.no_tf32",
    tries=("tf32", "bf16"),
    title="matrix products run in fp32 without TF32",
    is_about_work=True,
    meaning="The device has tensor cores for TF32, but fp32 matrix products run on the ordinary units. By default PyTorch uses TF32 for convolutions only; one line allows it for all products. TF32 keeps fp32's range and 10 bits of its mantissa.",
    measured="Matrix kernels whose names say fp32 without tensor cores (sgemm, simt), on a device with TF32, where no other product runs in half precision: their time, less what it takes at the device's ratio of FP32 to TF32. Products with vectors (gemv), which memory limits, and fused attention, which chooses for itself, are left out.",
    thresholds={
        "full": FALLBACK.thresholds["full"],
        "window": Threshold(0.02, "TF32 saves {} of the window", "chosen; less is noise between runs"),
        "ratio": Threshold(
            1 / 8,
            "bound of a device that is not known, from kernels for Ampere or later: 1 - {}, the A100's FP32 to TF32 ratio",
            "19.5 against 156 TFLOP/s; known devices have their own (docs/sources.md, rule 8)",
            "part",
        ),
    },
    lookalikes=(
        "products that need all of fp32: some solvers, losses and metrics",
        "small products are limited by launches or memory, and gain less",
    ),
    proof="Set torch.set_float32_matmul_precision('high') for some steps: the kernels' names change from sgemm or simt to tf32 or s1688, and their time falls. Compare the loss as well.",
    fixes=(
        "torch.set_float32_matmul_precision('high')",
        "torch.backends.cudnn.allow_tf32 = True (the default) for convolutions",
        "bf16 autocast gains more where the model allows it",
    ),
)


DOUBLE: Final = FindingKind(
    id="precision.fp64",
    tries=("fp32",),
    title="kernels compute in double precision",
    is_about_work=True,
    supersedes=(
        Supersedes("kernel.unfused", Way.BEHIND, NAMES),
        # oneDNN takes no fp64: with float32 the slow way is gone, where all of it is in fp64
        Supersedes("kernel.slow_path", Way.BEHIND, 1.0),
    ),
    meaning="Kernels work on 64-bit floating point numbers. Training needs it nowhere; a tensor made from numpy, a Python scalar as a 0-dim tensor, or torch.set_default_dtype brings it in unseen. GPUs for graphics compute in it at 1/32 or 1/64 of the rate of fp32, others at 1/2 or less; memory moves twice the bytes. A CPU computes in it at half the rate of fp32 or less.",
    measured="On a GPU, kernels whose names say double (dgemm, d884, <double, ...>): the time in which one of them runs, less what it takes at the ratio of fp32 to fp64 of GPUs for graphics. On a CPU, operators whose recorded types say double, scalars left out, less what fp32 would take; where no product of matrices is among them at most all of their time, since what fits into a cache takes far less.",
    thresholds={
        "window": Threshold(
            0.02, "kernels in double precision run in {} of the window", "chosen, as precision.fallback"
        ),
        "cpu_ratio": Threshold(
            1 / 2.2,
            "on a CPU fp32 takes at least {} of the time",
            "measured with AVX-512: products 1.8 to 2.3 times as long in fp64, elementwise 1.8 to 2.7",
        ),
        "cpu_convolution": Threshold(
            1 / 6,
            "a convolution or a GELU {}",
            "measured there: oneDNN has no fp64, 2.8 to 5.9 times as long",
        ),
        "ratio": Threshold(
            1 / 64,
            "bound of the saving: 1 - {}",
            "NVIDIA's Ampere and Ada whitepapers: GeForce has 1/64 of its fp32 rate in fp64",
            "",
        ),
    },
    lookalikes=("solvers, simulations and statistics that need it",),
    proof="Print the dtype of parameters and batches: for p in model.parameters(): assert p.dtype != torch.float64. Convert with .float() and compare kernel names and the step.",
    fixes=(
        "convert inputs once with .float(), and model.float()",
        "numpy arrays: .astype('float32') before torch.from_numpy",
    ),
)


class MatrixRates(msgspec.Struct, frozen=True):
    """How many times faster than in fp32 a device multiplies at most: in TF32 (0: it has none) and in half precision."""

    tf32: float
    half: float
    half_name: str = "bfloat16"
    has_tensor_cores: bool = True


# The makers' data sheets, dense, with fp32 accumulation (docs/sources.md, rule 8): of variants the larger ratio, since
# it bounds a gain. The first that is found in the name.
MATRIX_RATES: Final = (
    (later(r"B100|B200|B300"), MatrixRates(15.6, 31.3)),
    (later(r"\bG?H[128]00\b"), MatrixRates(7.4, 14.8)),
    (later(r"\bA[18]00\b|\bA30\b"), MatrixRates(8, 16)),
    (later(r"\bA10G\b"), MatrixRates(1.1, 2.2)),
    (later(r"\bL40S\b|\bL4\b|\bA(?:10|16|2|40)\b|RTX A\d{4}|RTX \d{4} Ada"), MatrixRates(2, 4)),
    (later(r"GeForce RTX [345]0|\bL40\b"), MatrixRates(1, 2)),
    (later(r"V100|\bT4\b|TITAN RTX|TITAN V|Quadro RTX"), MatrixRates(0, 8, "float16")),
    (later(r"RTX 20"), MatrixRates(0, 4, "float16")),
    (later(r"GTX 16|P100"), MatrixRates(0, 2, "float16", False)),
    # fp16 at 1/64 of the rate of fp32, or without it: CUDA's programming guide, throughput of arithmetic instructions
    (later(r"GTX|\bP4\b|P40\b|[KM][468]0\b|TITAN X"), MatrixRates(0, 1, "float16", False)),
    # TU117, Turing without tensor cores
    (later(r"\bT(?:400|500|550|600|1000|1200|2000)\b|\bMX[45]50\b"), MatrixRates(0, 2, "float16", False)),
    (later(r"MI300|MI308|MI325"), MatrixRates(0, 8)),
    (later(r"MI350|MI355"), MatrixRates(0, 16)),
    (later(r"MI2\d\d"), MatrixRates(0, 4)),
    (later(r"MI100"), MatrixRates(0, 4, "float16")),
)
