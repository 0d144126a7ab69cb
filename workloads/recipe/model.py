"""The model of a rung: stages, LoRA, and the layers of the recipe put in."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from workloads.recipe.data import Batch
from workloads.recipe.layers import ChunkedLoss, compile_blocks, in_disguise
from workloads.recipe.options import Doses, Layers
from workloads.vlm.model import Vlm, for_stage
from workloads.vlm.splice import UNLABELLED, targets_of


class Recipe(Vlm):
    """The vision-language model; gives the summed loss of a batch, float32."""

    def __init__(self, layers: Layers, doses: Doses) -> None:
        super().__init__(doses.shape, is_tied=True, is_checkpointed=layers.is_checkpointed)
        self.layers = layers
        self.loss_chunk = doses.loss_chunk

    def forward(self, batch: Batch) -> Tensor:
        """Gives the loss summed over the labelled tokens."""
        with self._precision(batch.vision.device.type):
            hidden = self.decoder.hidden(self.embedded(self._seen(batch.vision), batch.splice), batch.splice)
            targets = targets_of(batch.splice.labels).flatten()
            if self.layers.fusion == "chunked-ce":
                loss: Tensor = ChunkedLoss.apply(
                    hidden.flatten(0, 1), self.decoder.head.weight, targets, self.loss_chunk
                )
                return loss
            logits = self.decoder.head(hidden).float().flatten(0, 1)
            return cross_entropy(logits, targets, ignore_index=UNLABELLED, reduction="sum")

    def _seen(self, vision: Tensor) -> Tensor:
        vision = vision.to(self.decoder.embedding.weight.dtype)
        return vision if self.layers.cache != "off" else self.seen(vision)

    def _precision(self, device_type: str) -> AbstractContextManager[object]:
        is_on = self.layers.precision == "autocast-off-trap"
        made: AbstractContextManager[object] = torch.autocast(device_type, dtype=torch.bfloat16, enabled=is_on)
        return made


def build_model(layers: Layers, doses: Doses, device: torch.device) -> Recipe:
    """Gives the model of a rung; weights follow from torch's global generator, the same on every rung."""
    model = Recipe(layers, doses)
    for_stage(model, stage=doses.stage, lora_rank=doses.lora_rank)
    if layers.precision == "bf16":
        model.to(torch.bfloat16)
    if layers.precision == "autocast-off-trap":
        in_disguise(model)
    model.to(device)
    if layers.fusion == "compile":
        compile_blocks(model)
    return model
