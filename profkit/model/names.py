"""What a row is, by its name: one table for the whole project, applied once per distinct name.

By name, never by stream: NCCL shares streams with compute in some jobs, and other libraries use the compute stream.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from profkit.model.kernel_names import Precision, is_collective, told
from profkit.model.trace import CallKind, Kind, SpanKind
from profkit.redact.later import later


def _folded(pattern: str) -> re.Pattern[str]:
    """Compile a pattern for text in lower case: faster to search than one that ignores case."""
    return later(pattern.lower())


# Names come from strangers: no pattern here may take more than time in proportion to a name, whatever it holds. A bare
# `a\w*b` would: it looks for b anew behind each a, to the end. What may lie between is bounded: `a\w{0,200}b`.
# Where each alternative begins with a letter, `re` skips to one of those letters, five times as fast: `\bword` is
# written `w(?<!\ww)ord`.
#
# What ranks do together, as a word of a name: of a kernel of the job (`_all_to_all_expert_major_kernel`), or of the
# operator that launches it (`TokenAllToAllBackward`). "all" begins its word: "small_gather" is none. Within a block or
# a warp it is a reduction of one device ("block_all_reduce"). Case matters: it is where words begin.
_TOGETHER: Final = later(
    r"(?<![Bb]lock_)(?<![Ww]arp_)(?<![Ww]ave_)(?<![Bb]lock)(?<![Ww]arp)(?<![Ww]ave)(?<!cta_)(?<!group_)"
    r"(?:(?<![A-Za-z])(?:all|ALL)|All)_?(?:(?:[Tt]o|TO|2)_?(?:[Aa]ll|ALL)|[Gg]ather|GATHER|[Rr]educe(?!d|r)|REDUCE)"
    r"|[Rr]educe_?[Ss]catter|REDUCE_?SCATTER"
)
# Before and after an exchange each rank sorts, counts and packs for itself, and FSDP copies into its buffers.
_BESIDE: Final = r"prepare|metadata|histogram|offset|indices|sort|(?:^|_)(?:un)?pack|copy_?(?:in|out)"
_BESIDE_EXCHANGE: Final = _folded(_BESIDE)
_LOCAL: Final = _folded(rf"{_BESIDE}|permut|(?:^|_)pad|fill|(?<!broad)cast|copy|align|count")
# Tokens of a mixture of experts are dispatched and combined across ranks in some libraries, within one in others.
_TOKENS: Final = later(r"[Tt]oken_?(?:[Cc]ombine|[Dd]ispatch)")
_CROSSES: Final = _folded(r"exchange|send|recv|push|pull|peer|remote|signal|barrier")
_INDUCTOR: Final = later(r"^triton_(?:poi|red|per|tem|mm|for)_")
COPIES_TO_DEVICE: Final = later("HtoD|HostToDevice")
COPIES_FROM_DEVICE: Final = later("DtoH|DeviceToHost")
"""How CUDA and HIP say in a copy's name which way it goes."""
_COPY_NAME: Final = _folded(r"^(?:hip|cuda)?_?mem(?:cpy|set)\b")

_CALLS: Final = (
    # During stream capture a launch call records a node and runs nothing.
    (CallKind.CAPTURE, later(r"Stream(?:Begin|End)Capture")),
    (CallKind.GRAPH_LAUNCH, later(r"GraphLaunch")),
    (
        CallKind.LAUNCH,
        later(
            r"^(?:cudaLaunch(?:Cooperative)?Kernel|cuLaunch(?:Cooperative)?Kernel|hip\w*Launch(?:Cooperative)?Kernel"
            r"|hipExtModuleLaunchKernel|hipExtLaunch|urEnqueueKernelLaunch|zeCommandListAppendLaunch(?:Cooperative)?Kernel)"
        ),
    ),
    (
        CallKind.SYNC,
        later(
            r"^(?:cuda|cu|hip)(?:Device|Stream|Event|Ctx)Synchronize"
            r"|^(?:cuda|hip)Memcpy(?:2D|3D|ToSymbol|FromSymbol|DtoH|HtoD|WithStream)?(?:_v\d\w*)?$"
            r"|^(?:cuda|hip)Memset$|^cuMemcpy(?:DtoH|HtoD|DtoD)?(?:_v\d+)?$|^synchronize(?:Stream)?$"
            r"|^ze(?:Event|Fence|CommandList)HostSynchronize$|^zeCommandQueueSynchronize$|^ur(?:QueueFinish|EventWait)$"
        ),
    ),
    (
        CallKind.ALLOC,
        later(
            r"^(?:cuda|hip)(?:Malloc|Free)(?:Host|Managed|Pitch|Array|3D)?$|^(?:cuda|hip)Host(?:Alloc|Free|Malloc)$"
            r"|^cuMem(?:Alloc|Free|Map|Unmap|Create|Release|SetAccess)\w*$|^hipMem(?:Map|Unmap|Create|SetAccess)\w*$"
            r"|^cudaMemGetInfo$|^hipMemGetInfo$"
        ),
    ),
    (
        CallKind.COPY,
        later(r"^(?:cuda|cu|hip)Mem(?:cpy|set)|^urEnqueueUSM(?:Memcpy|Fill)|^zeCommandListAppendMemory"),
    ),
)
# cudaMemGetInfo allocates nothing: it is listed above only to keep it from being read as a copy.
_NOT_ALLOC: Final = later(r"MemGetInfo")

