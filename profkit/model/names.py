"""What a row is, by its name: one table for the whole project, applied once per distinct name.

By name, never by stream: NCCL shares streams with compute in some jobs, and other libraries use the compute stream.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from profkit.model.trace import CallKind, Kind, SpanKind

# Anchored where a bare word would also match compute kernels: "dispatch" alone is in cub's DispatchReduceByKey,
# "SyncBN" and "fused_dma_gemm" are compute, "hipblaslt" is not "hip communication".
_COMMUNICATION: Final = re.compile(
    r"""
    \bnccl | ncclDevKernel | ncclKernel | \brccl | rcclGenericKernel | \bmsccl | mscclpp
    | \bone_?ccl | ccl::(?:allreduce|allgather|alltoall|reduce_scatter|broadcast|sycl)
    | \bhccl | nvshmem | rocshmem
    | \bdeep_ep\b | deep_ep:: | dpsk::ep:: | hybrid_ep
    | cross_device_reduce | (?:one|two)_?shot_?all_?reduce | all_?reduce_(?:one|two)_?shot
    | (?:one|two)ShotAllReduce | AllReduce(?:One|Two)Shot | allreduce_fusion_kernel
    | multimem_(?:all|one_shot|two_shot|reduce|broadcast)
    | symm_mem::\w*(?:all_?reduce|all_?gather|barrier|reduce_scatter)
    | quick_?reduce::allreduce | \bpeer_?reduce_kernel
    """,
    re.VERBOSE | re.IGNORECASE,
)
_COPY_NAME: Final = re.compile(r"^(?:hip|cuda)?_?mem(?:cpy|set)\b", re.IGNORECASE)

_CALLS: Final = (
    # During stream capture a launch call records a node and runs nothing.
    (CallKind.CAPTURE, re.compile(r"Stream(?:Begin|End)Capture")),
    (CallKind.GRAPH_LAUNCH, re.compile(r"GraphLaunch")),
    (
        CallKind.LAUNCH,
        re.compile(
            r"^(?:cudaLaunch(?:Cooperative)?Kernel|cuLaunch(?:Cooperative)?Kernel|hip\w*Launch(?:Cooperative)?Kernel"
            r"|hipExtModuleLaunchKernel|hipExtLaunch|urEnqueueKernelLaunch|zeCommandListAppendLaunchKernel)"
        ),
    ),
    (
        CallKind.SYNC,
        re.compile(
            r"^(?:cuda|cu|hip)(?:Device|Stream|Event|Ctx)Synchronize"
            r"|^(?:cuda|hip)Memcpy(?:2D|3D|ToSymbol|FromSymbol|DtoH|HtoD|WithStream)?(?:_v\d+\w*)?$"
            r"|^(?:cuda|hip)Memset$|^cuMemcpy(?:DtoH|HtoD|DtoD)?(?:_v\d+)?$|^synchronize(?:Stream)?$"
        ),
    ),
    (
        CallKind.ALLOC,
        re.compile(
            r"^(?:cuda|hip)(?:Malloc|Free)(?:Host|Managed|Pitch|Array|3D)?$|^(?:cuda|hip)Host(?:Alloc|Free|Malloc)$"
            r"|^cuMem(?:Alloc|Free|Map|Unmap|Create|Release|SetAccess)\w*$|^hipMem(?:Map|Unmap|Create|SetAccess)\w*$"
            r"|^cudaMemGetInfo$|^hipMemGetInfo$"
        ),
    ),
    (CallKind.COPY, re.compile(r"^(?:cuda|cu|hip)Mem(?:cpy|set)")),
)
# cudaMemGetInfo allocates nothing: it is listed above only to keep it from being read as a copy.
_NOT_ALLOC: Final = re.compile(r"MemGetInfo")

_SPANS: Final = (
    (SpanKind.STEP, re.compile(r"^ProfilerStep\s*#")),
    (
        SpanKind.LOADER,
        re.compile(
            r"^enumerate\(DataLoader\)#|^enumerate\(DataPipe\)#|DataLoaderIter\.__next__"
            r"|^(?:profkit\.)?(?:data_?load(?:er|ing)?|(?:get|next|load|fetch)_batch)$",
            re.IGNORECASE,
        ),
    ),
    (SpanKind.COMPILED, re.compile(r"^## Call CompiledFxGraph|^Torch-Compiled Region")),
    (SpanKind.OPTIMIZER, re.compile(r"^Optimizer\.step#")),
    (SpanKind.COMM, re.compile(r"^(?:gloo|mpi|ucc|xccl|hccl):")),
    (SpanKind.GC, re.compile(r"^Python GC|^gc\.collect|^\[GC\]|garbage.collect", re.IGNORECASE)),
)


class Precision(StrEnum):
    """The number format of a matrix kernel, as its name tells it."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    FP64 = "fp64"
    UNKNOWN = "unknown"


