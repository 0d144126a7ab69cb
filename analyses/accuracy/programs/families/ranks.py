"""The family of two ranks: a perceptron under DDP that computes much for each byte it sends."""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from analyses.accuracy.programs.families.tables import Mlp


class Ddp(Mlp):
    """Four linear layers; gradients of 1.2 MB.

    Sending them costs a fifth to a third of the step on two cores, which the small dose of `gradient_sync` measures:
    where nothing else is wrong, both its work and its communication may be named.
    """

    name = "ddp"
    base = "kernel-bound|comm-bound"
    step_ms = 20.0
    batch_size = 768
    n_samples = 1_536
    n_ranks = 2
    width = 256

    def spread(self, model: nn.Module) -> nn.Module:
        """Gives the model as one of several ranks trains it."""
        return DistributedDataParallel(model)
