"""The whole model: tower, projector, splice, decoder; and what each stage of training may change of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from workloads.vlm.decoder import Decoder, with_lora
from workloads.vlm.sizes import Sizes
from workloads.vlm.splice import UNLABELLED, Splice, spliced, targets_of
from workloads.vlm.tower import Tower


class Vlm(nn.Module):
    """Gives the summed loss of a batch of images with text; `n_labelled` is what makes a mean of it."""

    def __init__(self, sizes: Sizes, *, is_tied: bool, is_checkpointed: bool) -> None:
        super().__init__()
        self.tower = Tower(sizes)
        self.projector = nn.Sequential(
            nn.Linear(sizes.tower_width, sizes.width), nn.GELU(), nn.Linear(sizes.width, sizes.width)
        )
        self.decoder = Decoder(sizes, is_tied=is_tied, is_checkpointed=is_checkpointed)

    def seen(self, images: Tensor) -> Tensor:
        """Gives the tower's tokens `[n_images, n_vision, tower_width]`; images float `[n_images, 3, edge, edge]`."""
        is_tower_trained = any(parameter.requires_grad for parameter in self.tower.parameters())
        with torch.set_grad_enabled(is_tower_trained and torch.is_grad_enabled()):
            tokens: Tensor = self.tower(images)
        return tokens

    def embedded(self, seen: Tensor, splice: Splice) -> Tensor:
        """Gives the decoder's input: text with the projected tokens of its images in place."""
        text = self.decoder.embedding(splice.text_ids)
        return spliced(text, self.projector(seen).to(text.dtype), splice)

    def logits(self, images: Tensor, splice: Splice) -> Tensor:
        """Gives the logits `[n_samples, length, vocabulary]`; images float `[n_images, 3, edge, edge]`."""
        logits: Tensor = self.decoder(self.embedded(self.seen(images), splice), splice)
        return logits

    def forward(self, images: Tensor, splice: Splice) -> Tensor:
        """Gives the loss summed over the labelled tokens, float32."""
        logits = self.logits(images, splice).float()
        targets = targets_of(splice.labels)
        return cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=UNLABELLED, reduction="sum")


def build_model(sizes: Sizes, *, stage: int, lora_rank: int, is_tied: bool, is_checkpointed: bool) -> Vlm:
    """Gives the model with what its stage trains.

    Weights follow from torch's global generator; a LoRA is drawn after them, so that it changes none.
    """
    model = Vlm(sizes, is_tied=is_tied, is_checkpointed=is_checkpointed)
    for_stage(model, stage=stage, lora_rank=lora_rank)
    return model


def for_stage(model: Vlm, *, stage: int, lora_rank: int) -> None:
    """Freezes what the stage does not train: 1 trains the projector; 2 the decoder too, by LoRA if it has a rank."""
    model.tower.requires_grad_(requires_grad=False)
    if stage == 1:
        model.decoder.requires_grad_(requires_grad=False)
    elif lora_rank > 0:
        with_lora(model.decoder, rank=lora_rank, alpha=2.0 * lora_rank)
