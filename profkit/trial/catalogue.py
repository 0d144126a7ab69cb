"""The changes that can be tried from outside: what each does and needs, and how to keep it.

To which finding each belongs is said by the kind of that (`FindingKind.tries`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from profkit.findings import KINDS
from profkit.model.documents.trial import Numbers

NONE, ROUNDING, TRAINING = Numbers
_COMPILING_NS: Final = 6_000_000_000
"""Chosen: what takes longer to compile is ended by the limit of the session."""


class Change(msgspec.Struct, frozen=True):
    """One reversible change.

    `needs`: traits of the run without which it cannot be made ("cuda", "loader", "workers", "fused", "foreach",
    "convolutions", "ddp", "fsdp", "bf16", "cores", "fp64").
    `n_settling`: steps more that it takes until the steps are what they stay.
    """

    key: str
    title: str
    numbers: Numbers
    keep: str = ""
    needs: tuple[str, ...] = ()
    how: Mapping[str, object] = {}
    variables: Mapping[str, str] = {}
    n_settling: int = 0
    starting_ns: int = 0
    """What a run takes longer to begin with it, ns."""

    @property
    def is_ablation(self) -> bool:
        """Whether it leaves work out, and so only bounds what removing that gives."""
        return self.numbers is TRAINING

    @property
    def findings(self) -> tuple[str, ...]:
        """The ids of findings whose cause it removes, at least in part."""
        return tuple(kind.id for kind in KINDS.values() if self.key in kind.tries)


_DDP: Final = ("ddp", "DistributedDataParallel")
_FSDP: Final = ("fsdp", "FullyShardedDataParallel")


def _wrapped(key: str, title: str, numbers: Numbers, wrapper: tuple[str, str], **how: object) -> Change:
    """A change of the arguments of what wraps the model (its trait and its class), kept as it is made."""
    trait, name = wrapper
    told = ", ".join(f"{argument}={value}" for argument, value in how.items())
    return Change(key, title, numbers, f"{name}(..., {told})", (trait,), how=how)


FIXES: Final = (
    Change("workers", "more loader workers", NONE, "DataLoader(..., num_workers={n_workers})", ("loader",)),
    Change(
        "prefetch",
        "more batches ready per worker",
        NONE,
        "DataLoader(..., prefetch_factor={prefetch_factor})",
        ("workers",),
    ),
    Change(
        "persistent",
        "workers that live on after an epoch",
        NONE,
        "DataLoader(..., persistent_workers=True)",
        ("workers",),
    ),
    Change(
        "pinned",
        "pinned batches, copies not waited for",
        NONE,
        "DataLoader(..., pin_memory=True) and batch.to(device, non_blocking=True)",
        ("cuda", "loader"),
    ),
    Change("tf32", "TF32 for float32 products", ROUNDING, 'torch.set_float32_matmul_precision("high")', ("cuda",)),
    Change(
        "bf16",
        "autocast to bfloat16",
        ROUNDING,
        "torch.autocast(device_type, dtype=torch.bfloat16) around forward and loss",
        ("bf16",),
    ),
    Change(
        "cudnn_benchmark",
        "convolution algorithms chosen by trying",
        ROUNDING,
        "torch.backends.cudnn.benchmark = True",
        ("cuda", "convolutions"),
        n_settling=3,
    ),
    Change(
        "channels_last",
        "weights with channels last",
        ROUNDING,
        "model.to(memory_format=torch.channels_last)",
        ("convolutions",),
    ),
    Change("compile", "the model compiled", ROUNDING, "model.compile()", n_settling=7, starting_ns=_COMPILING_NS),
    Change("fused", "the optimizer in one kernel", ROUNDING, "fused=True in the optimizer's arguments", ("fused",)),
    Change(
        "foreach",
        "the optimizer over lists of tensors",
        ROUNDING,
        "foreach=True in the optimizer's arguments",
        ("foreach",),
    ),
    Change(
        "no_gc",
        "no garbage collection in the steps",
        NONE,
        "gc.freeze() after the set-up, gc.disable(), and gc.collect() where nobody waits",
    ),
    Change(
        "threads", "another number of threads in operators", ROUNDING, "torch.set_num_threads({n_threads})", ("cores",)
    ),
    Change(
        "fp32",
        "weights and inputs in single precision",
        ROUNDING,
        "model.float(), and torch.float32 where batches are made",
        ("fp64",),
    ),
    Change(
        "flush_denormal",
        "subnormal numbers taken for zero",
        ROUNDING,
        "torch.set_flush_denormal(True), right behind import torch",
    ),
    Change(
        "no_grad",
        "no gradients where no backward pass reads them",
        NONE,
        "with torch.no_grad(): around the call of the module that is not trained",
    ),
    Change(
        "segments",
        "memory segments that can grow",
        NONE,
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ("cuda",),
        variables={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    ),
    _wrapped("ddp_bucket", "larger buckets of gradients", ROUNDING, _DDP, bucket_cap_mb=100),
    _wrapped("ddp_view", "gradients as views of their buckets", NONE, _DDP, gradient_as_bucket_view=True),
    _wrapped("ddp_static", "DDP told that the graph stays", ROUNDING, _DDP, static_graph=True),
    _wrapped("fsdp_prefetch", "FSDP gathers the next layer ahead", NONE, _FSDP, forward_prefetch=True),
)
"""In the order in which they are tried where two promise as much: what costs the user least comes first."""

ABLATIONS: Final = (
    Change("one_batch", "one batch again and again", TRAINING, needs=("loader",)),
    Change("no_collectives", "no averaging between ranks", TRAINING, needs=("ranks",)),
    Change("no_item", ".item() answered from a cache", TRAINING),
    Change("no_saves", "nothing saved by torch.save", TRAINING),
)
CATALOGUE: Final[Mapping[str, Change]] = {change.key: change for change in (*FIXES, *ABLATIONS)}

LEFT_OUT: Final[Mapping[str, str]] = {"one_batch": "input"}
"""The part of the step on the host that an ablation leaves out, where it is one."""
