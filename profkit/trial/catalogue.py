"""The changes that can be tried from outside: what each does and needs, and how to keep it.

To which finding each belongs is said by the kind of that (`FindingKind.tries`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from profkit.findings import KINDS
from profkit.model.documents.trial import Numbers

_COMPILING_NS: Final = 6_000_000_000
"""Chosen: what takes longer to compile is ended by the limit of the session."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One reversible change.

    `needs`: traits of the run without which it cannot be made ("cuda", "loader", "workers", "fused", "foreach",
    "convolutions", "ddp", "fsdp", "bf16", "cores", "fp64").
    `n_settling`: steps more that it takes until the steps are what they stay.
    """

    key: str
    title: str
    keep: str
    numbers: Numbers
    needs: tuple[str, ...] = ()
    is_ablation: bool = False
    how: Mapping[str, object] = {}
    variables: Mapping[str, str] = {}
    n_settling: int = 0
    starting_ns: int = 0
    """What a run takes longer to begin with it, ns."""

    @property
    def findings(self) -> tuple[str, ...]:
        """The ids of findings whose cause it removes, at least in part."""
        return tuple(kind.id for kind in KINDS.values() if self.key in kind.tries)


FIXES: Final = (
    Change(
        key="workers",
        title="more loader workers",
        keep="DataLoader(..., num_workers={n_workers})",
        numbers=Numbers.NONE,
        needs=("loader",),
    ),
    Change(
        key="prefetch",
        title="more batches ready per worker",
        keep="DataLoader(..., prefetch_factor={prefetch_factor})",
        numbers=Numbers.NONE,
        needs=("workers",),
    ),
    Change(
        key="persistent",
        title="workers that live on after an epoch",
        keep="DataLoader(..., persistent_workers=True)",
        numbers=Numbers.NONE,
        needs=("workers",),
    ),
    Change(
        key="pinned",
        title="pinned batches, copies not waited for",
        keep="DataLoader(..., pin_memory=True) and batch.to(device, non_blocking=True)",
        numbers=Numbers.NONE,
        needs=("cuda", "loader"),
    ),
    Change(
        key="tf32",
        title="TF32 for float32 products",
        keep='torch.set_float32_matmul_precision("high")',
        numbers=Numbers.ROUNDING,
        needs=("cuda",),
    ),
    Change(
        key="bf16",
        title="autocast to bfloat16",
        keep="torch.autocast(device_type, dtype=torch.bfloat16) around forward and loss",
        numbers=Numbers.ROUNDING,
        needs=("bf16",),
    ),
    Change(
        key="cudnn_benchmark",
        title="convolution algorithms chosen by trying",
        keep="torch.backends.cudnn.benchmark = True",
        numbers=Numbers.ROUNDING,
        needs=("cuda", "convolutions"),
        n_settling=3,
    ),
    Change(
        key="channels_last",
        title="weights with channels last",
        keep="model.to(memory_format=torch.channels_last)",
        numbers=Numbers.ROUNDING,
        needs=("convolutions",),
    ),
    Change(
        key="compile",
        title="the model compiled",
        keep="model.compile()",
        numbers=Numbers.ROUNDING,
        n_settling=7,
        starting_ns=_COMPILING_NS,
    ),
    Change(
        key="fused",
        title="the optimizer in one kernel",
        keep="fused=True in the optimizer's arguments",
        numbers=Numbers.ROUNDING,
        needs=("fused",),
    ),
    Change(
        key="foreach",
        title="the optimizer over lists of tensors",
        keep="foreach=True in the optimizer's arguments",
        numbers=Numbers.ROUNDING,
        needs=("foreach",),
    ),
    Change(
        key="no_gc",
        title="no garbage collection in the steps",
        keep="gc.freeze() after the set-up, gc.disable(), and gc.collect() where nobody waits",
        numbers=Numbers.NONE,
    ),
    Change(
        key="threads",
        title="another number of threads in operators",
        keep="torch.set_num_threads({n_threads})",
        numbers=Numbers.ROUNDING,
        needs=("cores",),
    ),
    Change(
        key="fp32",
        title="weights and inputs in single precision",
        keep="model.float(), and torch.float32 where batches are made",
        numbers=Numbers.ROUNDING,
        needs=("fp64",),
    ),
    Change(
        key="flush_denormal",
        title="subnormal numbers taken for zero",
        keep="torch.set_flush_denormal(True), right behind import torch",
        numbers=Numbers.ROUNDING,
    ),
    Change(
        key="no_grad",
        title="no gradients where no backward pass reads them",
        keep="with torch.no_grad(): around the call of the module that is not trained",
        numbers=Numbers.NONE,
    ),
    Change(
        key="segments",
        title="memory segments that can grow",
        keep="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        numbers=Numbers.NONE,
        needs=("cuda",),
        variables={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    ),
    Change(
        key="ddp_bucket",
        title="larger buckets of gradients",
        keep="DistributedDataParallel(..., bucket_cap_mb=100)",
        numbers=Numbers.ROUNDING,
        needs=("ddp",),
        how={"bucket_cap_mb": 100},
    ),
    Change(
        key="ddp_view",
        title="gradients as views of their buckets",
        keep="DistributedDataParallel(..., gradient_as_bucket_view=True)",
        numbers=Numbers.NONE,
        needs=("ddp",),
        how={"gradient_as_bucket_view": True},
    ),
    Change(
        key="ddp_static",
        title="DDP told that the graph stays",
        keep="DistributedDataParallel(..., static_graph=True)",
        numbers=Numbers.ROUNDING,
        needs=("ddp",),
        how={"static_graph": True},
    ),
    Change(
        key="fsdp_prefetch",
        title="FSDP gathers the next layer ahead",
        keep="FullyShardedDataParallel(..., forward_prefetch=True)",
        numbers=Numbers.NONE,
        needs=("fsdp",),
        how={"forward_prefetch": True},
    ),
)
"""In the order in which they are tried where two promise as much: what costs the user least comes first."""

ABLATIONS: Final = (
    Change(
        key="one_batch",
        title="one batch again and again",
        keep="",
        numbers=Numbers.TRAINING,
        needs=("loader",),
        is_ablation=True,
    ),
    Change(
        key="no_collectives",
        title="no averaging between ranks",
        keep="",
        numbers=Numbers.TRAINING,
        needs=("ranks",),
        is_ablation=True,
    ),
    Change(
        key="no_item",
        title=".item() answered from a cache",
        keep="",
        numbers=Numbers.TRAINING,
        is_ablation=True,
    ),
    Change(
        key="no_saves",
        title="nothing saved by torch.save",
        keep="",
        numbers=Numbers.TRAINING,
        is_ablation=True,
    ),
)
CATALOGUE: Final[Mapping[str, Change]] = {change.key: change for change in (*FIXES, *ABLATIONS)}

LEFT_OUT: Final[Mapping[str, str]] = {"one_batch": "input"}
"""The part of the step on the host that an ablation leaves out, where it is one."""
