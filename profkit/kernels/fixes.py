"""What to change on each topic: in a kernel of one's own, or in the call of one that torch or a library brings.

Whoever calls cuBLAS, cuDNN or torch's own kernels cannot change their code, but shapes, layout, alignment, number
format, the algorithm, and how much one launch does.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum
from functools import lru_cache
from typing import Final

from profkit.kernels.claims import Launch
from profkit.model.kernel import Estimate, Topic
from profkit.model.kernel_names import Precision, told
from profkit.model.names import family_of, is_inductors, precision_of

MATRIX_FAMILIES: Final = frozenset({"matmul", "convolution", "attention"})


class Owner(StrEnum):
    """Whose code a kernel is."""

    OWN = "own"
    TORCH = "torch"
    INDUCTOR = "inductor"
    LIBRARY = "library"


_LIBRARY: Final = re.compile(r"\b(?:cudnn|cublas|cask_|magma_|cufft|cusparse|cusolver)")
"""Namespaces and argument types of libraries, beside the names of products that the table of grammars knows."""
_TORCH: Final = re.compile(
    r"\b(?:at::|c10::|at_cuda_detail::)"
    r"|^(?:void )?(?:(?:vectorized|unrolled)_elementwise_kernel|distribution_elementwise_grid|multi_tensor_apply)"
)
_ALIGNED: Final = re.compile(r"_align(\d{1,2})(?!\d)")
_BYTES: Final = {
    Precision.FP64: 8,
    Precision.FP32: 4,
    Precision.TF32: 4,
    Precision.FP16: 2,
    Precision.BF16: 2,
    Precision.HALF: 2,
    Precision.FP8: 1,
    Precision.INT8: 1,
}
BIG_BLOCK: Final = 512  # ncu's words on barriers: blocks of 512 threads or more are to be split
_LONGEST_QUOTE: Final = 300  # chosen: a sentence
_WHOLE_LOAD: Final = 16  # bytes that a thread loads at once at most


@lru_cache(maxsize=1024)
def owner_of(name: str) -> Owner:
    """Whose code a kernel is, by its name; one's own where it tells nothing else."""
    if is_inductors(name):
        return Owner.INDUCTOR
    if told(name).library or _LIBRARY.search(name):
        return Owner.LIBRARY
    return Owner.TORCH if _TORCH.search(name) else Owner.OWN


def narrow_loads(name: str) -> int | None:
    """How many elements a library's kernel loads at once by its name, if that is less than 16 bytes; else None."""
    found, precision = _ALIGNED.search(name), precision_of(name) or Precision.UNKNOWN
    if found is None or owner_of(name) is not Owner.LIBRARY:
        return None
    return int(found[1]) if int(found[1]) * _BYTES.get(precision, _WHOLE_LOAD) < _WHOLE_LOAD else None


