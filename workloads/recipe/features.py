"""What the frozen tower sees in each sample, worked out once and kept in a memory-mapped file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from workloads.vlm.data import Captions

_STORED: Final = np.float16  # half the file of fp32; numpy has no bfloat16
_AT_ONCE: Final = 32


class Features:
    """A file of features, float16 `[n_samples, n_vision, tower_width]`.

    With a `shard` of several samples, all of a shard is read and converted to give one of them, as
    `np.load(path, mmap_mode="r").astype("float32")[index]` does: the map gives any row, the conversion wants them all.
    """

    def __init__(self, path: Path, *, n_samples: int, shape: tuple[int, int], shard: int = 1) -> None:
        self.shard = shard
        self._rows = np.memmap(path, dtype=_STORED, mode="w+", shape=(n_samples, *shape))

    def write(self, first: int, seen: Tensor) -> None:
        """Keeps the features `[n, n_vision, tower_width]` of the samples from `first` on."""
        self._rows[first : first + len(seen)] = seen.float().cpu().numpy()

    def read(self, index: int) -> Tensor:
        """Gives the features of a sample, `[n_vision, tower_width]`: float16, out of a shard float32."""
        if self.shard == 1:
            return torch.from_numpy(self._rows[index].copy())
        begin = index - index % self.shard
        return torch.from_numpy(self._rows[begin : begin + self.shard].astype(np.float32)[index - begin])


def fill(features: Features, tower: nn.Module, captions: Captions, device: torch.device) -> None:
    """Runs the tower over all samples and keeps what it gives."""
    dtype = next(tower.parameters()).dtype
    first = 0
    with torch.no_grad():
        for images in DataLoader(captions, batch_size=_AT_ONCE, collate_fn=_images):
            features.write(first, tower(images.to(device=device, dtype=dtype)))
            first += len(images)


def _images(samples: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    return torch.stack([image for image, _, _ in samples])
