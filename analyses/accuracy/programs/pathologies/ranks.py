"""Pathologies of several ranks: one that is late, work of rank 0 alone, collectives, unequal batches."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from analyses.accuracy.programs.pathologies.base import Pathology
from analyses.accuracy.programs.work import MATMUL_ROUND_S, PYTHON_ROUND_S, matmul_work, python_work, rounds

_SENT_PER_S: Final = 600e6
"""Bytes of an all-reduce of two ranks in a second, on the machine of the published results. It only aims the dose."""
_FLOAT_BYTES: Final = 4


class OfRanks(Pathology):
    """A pathology that needs several ranks."""

    kind = "fault"
    families = ("ddp",)


class Late(OfRanks):
    """One rank that is late, for which the others wait."""

    expected = "straggler-bound"
    finding = "straggler.rank"
    late_rank: ClassVar[int | None] = 1

    @property
    def is_mine(self) -> bool:
        """Whether this rank is the late one, and late now."""
        return self.is_on and self.rank == self.late_rank


class StragglerData(Late):
    """One rank whose storage answers slowly."""

    name = "straggler_data"

    def fetching(self, indices: Sequence[int]) -> None:
        """Waits for storage."""
        if self.is_mine:
            time.sleep(self.cost_s)


class StragglerCompute(Late):
    """One rank that computes more."""

    name = "straggler_compute"

    def before_forward(self, number: int, batch: Sequence[Tensor]) -> None:
        """Multiplies matrices."""
        if self.is_mine:
            matmul_work(rounds(self.cost_s, MATMUL_ROUND_S))


class StragglerHost(Late):
    """One rank that runs Python between its steps."""

    name = "straggler_host"

    def before_forward(self, number: int, batch: Sequence[Tensor]) -> None:
        """Counts words."""
        if self.is_mine:
            python_work(rounds(self.cost_s, PYTHON_ROUND_S))


class Rank0Work(Late):
    """Work of rank 0 alone after each step, for which all wait at a barrier."""

    name = "rank0_work"
    finding = "rank0.work"
    late_rank = 0

    def after_step(self, number: int, model: nn.Module) -> None:
        """Waits for storage on rank 0, then meets the others."""
        if self.is_mine:
            time.sleep(self.cost_s)
        if self.is_on:
            distributed.barrier()


class TokenSkew(OfRanks):
    """Batches of unequal size: now one rank has more, now the other.

    The script tells nobody its tokens. What a trace shows then is ranks that wait for each other in collectives, none
    of them late more often than others: comm-bound, in the words of `profkit explain`.
    """

    name = "token_skew"
    finding = "comm.skew"
    expected = "comm-bound"
    n_fetched = 0

    def chosen(self, indices: Sequence[int]) -> Sequence[int]:
        """Gives more samples on one rank, drawn in each step, and as many fewer on the other."""
        self.n_fetched += 1
        if not self.is_on:
            return indices
        larger = random.Random(self.n_fetched).randrange(2)  # noqa: S311 - a draw that all ranks make alike
        more = self.share / (1 - self.share)
        n = round(len(indices) * (1 + more if self.rank == larger else 1 - more))
        return [*indices, *indices][: max(n, 2)]


class ExtraCollective(OfRanks):
    """An all-reduce in each step that is not one of the gradients."""

    name = "extra_collective"
    finding = "collective.extra"
    expected = "comm-bound"

    def after_step(self, number: int, model: nn.Module) -> None:
        """Sends."""
        if self.is_on:
            distributed.all_reduce(torch.zeros(round(self.cost_s * _SENT_PER_S / _FLOAT_BYTES)))


class GradientSync(OfRanks):
    """Gradients that are large for the compute behind them; without the pathology none is sent, the model's neither.

    At its small dose it says what sending the family's own gradients costs.
    """

    name = "gradient_sync"
    finding = "comm.exposed"
    expected = "comm-bound"

    def dressed(self, model: nn.Module) -> nn.Module:
        """Gives the model with a parameter whose gradient is large and costs next to nothing to compute."""
        return _Ballast(model, round(self.cost_s * _SENT_PER_S / _FLOAT_BYTES))

    def spread(self, model: nn.Module) -> None:
        """Keeps the model that sends."""
        self.sender = model

    def before_forward(self, number: int, batch: Sequence[Tensor]) -> None:
        """Sets what DDP.no_sync() sets."""
        if isinstance(self.sender, DistributedDataParallel):
            self.sender.require_backward_grad_sync = self.switch.is_on


class _Ballast(nn.Module):
    """A model and a long parameter whose mean is added to its outputs."""

    def __init__(self, model: nn.Module, n: int) -> None:
        super().__init__()
        self.model = model
        self.ballast = nn.Parameter(torch.zeros(max(n, 1)))

    def forward(self, *inputs: Tensor) -> Tensor:
        """Gives the model's outputs, with the mean."""
        outputs: Tensor = self.model(*inputs)
        return outputs + 1e-3 * self.ballast.mean()


class SlowLink(OfRanks):
    """Two hosts with a slow link between them (`workloads.netlab`)."""

    name = "slow_link"
    expected = "comm-bound"
    finding = "comm.bandwidth"
    rates: ClassVar[Mapping[str, str]] = {"small": "2gbit", "medium": "600mbit", "large": "250mbit"}
    block = 30
    n_blocks = 6


class HiddenCollective(OfRanks):
    """A decoy: an all-reduce that runs beside forward and backward."""

    name = "decoy_hidden_collective"
    kind = "decoy"
    expected = "comm-bound"
    doses = ("medium", "large")

    def before_forward(self, number: int, batch: Sequence[Tensor]) -> None:
        """Starts to send."""
        self.sent = None
        if self.is_on:
            n = round(self.share * self.step_s * _SENT_PER_S / _FLOAT_BYTES / 2)
            self.sent = distributed.all_reduce(torch.zeros(n), async_op=True)

    def after_step(self, number: int, model: nn.Module) -> None:
        """Waits until it is sent."""
        if self.sent is not None:
            self.sent.wait()
