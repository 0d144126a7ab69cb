"""The doses that make each regime what it is, by regime and device.

On CUDA these are the doses of the published study (MLP 1024 -> 2048 -> 1000, fused AdamW, batch 256).
On CPU the tensors are scaled, for one thread of a 2.6 GHz AVX-512 core, so that a step takes 15 to 80 ms
and the regime stays the same: matmuls against waiting, dispatch or elementwise kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

REGIMES: Final = ("baseline", "data", "overhead", "kernel")
DEVICE_TYPES: Final = ("cpu", "cuda")
DTYPES: Final = ("fp32", "bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Doses:
    """Everything that decides what one run does, besides its regime and device.

    Sizes are counts of elements, `item_sleep_ms` is milliseconds per sample, `lr` is AdamW's learning rate.
    `threads` is the intra-op thread count of the host, 0 for torch's own choice.
    """

    hidden: int
    batch: int
    features: int = 1024
    classes: int = 1000
    rounds: int = 0
    item_sleep_ms: float = 0.0
    item_rounds: int = 0
    num_workers: int = 0
    samples: int = 4096
    dtype: str = "fp32"
    steps: int = 32
    lr: float = 1e-3
    threads: int = 1
    seed: int = 0


# One thread on CPU: op times then do not depend on the core count, and no OpenMP thread spins in a gap.
# Overhead and kernel shrink features and classes too: their two Linears would else outweigh the rounds.
PRESETS: Final[dict[tuple[str, str], Doses]] = {
    ("baseline", "cpu"): Doses(hidden=1536, batch=256, features=512),
    ("data", "cpu"): Doses(hidden=256, batch=16, classes=100, item_sleep_ms=2.0, item_rounds=2),
    ("overhead", "cpu"): Doses(hidden=64, batch=32, features=64, classes=64, rounds=320),
    ("kernel", "cpu"): Doses(hidden=2048, batch=256, features=64, classes=64, rounds=8),
    ("baseline", "cuda"): Doses(hidden=2048, batch=256, num_workers=2, samples=16384, steps=40, threads=0),
    ("data", "cuda"): Doses(
        hidden=2048, batch=256, item_sleep_ms=2.0, item_rounds=6, samples=16384, steps=20, threads=0
    ),
    ("overhead", "cuda"): Doses(hidden=1024, batch=256, rounds=48, num_workers=2, samples=16384, steps=40, threads=0),
    ("kernel", "cuda"): Doses(hidden=4096, batch=512, rounds=8, num_workers=2, samples=16384, steps=40, threads=0),
}


def preset_table() -> str:
    """Gives the presets as an aligned text table, one row per regime and device."""
    names = [field.name for field in fields(Doses) if field.name not in ("seed", "lr", "dtype")]
    rows = [["regime", "device", *(name.replace("_", "-") for name in names)]]
    for (regime, device), doses in PRESETS.items():
        rows.append([regime, device, *(f"{getattr(doses, name):g}" for name in names)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  " + " ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    )
