"""Families that see images: a convolutional classifier, and a small model of vision and language."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from analyses.accuracy.programs.families.base import Batch, Family
from analyses.accuracy.programs.families.layers import Block, positions


def _convolution(n_in: int, n_out: int, stride: int) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False)
    return convolution, nn.BatchNorm2d(n_out), nn.ReLU()


class Cnn(Family):
    """Three convolutions on images of 32 x 32."""

    name = "cnn"
    step_ms = 18.0
    batch_size = 10

    def drawn(self, n: int) -> Batch:
        """Gives images and one of ten classes."""
        images = torch.randn(n, 3, 32, 32, generator=self.generator)
        return images, torch.randint(10, (n,), generator=self.generator)

    def model(self) -> nn.Module:
        """Gives the classifier."""
        body = (*_convolution(3, 32, 1), *_convolution(32, 64, 2), *_convolution(64, 128, 2))
        return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


class Captioner(nn.Module):
    """Patches of an image through one block, then words behind them through another that sees what is before."""

    def __init__(self, width: int, n_words: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.tower = Block(width)
        self.words = nn.Embedding(n_words, width)
        self.decoder = Block(width, is_causal=True)
        self.head = nn.Linear(width, n_words)

    def forward(self, images: Tensor, ids: Tensor) -> Tensor:
        """Gives logits of words, [B, L, words], for images [B, 3, H, W] and ids [B, L]."""
        seen = self.tower(self.patches(images).flatten(2).transpose(1, 2))
        mixed = torch.cat([seen, self.words(ids) + positions(ids.shape[1], seen.shape[2])], dim=1)
        logits: Tensor = self.head(self.decoder(mixed)[:, seen.shape[1] :])
        return logits


class Vlm(Family):
    """Captions of 32 words under images of 48 x 48."""

    name = "vlm"
    step_ms = 26.0
    batch_size = 8
    n_words = 512

    def drawn(self, n: int) -> Batch:
        """Gives images, words and the words that follow."""
        images = torch.randn(n, 3, 48, 48, generator=self.generator)
        words = torch.randint(self.n_words, (n, 33), generator=self.generator)
        return images, words[:, :-1], words[:, 1:]

    def model(self) -> nn.Module:
        """Gives the model."""
        return Captioner(128, self.n_words)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Gives the loss of a batch."""
        images, words, following = batch
        return cross_entropy(model(images, words).flatten(0, 1), following.flatten())
