"""Findings on the work itself: which kernels, in which number format."""

from __future__ import annotations

from typing import Final

from profkit.findings.kind import FindingKind, Threshold

UNFUSED: Final = FindingKind(
    id="kernel.unfused",
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
    fixes=(
        "torch.compile",
        "fused kernels (Triton, Liger, apex)",
        "bf16 activations",
        "channels_last, fewer .contiguous()",
    ),
)

FALLBACK: Final = FindingKind(
    id="precision.fallback",
    title="matrix kernels run in full precision",
    is_about_work=True,
    meaning="Some or all matrix products run in fp32 or tf32. If other matrix products run in half precision, a module was probably forgotten. If none do, fp32 may be intentional.",
    measured="Kernel names show the format (sgemm and simt are fp32 without tensor cores; s1688 is tf32; bf16, h16816,"
    " nvjet, e4m3...). Time by format over all matrix kernels of the window.",
    thresholds={
        "full": Threshold(0.05, "full precision has {} of the time of matrix kernels", "chosen"),
        "unknown": Threshold(0.2, "names without a format have at most {} of it", "chosen"),
        "window": Threshold(
            0.02,
            "matrix kernels in full precision run in {} of the window",
            "chosen; less is noise between runs",
        ),
        "best_ratio": Threshold(
            1 / 16,
            "bound: 1 - {}, the largest FP32 to BF16 ratio of current data-centre devices",
            "A100, 19.5 against 312 TFLOP/s; smaller on others, and for kernels that memory limits",
            "part",
        ),
    },
    lookalikes=(
        "intentional fp32: loss, norms, routers, master weights",
        "kernels that memory limits gain at most the ratio of bytes, 2x",
    ),
    proof="Run the module under torch.autocast(dtype=torch.bfloat16) and compare kernel name and time.",
    fixes=(
        "torch_dtype at load",
        "wider autocast scope",
        "set_float32_matmul_precision('high') for tf32",
    ),
)