_SPANS: Final = (
    (SpanKind.STEP, later(r"^ProfilerStep\s*#")),
    (
        SpanKind.LOADER,
        later(
            r"^enumerate\(DataLoader\)#|^enumerate\(DataPipe\)#|DataLoaderIter\.__next__"
            r"|^(?:profkit\.)?(?:data_?load(?:er|ing)?|(?:get|next|load|fetch)_batch|batch_of_thread)$",
            re.IGNORECASE,
        ),
    ),
    (SpanKind.COMPILED, later(r"^## Call CompiledFxGraph|^Torch-Compiled Region")),
    (SpanKind.COMPILING, later(r"^_compile\.(?:<locals>\.)?compile_inner|^entire_frame_compile(?: \(|$)")),
    (SpanKind.OPTIMIZER, later(r"^Optimizer\.step#")),
    # torch.distributed.rpc: from the call to the answer of another process.
    (SpanKind.COMM, later(r"^(?:gloo|mpi|ucc|xccl|hccl):|^rpc_(?:async|sync|remote)#")),
    (SpanKind.GC, later(r"^Python GC|^gc\.collect|^\[GC\]|garbage.collect", re.IGNORECASE)),
)


FULL_COLLECTION: Final = later(r"generation 2|^gc\.collect")
"""Of Python's collector, which looks through all objects of the process then."""
OFF_CORE: Final = "off its core"
"""The name of a wait that only the scheduler tells: the thread had no core, and no call says what it waited for."""
_STARTING: Final = later(
    r"(?:^|[^a-z])(?:warm|init|set_?up|(?:load|build|create|make|get)_?model|compil)", re.IGNORECASE
)


def is_starting(name: str) -> bool:
    """Whether a range of the user's stands for what comes before the job: a word of its name begins so."""
    return _STARTING.search(name) is not None


# autograd:: alone is no sign: forward operators go through `autograd::THPVariable_add`, as samples of the CPU find, nor
# is dgrad: a transposed convolution runs it forward.
_TRAINING: Final = later(
    r"^autograd::\w{0,20}engine::|Backward\d*(?:>|$)|_backward(?:_|$|\b)|^Optimizer\.step|multi_tensor_apply|fused_adam|wgrad|_bwd_?|bn_bw_|bprop",
    re.IGNORECASE,
)
_OF_TRAINING: Final = [
    "engine::",
    "backward",
    "optimizer.",
    "multi_tensor",
    "fused_adam",
    "wgrad",
    "_bwd",
    "bn_bw_",
    "bprop",
]
"""Such names hold one of these, which is faster to look for."""


def is_of_training(name: str) -> bool:
    """Whether an operator, a range or a kernel belongs to a backward pass or to an optimizer."""
    text = name.lower()
    return any(word in text for word in _OF_TRAINING) and _TRAINING.search(name) is not None


LAYOUT: Final = "layout"
"""The family of kernels that only bring a tensor from one order of channels to the other, for a convolution."""
MEMORY_FAMILIES: Final = frozenset({"norm", "softmax", "embedding", "reduction", "elementwise"})
"""Families whose speed is set by memory traffic, not by arithmetic; fusing removes the traffic (docs/method.md)."""


def kind_of(name: str, *, is_copy: bool) -> Kind:
    """What a device row is; `is_copy` for rows of the copy and memset categories.

    A *kernel* row called `Memcpy PtoP` is a copy all the same.
    """
    text = name.lower()
    if is_copy or _COPY_NAME.match(text):
        return Kind.COPY
    return Kind.COMM if is_collective(text) or _is_exchange(name) else Kind.COMPUTE


def _is_exchange(name: str) -> bool:
    """Whether a kernel's own words say that ranks do it together, and it neither multiplies nor prepares.

    Only what stands before template arguments and parameters counts. Inductor's names list all that was fused.
    """
    head = _head(name)
    text = head.lower()
    if "all" not in text and "scatter" not in text:  # said by all of them, and faster to look for
        return False
    if not _TOGETHER.search(head) or _INDUCTOR.match(head) or _BESIDE_EXCHANGE.search(text):
        return False
    return told(_TOGETHER.sub(" ", head)).precision is None


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


def precision_of(name: str) -> Precision | None:
    """The number format of a matrix kernel from its name; None for kernels that multiply no matrices."""
    return told(name).precision


def family_of(name: str) -> str:
    """The family of a kernel or operator: matmul, attention, elementwise...; "other" if the name tells nothing."""
    return told(name).what


def is_inductors(name: str) -> bool:
    """Whether torch.compile made a kernel."""
    return _INDUCTOR.match(name) is not None or _SIGNATURE.fullmatch(name) is not None


WHOLE_GRAPH: Final = "CUDA graph "
"""How the name of a row begins that stands for a whole CUDA graph: nsys has not recorded the kernels in it."""


_BRACKETS: Final = later(r"[<>(]|[^<>(]+")


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


_GENERIC: Final = later(r"^_{0,4}(?:device_|global_|main_)?kernel_?v?\d*|launch(?:er)?|entry|main", re.IGNORECASE)
_SIGNATURE: Final = later(r"^triton_{1,4}(?:\d+[cde]*)*")
_RETURNED: Final = later(r"^std::enable_if<[^<>]{0,200}>::type ")
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