_MATMUL: Final = re.compile(
    r"gemm|gemv|cutlass|xmma|\bwgrad|dgrad|implicit_convolve|\bconv\d?d?_|scudnn|h?cudnn.*conv|nvjet|Cijk_|flash|fmha|attention"
    r"|mma_|winograd|ck::.*(?:conv|gemm)",
    re.IGNORECASE,
)
_PRECISIONS: Final = (
    (Precision.FP8, re.compile(r"e4m3|e5m2|qgmma|fp8|_f8", re.IGNORECASE)),
    (Precision.INT8, re.compile(r"\bi8|int8|imma|s8_?s8|i8816|i16832", re.IGNORECASE)),
    (Precision.FP64, re.compile(r"dgemm|d884|f64|double", re.IGNORECASE)),
    (Precision.TF32, re.compile(r"tf32|s1688|s1684|gmma_tf32|_TF32", re.IGNORECASE)),
    (Precision.BF16, re.compile(r"bf16|bfloat16|_BBS_|Cijk_\w+_BB|nv_bfloat|nvjet_tst", re.IGNORECASE)),
    (
        Precision.FP16,
        re.compile(
            r"fp16|f16|half|hgemm|h16816|h1688|h884|Cijk_\w+_HH|_HHS_|nvjet_hsh|hcudnn|s884|s16816",
            re.IGNORECASE,
        ),
    ),
    (
        Precision.FP32,
        re.compile(r"sgemm|simt|scudnn|\bf32|float|_SB_|Cijk_\w+_SB?_|nvjet_sss|fp32|f32f32", re.IGNORECASE),
    ),
)

_FAMILIES: Final = (
    ("attention", re.compile(r"flash|fmha|attention|attn|sdpa|softmax_?dropout_?mm", re.IGNORECASE)),
    (
        "matmul",
        re.compile(
            r"gemm|gemv|cutlass|nvjet|Cijk_|matmul|::mm\b|addmm|bmm|baddbmm|linear|splitKreduce|triton_tem",
            re.IGNORECASE,
        ),
    ),
    (
        "convolution",
        re.compile(r"conv|xmma|scudnn|wgrad|dgrad|winograd|cudnn.*(?:engine|kernel)", re.IGNORECASE),
    ),
    ("norm", re.compile(r"norm|RowwiseMoments|GammaBeta", re.IGNORECASE)),
    ("softmax", re.compile(r"softmax|nll_loss|cross_entropy", re.IGNORECASE)),
    ("optimizer", re.compile(r"multi_tensor|fused_adam|_foreach|adamw?_|fused_sgd|\blamb_", re.IGNORECASE)),
    ("embedding", re.compile(r"embedding|index|gather|scatter", re.IGNORECASE)),
    ("reduction", re.compile(r"reduce|sum|mean|cub::|scan|sort|topk|triton_red|triton_per", re.IGNORECASE)),
    (
        "elementwise",
        re.compile(
            r"elementwise|vectorized|pointwise|triton_poi|copy|cat|fill|gelu|relu|sigmoid|tanh|silu|dropout|where|::(?:add|mul|sub|div)"
            r"|CUDAFunctor|direct_copy|aten::(?:add|mul|sub|div|exp|log|pow|sqrt|rsqrt|neg|abs|clamp|native_dropout|threshold)",
            re.IGNORECASE,
        ),
    ),
)
MEMORY_FAMILIES: Final = frozenset({"norm", "softmax", "embedding", "reduction", "elementwise"})
"""Families whose speed is set by memory traffic, not by arithmetic; fusing removes the traffic (docs/method.md)."""


def kind_of(name: str, *, is_copy: bool) -> Kind:
    """Give what a device row is; `is_copy` for rows of the copy and memset categories.

    A *kernel* row called `Memcpy PtoP` is a copy all the same.
    """
    if is_copy or _COPY_NAME.match(name):
        return Kind.COPY
    return Kind.COMM if _COMMUNICATION.search(name) else Kind.COMPUTE


def call_kind_of(name: str) -> CallKind:
    """Give what a runtime or driver call does."""
    if _NOT_ALLOC.search(name):
        return CallKind.OTHER
    return next((kind for kind, pattern in _CALLS if pattern.search(name)), CallKind.OTHER)


def span_kind_of(name: str) -> SpanKind:
    """Give what a host range stands for."""
    return next((kind for kind, pattern in _SPANS if pattern.search(name)), SpanKind.OTHER)


def precision_of(name: str) -> Precision | None:
    """Give the number format of a matrix kernel from its name; None for kernels that multiply no matrices."""
    if not _MATMUL.search(name):
        return None
    return next((precision for precision, pattern in _PRECISIONS if pattern.search(name)), Precision.UNKNOWN)


def family_of(name: str) -> str:
    """Give the family of a kernel or operator: matmul, attention, elementwise...; "other" if the name tells nothing."""
    return next((family for family, pattern in _FAMILIES if pattern.search(name)), "other")


def short_name(name: str, max_length: int = 60) -> str:
    """Give a kernel name that people recognise: no template arguments, no signature, at most `max_length` long."""
    text = name.removeprefix("void ")
    functor = (
        re.search(r"(\w+(?:Functor|_kernel_cuda|_functor|Op)\w*)", text[text.find("<") :]) if "<" in text else None
    )
    base = re.split(r"[<(]", text.replace("(anonymous namespace)", "anon"), maxsplit=1)[0].strip() or text
    base = base.removeprefix("at::native::").removeprefix("anon::")
    base = base.split("::")[-1] if len(base) > max_length // 2 and "::" in base else base
    if functor is not None and functor[1] not in base:
        base = f"{base}<{functor[1]}>"
    return base if len(base) <= max_length else base[: max_length - 3] + "..."
