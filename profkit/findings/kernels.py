"""Findings on the work itself: which kernels, in which number format."""

from __future__ import annotations

from typing import Final

from profkit.findings.kind import FindingKind, Threshold

UNFUSED: Final = FindingKind(
    id="kernel.unfused",
    title="elementwise, norm and reduction kernels hold much of the work",
    is_about_work=True,
    meaning="Each such kernel reads and writes whole tensors and computes little: memory sets its speed. Kernels that"
    " follow each other can be fused into one that moves the data once.",
    measured="Kernel (CPU: operator self) time by family, told by name. Runs of such kernels of one step on one stream with"
    " nothing else between them; a fused run costs at least its longest member, the rest is what fusing can save at most.",
    thresholds={
        "memory": Threshold(
            0.3,
            "kernels that memory limits have {} of the work",
            "chosen; the healthy workload shows 9 %, the elementwise one 87 %",
        ),
        "busy": Threshold(0.3, "the work is {} of the window", "chosen"),
        "saved": Threshold(0.05, "fusing saves {} of the window", "chosen; below, other findings matter more"),
    },
    lookalikes=(
        "small tensors in cache run faster than memory allows: then launch cost matters, not traffic",
        "communication next to these kernels slows them",
    ),
    proof="torch.compile the module: the time of the run falls towards its longest member. Or halve the bytes (bf16):"
    " memory-bound time halves, arithmetic-bound time does not.",
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
    meaning="Some or all matrix products run in fp32 or tf32. With half-precision kernels beside them, a module was"
    " forgotten. Alone, it may be what was asked for: then it is a question, not a fault.",
    measured="Kernel names tell the format (sgemm and simt are fp32 without tensor cores; s1688 is tf32; bf16, h16816,"
    " nvjet, e4m3...). Time by format over all matrix kernels of the window.",
    thresholds={
        "full": Threshold(0.05, "full precision has {} of the time of matrix kernels", "chosen"),
        "unknown": Threshold(0.2, "names that tell no format have {} of it at most", "chosen"),
        "window": Threshold(
            0.02,
            "matrix kernels in full precision run in {} of the window",
            "chosen; below lies the noise between runs",
        ),
        "best_ratio": Threshold(
            1 / 16,
            "bound: 1 - {}, the largest FP32 to BF16 ratio of current data-centre devices",
            "A100, 19.5 against 312 TFLOP/s; smaller on others, and for kernels that memory limits",
            "part",
        ),
    },
    lookalikes=(
        "fp32 on purpose: loss, norms, routers, master weights",
        "kernels that memory limits gain at most the ratio of bytes, 2x",
    ),
    proof="Run the module under torch.autocast(dtype=torch.bfloat16) and compare kernel name and time.",
    fixes=(
        "torch_dtype at load",
        "wider autocast scope",
        "set_float32_matmul_precision('high') for tf32",
    ),
)
