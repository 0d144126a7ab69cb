"""What a pathology is: a cost of known size that hooks into an ordinary loop, and that a switch turns on and off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn

from analyses.accuracy.programs.switch import Switch


class Pathology:
    """No pathology: every hook does nothing. `share` is the gain its removal is aimed at, `step_s` the plain step."""

    name: ClassVar[str] = "plain"
    kind: ClassVar[str] = "healthy"
    """"fault", "decoy" or "healthy"."""
    expected: ClassVar[str] = "kernel-bound"
    """The bottleneck class that is right where removal gains much."""
    finding: ClassVar[str] = ""
    """The finding that names the pathology itself, "" where there is none in particular."""
    families: ClassVar[tuple[str, ...]] = ()
    """The families that can have it; if empty, all of one rank."""
    doses: ClassVar[tuple[str, ...]] = ("small", "medium", "large")
    n_workers: ClassVar[int] = 0
    block: ClassVar[int] = 20
    n_blocks: ClassVar[int] = 12
    """Steps of a block of the label run, and its blocks: half of them with the pathology."""
    place: ClassVar[str] = ""
    """The place of `profkit probe` at which a delay is felt as the pathology is, "" where there is none."""
    rates: ClassVar[Mapping[str, str]] = {}
    """Of a slow link, its rate by dose: no loop can turn it off, so fresh runs with and without it take turns."""
    late_rank: ClassVar[int | None] = None
    """The rank to blame, None if there is none."""

    def __init__(self, share: float, step_s: float, switch: Switch, *, rank: int = 0) -> None:
        self.share = share
        self.step_s = step_s
        self.switch = switch
        self.rank = rank

    @property
    def cost_s(self) -> float:
        """Seconds to add to each step so that removing them gains `share` of it."""
        return self.step_s * self.share / (1 - self.share)

    @property
    def is_on(self) -> bool:
        """Whether it costs anything now."""
        return self.share > 0 and self.switch.is_on

    def chosen(self, indices: Sequence[int]) -> Sequence[int]:
        """Gives the samples to fetch in place of a batch's."""
        return indices

    def padding(self) -> float:
        """Gives the share of padding to add to a batch of sequences."""
        return 0.0

    def fetching(self, indices: Sequence[int]) -> None:
        """Does what fetching a batch costs, in the process that fetches it."""

    def dressed(self, model: nn.Module) -> nn.Module:
        """Gives the model that is trained."""
        return model

    def spread(self, model: nn.Module) -> None:
        """Sees the model as several ranks train it, or one."""

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Gives the optimizer."""
        return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def before_forward(self, number: int, batch: Sequence[Tensor]) -> None:
        """Does what comes between batch `number` and its forward pass."""

    def after_step(self, number: int, model: nn.Module) -> None:
        """Does what follows optimizer step `number`."""

    @contextmanager
    def around(self) -> Iterator[None]:
        """Holds whatever runs beside the loop."""
        yield
