"""What a row is, by its name: one table for the whole project, applied once per distinct name.

By name, never by stream: NCCL shares streams with compute in some jobs, and other libraries use the compute stream.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final

from profkit.model.trace import CallKind, Kind, SpanKind


def _folded(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern for text in lower case: faster to search than one that ignores case."""
    return re.compile(pattern.lower(), flags)


# Names come from strangers: no pattern here may take more than time in proportion to a name, whatever it holds. A bare
# `a\w*b` would: it looks for b anew behind each a, to the end. What may lie between is bounded: `a\w{0,200}b`.
# Where each alternative begins with a letter, `re` skips to one of those letters, five times as fast: `\bword` is
# written `w(?<!\ww)ord`.
#
# Anchored where a bare word would also match compute kernels: "dispatch" alone is in cub's DispatchReduceByKey,
# "SyncBN" and "fused_dma_gemm" are compute, "hipblaslt" is not "hip communication".
_COMMUNICATION: Final = _folded(
    r"""
    n(?<!\wn)ccl | ncclDevKernel | ncclKernel | r(?<!\wr)ccl | rcclGenericKernel | m(?<!\wm)sccl | mscclpp
    | o(?<!\wo)ne_?ccl | ccl::(?:allreduce|allgather|alltoall|reduce_scatter|broadcast|sycl)
    | h(?<!\wh)ccl | nvshmem | rocshmem
    | d(?<!\wd)eep_ep\b | deep_ep:: | dpsk::ep:: | hybrid_ep
    | cross_device_reduce | one_?shot_?all_?reduce | two_?shot_?all_?reduce | all_?reduce_(?:one|two)_?shot
    | AllReduce(?:One|Two)Shot | allreduce_fusion_kernel
    | multimem_(?:all|one_shot|two_shot|reduce|broadcast)
    | symm_mem::\w*(?:all_?reduce|all_?gather|barrier|reduce_scatter)
    | quick_?reduce::allreduce | p(?<!\wp)eer_?reduce_kernel
    """,
    re.VERBOSE,
)
# What ranks do together, as a word of a name: of a kernel of the job (`_all_to_all_expert_major_kernel`), or of the
# operator that launches it (`TokenAllToAllBackward`). "all" begins its word: "small_gather" is none. Within a block or
# a warp it is a reduction of one device ("block_all_reduce"). Case matters: it is where words begin.
_TOGETHER: Final = re.compile(
    r"(?<![Bb]lock_)(?<![Ww]arp_)(?<![Ww]ave_)(?<![Bb]lock)(?<![Ww]arp)(?<![Ww]ave)(?<!cta_)(?<!group_)"
    r"(?:(?<![A-Za-z])(?:all|ALL)|All)_?(?:(?:[Tt]o|TO|2)_?(?:[Aa]ll|ALL)|[Gg]ather|GATHER|[Rr]educe(?!d|r)|REDUCE)"
    r"|[Rr]educe_?[Ss]catter|REDUCE_?SCATTER"
)
# Before and after an exchange each rank sorts, counts and packs for itself, and FSDP copies into its buffers.
_BESIDE: Final = r"prepare|metadata|histogram|offset|indices|sort|(?:^|_)(?:un)?pack|copy_?(?:in|out)"
_BESIDE_EXCHANGE: Final = _folded(_BESIDE)
_LOCAL: Final = _folded(rf"{_BESIDE}|permut|(?:^|_)pad|fill|(?<!broad)cast|copy|align|count")
# Tokens of a mixture of experts are dispatched and combined across ranks in some libraries, within one in others.
_TOKENS: Final = re.compile(r"[Tt]oken_?(?:[Cc]ombine|[Dd]ispatch)")
_CROSSES: Final = _folded(r"exchange|send|recv|push|pull|peer|remote|signal|barrier")
_INDUCTOR: Final = re.compile(r"^triton_(?:poi|red|per|tem|mm|for)_")
_COPY_NAME: Final = _folded(r"^(?:hip|cuda)?_?mem(?:cpy|set)\b")