_LIMITERS: Final = {
    "registers": "fewer registers per thread (maxregs, num_warps in Triton, smaller tiles)",
    "shared memory": "less shared memory per block (smaller tiles, fewer pipeline stages)",
    "warps": "another block size: this one does not divide the warps an SM holds",
    "blocks": "larger blocks: an SM holds only so many small ones",
    "barriers": "fewer barriers per block",
}
_STALLS: Final = {
    "long_scoreboard": "keep more loads in flight (unroll, prefetch, more warps; from compute capability 8.0 on"
    " cp.async), coalesce them, reuse data",
    "short_scoreboard": "fewer bank conflicts and special functions (exp, sin, division); values in registers",
    "lg_throttle": "fewer and wider loads and stores (float4), no register spills",
    "mio_throttle": "fewer, wider accesses to shared memory; fewer special functions",
    "tex_throttle": "fewer texture fetches in a row",
    "math_pipe_throttle": "a cheaper number format, tensor cores, or other instructions beside these",
    "barrier": "smaller blocks, even work per warp, fewer __syncthreads()",
    "membar": "fewer or narrower memory fences",
    "wait": "more independent instructions per thread (unroll, several results per thread)",
    "no_instruction": "a smaller kernel: less unrolling, fewer jumps",
    "imc_miss": "constants that are the same over a warp",
    "branch_resolving": "fewer branches",
    "drain": "coalesce the last stores",
    "gmma": "more products in flight: more pipeline stages, two groups of warps that take turns",
    "sleeping": "less spinning on other blocks (__nanosleep)",
    "dispatch_stall": "fewer conflicting register accesses",
}
_OWN: Final = {
    Topic.ACCESS: "coalesce: let neighbouring threads read and write neighbouring addresses (the fastest index from"
    " threadIdx.x, a tile in shared memory, structures of arrays)",
    Topic.SPILLS: "keep local values in registers: fewer live values, less unrolling, constant indices into local"
    " arrays (-Xptxas -v counts spills)",
    Topic.BANKS: "no bank conflicts in shared memory: pad the rows of the tile or swizzle its columns",
    Topic.TAIL: "fill the last wave: another tile or block size, a grid-stride loop, or a persistent (stream-k) kernel",
    Topic.BLOCK: "blocks of a multiple of 32 threads, 128 to 256 to begin with",
    Topic.ACHIEVED: "give blocks and warps equal work; fewer and longer-lived blocks",
    Topic.IMBALANCE: "give blocks equal work: split the long ones, or let blocks fetch their next piece",
    Topic.SLICES: "spread addresses over memory: pad rows whose stride is a power of two, fewer atomics on one address",
    Topic.DIVERGENCE: "let the threads of a warp take the same branch (sort or group the work)",
    Topic.FUSING: "fuse multiplications with additions: fmaf(), no -fmad=false",
    Topic.PRECISION: "single precision where its digits suffice (1.0f, no double by accident)",
    Topic.PLACE: "copy the data to this GPU before the launch: it is read over PCIe or NVLink",
}
_LOOK: Final = "see which line its warps wait at: the source page of ncu-ui, sorted by warp stall samples"
_TORCHS: Final = {
    Topic.ACCESS: "give it contiguous tensors (.contiguous() once, channels_last), so that neighbouring threads read"
    " neighbouring addresses",
    Topic.PRECISION: "single precision where its digits suffice (.float(), torch.set_default_dtype)",
    Topic.PLACE: _OWN[Topic.PLACE],
}
_LIBRARYS: Final = {
    Topic.ACCESS: "give it contiguous operands whose rows begin at multiples of 16 bytes; of images channels_last",
    Topic.TAIL: "sizes whose tiles fill whole waves (pad or batch them), or other tiles:"
    " torch.compile(mode='max-autotune') tries them",
    Topic.PLACE: _OWN[Topic.PLACE],
}
_ANY_OF_TORCH: Final = (
    "fewer launches that do more each: fuse it with its neighbours (torch.compile), several tensors at once (foreach),"
    " a larger batch"
)
_ANY_OF_INDUCTOR: Final = (
    "other tiles for it: torch.compile(mode='max-autotune'), torch._inductor.config.coordinate_descent_tuning = True;"
    " a larger batch"
)
_ANY_OF_LIBRARY: Final = {
    "convolution": "another of cuDNN's algorithms: torch.backends.cudnn.benchmark = True, channels_last, channels that"
    " are multiples of 8, half precision",
    "attention": "another backend of scaled_dot_product_attention, half precision, head sizes of 64 or 128",
}
ANY_PRODUCT: Final = (
    "another of the library's kernels: sizes that are multiples of 16, contiguous operands, a larger or batched"
    " product; torch.compile(mode='max-autotune') tries several"
)
_MORE: Final = (
    "more work per launch (a larger batch, several tensors at once: foreach, batched or grouped products),"
    " or run it at the same time as others (streams)"
)
_MORE_BLOCKS: Final = (
    "more blocks: less work for each (smaller blocks, fewer elements per thread), or more work per launch (a larger"
    " batch); else run it at the same time as others (streams)"
)
_BATCH: Final = (
    "more blocks for this product: a larger or batched one (bmm, grouped), or its inner dimension split over blocks"
    " (split-K), which torch.compile(mode='max-autotune') tries"
)
_SPLIT: Final = "more blocks for this product: smaller tiles, or its inner dimension split over blocks (split-K)"
_WHOLE_SM: Final = (
    "smaller blocks (128 to 256 threads): only one of {} threads fits on an SM, which idles while it ends"
)


def fixes(launch: Launch, topic: Topic, estimate: Estimate | None) -> list[str]:
    """What helps on a topic, the best first; roofs and pipes are those of `roofs`.

    Of a rule that is not known, its own first sentence.
    """
    name = launch.profile.name
    owner, family = owner_of(name), family_of(name)
    if topic is Topic.GRID:
        return _grid(owner, family)
    if topic is Topic.OTHER:
        return _words_of_ncu(launch, estimate)
    if owner is Owner.INDUCTOR:
        return [_TORCHS.get(topic, _ANY_OF_INDUCTOR)]
    if owner is Owner.TORCH:
        return [_TORCHS.get(topic, _ANY_OF_TORCH)]
    if owner is Owner.LIBRARY:
        return [_LIBRARYS.get(topic, _ANY_OF_LIBRARY.get(family, ANY_PRODUCT))]
    return [_own(launch, topic)]


def _words_of_ncu(launch: Launch, estimate: Estimate | None) -> list[str]:
    rules = (rule for rule in launch.profile.rules if estimate is not None and rule.id == estimate.rule)
    first = next((rule.message.partition(". ")[0] for rule in rules if rule.speedup_fraction), "")
    return [f"what ncu's rule says: {first[:_LONGEST_QUOTE]}"] if first else []


def _own(launch: Launch, topic: Topic) -> str:
    held, profile = launch.held, launch.profile
    if topic is Topic.STALL and launch.waits:
        return _STALLS.get(launch.waits[0].reason, _LOOK)
    if topic is Topic.OCCUPANCY:
        # Shared memory beside warps is no limit of its own: the driver gives an SM what its blocks need.
        limiters = ("warps",) if "warps" in held.limiters else held.limiters
        return "; ".join(_LIMITERS[name] for name in limiters) or "another block size"
    threads = math.prod(profile.block or ())
    if topic is Topic.ACHIEVED and held.blocks_per_sm == 1 and threads >= BIG_BLOCK:
        return _WHOLE_SM.format(threads)
    return _OWN.get(topic, _LOOK)


def _grid(owner: Owner, family: str) -> list[str]:
    if family in MATRIX_FAMILIES:
        return [_BATCH if owner is Owner.LIBRARY else _SPLIT, _MORE]
    if family == "reduction" and owner is Owner.OWN:
        return ["split the reduction over more blocks, in two passes", _MORE]
    return [_MORE_BLOCKS if owner is Owner.OWN else _MORE]