_CALLS: Final = (
    # During stream capture a launch call records a node and runs nothing.
    (CallKind.CAPTURE, re.compile(r"Stream(?:Begin|End)Capture")),
    (CallKind.GRAPH_LAUNCH, re.compile(r"GraphLaunch")),
    (
        CallKind.LAUNCH,
        re.compile(
            r"^(?:cudaLaunch(?:Cooperative)?Kernel|cuLaunch(?:Cooperative)?Kernel|hip\w*Launch(?:Cooperative)?Kernel"
            r"|hipExtModuleLaunchKernel|hipExtLaunch|urEnqueueKernelLaunch|zeCommandListAppendLaunch(?:Cooperative)?Kernel)"
        ),
    ),
    (
        CallKind.SYNC,
        re.compile(
            r"^(?:cuda|cu|hip)(?:Device|Stream|Event|Ctx)Synchronize"
            r"|^(?:cuda|hip)Memcpy(?:2D|3D|ToSymbol|FromSymbol|DtoH|HtoD|WithStream)?(?:_v\d\w*)?$"
            r"|^(?:cuda|hip)Memset$|^cuMemcpy(?:DtoH|HtoD|DtoD)?(?:_v\d+)?$|^synchronize(?:Stream)?$"
            r"|^ze(?:Event|Fence|CommandList)HostSynchronize$|^zeCommandQueueSynchronize$|^ur(?:QueueFinish|EventWait)$"
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
    (
        CallKind.COPY,
        re.compile(r"^(?:cuda|cu|hip)Mem(?:cpy|set)|^urEnqueueUSM(?:Memcpy|Fill)|^zeCommandListAppendMemory"),
    ),
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
    (SpanKind.COMPILING, re.compile(r"^_compile\.(?:<locals>\.)?compile_inner|^entire_frame_compile(?: \(|$)")),
    (SpanKind.OPTIMIZER, re.compile(r"^Optimizer\.step#")),
    # torch.distributed.rpc: from the call to the answer of another process.
    (SpanKind.COMM, re.compile(r"^(?:gloo|mpi|ucc|xccl|hccl):|^rpc_(?:async|sync|remote)#")),
    (SpanKind.GC, re.compile(r"^Python GC|^gc\.collect|^\[GC\]|garbage.collect", re.IGNORECASE)),
)


OFF_CORE: Final = "off its core"
"""The name of a wait that only the scheduler tells: the thread had no core, and no call says what it waited for."""
_STARTING: Final = re.compile(
    r"(?:^|[^a-z])(?:warm|init|set_?up|(?:load|build|create|make|get)_?model|compil)", re.IGNORECASE
)


def is_starting(name: str) -> bool:
    """Whether a range of the user's stands for what comes before the job: a word of its name begins so."""
    return _STARTING.search(name) is not None


_TRAINING: Final = re.compile(
    r"^autograd::|Backward\d*(?:>|$)|_backward(?:_|$|\b)|^Optimizer\.step|multi_tensor_apply|fused_adam|[wd]grad|_bwd_?|bn_bw_|bprop",
    re.IGNORECASE,
)


def is_of_training(name: str) -> bool:
    """Whether an operator, a range or a kernel belongs to a backward pass or to an optimizer."""
    return _TRAINING.search(name) is not None


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


# Libraries, argument types and epilogues that sound like work: fbgemm's embedding kernels, cublas parameter structs,
# cutlass's number types, cudnn's descriptors, vLLM's _typeConvert.
_NOISE: Final = _folded(
    r"fbgemm(?:_gpu)?::|cublas\w{0,200}Params|cublasGemv\w+|cutlass\w{0,200}::\w+_t\b|cudnn\w{1,200}(?:Struct|_t)\b|_typeConvert",
)
# What stands around a matrix kernel and is none: gathering of split sums, changes of layout, tables of offsets.
_AROUND_MATMUL: Final = _folded(
    r"t(?<!(?s:.)t)riton_(?:poi|red|per)_|splitKreduce|ReduceSplitK|convertTensor|im2col|compute\w{0,200}Offsets|kernel_helper_stage",
)
_ATTENTION: Final = (
    r"f(?<!cache_f)lash(?!infer)|fmha|attention|attn|sdpa|softmax_?dropout_?mm"
    r"|flashinfer[^(<]{0,200}(?:prefill|decode|mla)"
)
_CONVOLUTION: Final = (
    r"convol|conv\d?d|conv_|AsmConv|OpenConv|scudnn|c(?<=\dc)udnn_|fprop|wgrad|dgrad|winograd|implicit_?gemm|fft2d"
    r"|igemm_(?:fwd|bwd|wrw)|im2col|col2im|cask_\w{0,200}cudnn|cudnn::cnn"
)
_MATMUL: Final = _folded(
    r"gemm|gemv|cutlass|xmma|w(?<!\ww)grad|dgrad|fprop|convolve|c(?<!\wc)onv\d?d?_|scudnn|c(?<=\dc)udnn_|cudnn[^(]{0,200}conv|nvjet|Cijk_"
    rf"|m(?<!gam)ma_|winograd|ck::.{{0,200}}conv|{_ATTENTION}",
)
# Tensile and hipBLASLt: Cijk_<index>_<index>_<types>; cublas from CUDA 12: nvjet_[sm100_]<types>.
_TENSILE: Final = r"Cijk_[^_]+_[^_]+_"
_NVJET: Final = r"nvjet_(?:sm\d+_)?"
# "what stood here before", in a mangled C++ name: S_, S8_. It is no s8, an int8.
_SUBSTITUTION: Final = re.compile(r"S[0-9A-Z]?_")
# In this order: what is said in words comes before what the shape of the instruction (s1688, s16816) only suggests,
# since Turing and Ampere run half precision through s1688 too.
_PRECISIONS: Final = (
    (Precision.FP8, _folded(rf"e4m3|e5m2|qgmma|fp8|_f8|{_NVJET}q|{_TENSILE}(?:F8|B8)")),
    (Precision.INT8, _folded(rf"\bi8|int8|imma|s8_?s8|i8816|i16832|{_TENSILE}I8")),
    (Precision.FP64, _folded(rf"dgemm|d884|f64|double|{_TENSILE}D")),
    (Precision.TF32, _folded(r"tf32")),
    # Composable Kernel's bf16 is an unsigned short: its mangled names have "tt" for two of them.
    (Precision.BF16, _folded(rf"bf16|bfloat16|bhalf|DF16b|(?:xdl|cshuffle)(?:_v\d)?Itt|{_TENSILE}B|{_NVJET}t")),
    (Precision.FP16, _folded(rf"fp16|f16|half|hgemm|hcudnn|h16816|h1688|h884|{_TENSILE}H|{_NVJET}h")),
    (Precision.TF32, _folded(r"s1688|s1684")),
    (Precision.FP16, _folded(r"s884|s16816")),
    (
        Precision.FP32,
        _folded(rf"sgemm|simt|scudnn|(?<![a-z0-9])f32|float|fp32|f32f32|{_TENSILE}S|{_NVJET}s"),
    ),
)

LAYOUT: Final = "layout"
"""The family of kernels that only bring a tensor from one order of channels to the other, for a convolution."""

_FAMILIES: Final = (
    (LAYOUT, _folded(r"nchw_?to_?nhwc|nhwc_?to_?nchw|b(?<!(?s:.)b)atched_transpose_\d")),  # cuDNN's; MIOpen's
    ("attention", _folded(_ATTENTION)),
    ("convolution", _folded(_CONVOLUTION)),
    (
        "matmul",
        _folded(
            r"gemm|gemv|cutlass|xmma|nvjet|Cijk_|matmul|::mm\b|addmm|bmm|baddbmm|l(?<![a-z]l)inear(?!1d)|splitKreduce"
            r"|triton_tem|triton_mm",
        ),
    ),
    ("norm", _folded(r"norm|RowwiseMoments|GammaBeta|b(?<!\wb)n_[fb]w_")),
    ("softmax", _folded(r"softmax|nll_loss|cross_entropy")),
    ("optimizer", _folded(r"multi_tensor|fused_adam|_foreach|adamw?_|fused_sgd|l(?<!\wl)amb_")),
    ("embedding", _folded(r"embedding|index|check_indices|permute_indices|gather|scatter")),
    ("reduction", _folded(r"reduce(?!d_)|sum|mean|cub::|scan|sort|topk|triton_red|triton_per")),
    (
        "elementwise",
        _folded(
            r"elementwise|vectorized|pointwise|triton_poi|copy|cat|fill|gelu|relu|sigmoid|tanh|silu|dropout|where|::(?:add|mul|sub|div)"
            r"|CUDAFunctor|direct_copy|aten::(?:add|mul|sub|div|exp|log|pow|sqrt|rsqrt|neg|abs|clamp|native_dropout|threshold)"
            r"|nhwcToFolded|foldedNhwc|convertTensor|scalePackedTensor",
        ),
    ),
)
_FUSED: Final = re.compile(r"^triton_(poi|red|per)_")
"""Inductor's kernels list all they fused; only the prefix tells what they are: point by point, or along a row."""
_ALONG_ROWS: Final = ("norm", "softmax", "reduction")
MEMORY_FAMILIES: Final = frozenset({"norm", "softmax", "embedding", "reduction", "elementwise"})
"""Families whose speed is set by memory traffic, not by arithmetic; fusing removes the traffic (docs/method.md)."""


def kind_of(name: str, *, is_copy: bool) -> Kind:
    """What a device row is; `is_copy` for rows of the copy and memset categories.

    A *kernel* row called `Memcpy PtoP` is a copy all the same.
    """
    text = name.lower()
    if is_copy or _COPY_NAME.match(text):
        return Kind.COPY
    return Kind.COMM if _COMMUNICATION.search(text) or _is_exchange(name) else Kind.COMPUTE


def _is_exchange(name: str) -> bool:
    """Whether a kernel's own words say that ranks do it together, and it neither multiplies nor prepares.

    Only what stands before template arguments and parameters counts. Inductor's names list all that was fused.
    """
    head = _head(name)
    if not _TOGETHER.search(head) or _INDUCTOR.match(head) or _BESIDE_EXCHANGE.search(head.lower()):
        return False
    return not _MATMUL.search(_NOISE.sub("", _TOGETHER.sub(" ", head).lower()))


def is_asking(operator: str) -> bool:
    """Whether an operator or autograd node says by its name that ranks do it together: `AllToAllBackward`."""
    return _TOGETHER.search(operator) is not None and _BESIDE_EXCHANGE.search(operator.lower()) is None


def is_of_tokens(operator: str) -> bool:
    """Whether an operator or autograd node moves tokens to experts: between ranks, or within one."""
    return _TOKENS.search(operator) is not None


def may_be_asked(kernel: str, *, of_tokens: bool = False) -> bool:
    """Whether a kernel may be the communication that the operator around its launch names.

    Not where its own name says that it is arithmetic or work of this rank alone. Of tokens its name must say that
    something crosses over.
    """
    if _INDUCTOR.match(kernel) or _LOCAL.search(kernel.lower()) or family_of(kernel) != "other":
        return False
    return not of_tokens or _CROSSES.search(kernel.lower()) is not None


def call_kind_of(name: str) -> CallKind:
    """What a runtime or driver call does."""
    if _NOT_ALLOC.search(name):
        return CallKind.OTHER
    return next((kind for kind, pattern in _CALLS if pattern.search(name)), CallKind.OTHER)


def span_kind_of(name: str) -> SpanKind:
    """What a host range stands for."""
    return next((kind for kind, pattern in _SPANS if pattern.search(name)), SpanKind.OTHER)


@lru_cache(maxsize=1024)
def precision_of(name: str) -> Precision | None:
    """The number format of a matrix kernel from its name; None for kernels that multiply no matrices."""
    text = (_SUBSTITUTION.sub("", name) if name.startswith("_Z") else name).lower()
    if _AROUND_MATMUL.search(text) or not _MATMUL.search(_NOISE.sub("", text)):
        return None
    return next((precision for precision, pattern in _PRECISIONS if pattern.search(text)), Precision.UNKNOWN)


@lru_cache(maxsize=1024)
def family_of(name: str) -> str:
    """The family of a kernel or operator: matmul, attention, elementwise...; "other" if the name tells nothing."""
    fused = _FUSED.match(name)
    if fused and fused[1] == "poi":
        return "elementwise"
    text = _NOISE.sub("", name.lower())
    families = (family for family, pattern in _FAMILIES if pattern.search(text))
    return next((family for family in families if not fused or family in _ALONG_ROWS), "other")


def is_inductors(name: str) -> bool:
    """Whether torch.compile made a kernel."""
    return _INDUCTOR.match(name) is not None or _SIGNATURE.fullmatch(name) is not None


WHOLE_GRAPH: Final = "CUDA graph "
"""How the name of a row begins that stands for a whole CUDA graph: nsys has not recorded the kernels in it."""


_BRACKETS: Final = re.compile(r"[<>(]|[^<>(]+")


@lru_cache(maxsize=1024)  # this and others here are asked of each kernel by several
def function_name(name: str) -> str:
    """A kernel's bare function name: no return type, namespaces, template arguments, parameters.

    It is what `ncu --kernel-name-base function`, nsys' shortName and torch's full names have in common. Kineto leaves
    names of more than 1024 characters mangled: a kernel is no member of a class, so its own name ends the identifiers.
    """
    if name.startswith("_Z"):
        return _mangled(name)
    flat = name.replace("(anonymous namespace)", "anonymous").replace("<unnamed>", "anonymous")
    flat = re.split(r" ?\[clone ", flat, maxsplit=1)[0]
    depth = 0
    kept: list[str] = []
    for piece in _BRACKETS.findall(flat):
        depth += (piece == "<") - (piece == ">")
        if piece == "(" and depth == 0 and kept:
            break
        if depth == 0 and piece != ">":
            kept.append(piece)
    words = "".join(kept).split("[")[0].split()
    return re.sub(r"\W", "", words[-1].split("::")[-1]) if words else ""


def _mangled(name: str) -> str:
    """The last of the identifiers, each behind its length, that a mangled name begins with; "" for none."""
    place, function = 2 + name.startswith("_ZN"), ""
    while (length := re.compile(r"[1-9]\d{0,3}").match(name, place)) is not None:
        place = length.end() + int(length[0])
        function = name[length.end() : place]
    return re.sub(r"\W", "", function)


_GENERIC: Final = re.compile(r"^_{0,4}(?:device_|global_|main_)?kernel_?v?\d*|launch(?:er)?|entry|main", re.IGNORECASE)
_SIGNATURE: Final = re.compile(r"^triton_{1,4}(?:\d+[cde]*)*")
_RETURNED: Final = re.compile(r"^std::enable_if<[^<>]{0,200}>::type ")
_TELLING: Final = 10
"""Chosen: shorter than that are types and numbers."""


def bare_name(name: str, max_length: int = 60) -> str:
    """A kernel's name without template arguments and signature, but for the functor that it runs."""
    text = _RETURNED.sub("", name.removeprefix("void "))
    functor = (
        re.search(r"\b(\w+(?:Functor|_kernel_cuda|_functor|Op)\w*)", text[text.find("<") :]) if "<" in text else None
    )
    base = _head(text).strip() or text
    base = base.removeprefix("at::native::").removeprefix("anon::")
    base = base.split("::")[-1] if len(base) > max_length // 2 and "::" in base else base
    if functor is not None and functor[1] not in base:
        base = f"{base}<{functor[1]}>"
    return base if len(base) <= max_length else base[: max_length - 3] + "..."


def short_name(name: str, max_length: int = 60) -> str:
    """A kernel name that people recognise, at most `max_length` long: the bare one.

    Where that is "Kernel2" or the like it comes with its template: `Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn>`.
    """
    bare = bare_name(name, max_length)
    last = bare.split("::")[-1]
    template = _template(name) if _GENERIC.fullmatch(last) else ""
    whole = f"{last}<{template}>" if template else bare
    return whole if len(whole) <= max_length else whole[: max_length - 3] + "..."


def says_nothing(name: str) -> bool:
    """Whether a kernel's name does not tell what it does: "Kernel", or Triton's signature `triton__0d1d2de`."""
    short = short_name(name)
    return _GENERIC.fullmatch(short.split("::")[-1]) is not None or _SIGNATURE.fullmatch(short) is not None


def _head(text: str) -> str:
    return re.split(r"[<(]", text.replace("(anonymous namespace)", "anon"), maxsplit=1)[0]


def _template(name: str) -> str:
    """The first template argument of a kernel, without its namespaces; "" for a plain type or number."""
    text = _RETURNED.sub("", name)
    first = re.split(r"[<>,(]", text[text.find("<") + 1 :], maxsplit=1)[0] if "<" in text else ""
    last = first.split("::")[-1].strip()
    return last if len(last) >= _TELLING else ""
