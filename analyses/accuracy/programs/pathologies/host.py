"""Pathologies of the host: Python in the step, many small operators, garbage, slow optimizers, files."""

from __future__ import annotations

import gc
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm

from analyses.accuracy.programs.pathologies.base import Pathology
from analyses.accuracy.programs.work import PYTHON_ROUND_S, python_work, rounds

_OPERATOR_ROUND_S: Final = 0.000090
_CHAIN_ROUND_S: Final = 0.0018
_OLD_OBJECT_S: Final = 0.000_000_10
_OPTIMIZED_S: Final = 0.000_055
_SUMMARY_S: Final = 0.000_090
_MEGABYTE_S: Final = 0.0010
"""CPU seconds on the machine of the published results, of what the line's pathology repeats. They only aim the dose."""


class HostWork(Pathology):
    """A pathology whose cost is host time."""

    kind = "fault"
    expected = "overhead-bound"


class PythonOverhead(HostWork):
    """Pure Python before each forward pass."""

    name = "python_overhead"

    def before_forward(self, number: int, batch: Sequence[Tensor]) -> None:
        """Counts words."""
        if self.is_on:
            python_work(rounds(self.cost_s, PYTHON_ROUND_S))


class _Beside(nn.Module):
    """A model with a small term beside it, which rounds of operators compute from a parameter."""

    def __init__(self, model: nn.Module, beside: Tensor, pathology: Pathology, n_rounds: int) -> None:
        super().__init__()
        self.model = model
        self.beside = nn.Parameter(beside)
        self.n_rounds = n_rounds
        self._is_on = lambda: pathology.is_on

    def term(self, x: Tensor) -> Tensor:
        """Gives what the rounds make of the parameter."""
        raise NotImplementedError

    def forward(self, *inputs: Tensor) -> Tensor:
        """Gives the model's outputs, with the term."""
        outputs: Tensor = self.model(*inputs)
        return outputs + 1e-3 * self.term(self.beside)


class _Tiny(_Beside):
    """Rounds of four operators on sixteen numbers; none while the pathology is off."""

    def term(self, x: Tensor) -> Tensor:
        for _ in range(self.n_rounds if self._is_on() else 0):
            x = torch.relu(x * 0.99 + 0.01) + 0.001
        return x.mean()


class TinyOps(HostWork):
    """Many small operators, where one would do."""

    name = "tiny_ops"

    def dressed(self, model: nn.Module) -> nn.Module:
        """Gives the model with a chain of small operators beside it."""
        return _Tiny(model, torch.zeros(16), self, rounds(self.cost_s, _OPERATOR_ROUND_S))


class _Chain(_Beside):
    """Rounds of norm and gelu on 64k numbers: as two fused operators, or written out while the pathology is on."""

    def term(self, x: Tensor) -> Tensor:
        for _ in range(self.n_rounds):
            x = self._written_out(x) if self._is_on() else gelu(layer_norm(x, x.shape[-1:]), approximate="tanh")
        return x.mean()

    @staticmethod
    def _written_out(x: Tensor) -> Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)
        x = centred / torch.sqrt((centred * centred).mean(dim=-1, keepdim=True) + 1e-5)
        return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))


class Unfused(Pathology):
    """Norms and activations written out as elementwise operators."""

    name = "unfused"
    finding = "kernel.unfused"
    kind = "fault"

    def dressed(self, model: nn.Module) -> nn.Module:
        """Gives the model with the chain beside it."""
        return _Chain(model, torch.randn(64, 1024), self, rounds(self.cost_s, _CHAIN_ROUND_S))


class Garbage(HostWork):
    """A full collection in each step, through a heap of old objects."""

    name = "gc"
    finding = "host.gc"

    @contextmanager
    def around(self) -> Iterator[None]:
        """Gives the collector back what it was not to see."""
        try:
            yield
        finally:
            gc.unfreeze()

    def after_step(self, number: int, model: nn.Module) -> None:
        """Collects; at first makes the old objects, with what torch and Python hold out of the collector's sight."""
        if number == 0:
            gc.freeze()
            self.old = [[each] for each in range(rounds(self.cost_s, _OLD_OBJECT_S))]
        if self.is_on:
            gc.collect()


class OptimizerLoop(HostWork):
    """An optimizer that works through many small tensors one by one, where a fused one could."""

    name = "optimizer_heavy"
    finding = "host.optimizer_loop"

    def dressed(self, model: nn.Module) -> nn.Module:
        """Gives the model with many small parameters."""
        return _Adapters(model, rounds(self.cost_s, _OPTIMIZED_S))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Gives an optimizer whose way is chosen anew in each step."""
        return _Switched(model, self)


class _Adapters(nn.Module):
    """A model and many small vectors whose sum is added to its outputs."""

    def __init__(self, model: nn.Module, n: int) -> None:
        super().__init__()
        self.model = model
        self.vectors = nn.ParameterList(nn.Parameter(torch.zeros(64)) for _ in range(max(n, 1)))

    def forward(self, *inputs: Tensor) -> Tensor:
        """Gives the model's outputs, with the vectors' mean."""
        outputs: Tensor = self.model(*inputs)
        return outputs + 1e-3 * torch.cat(list(self.vectors)).mean()


class _Switched(torch.optim.AdamW):
    """AdamW that is fused while the pathology is off, and a loop over its vectors while it is on."""

    def __init__(self, model: nn.Module, pathology: Pathology) -> None:
        small = [each for each in model.parameters() if each.shape == (64,)]
        large = [each for each in model.parameters() if each.shape != (64,)]
        super().__init__([{"params": large}, {"params": small}], lr=1e-3, fused=True)
        self.pathology = pathology

    def step(self, closure: Any = None) -> Any:
        is_on = self.pathology.is_on
        self.param_groups[1].update(fused=not is_on, foreach=False)
        return super().step(closure)


class Logging(HostWork):
    """A summary of parameters in each step: norms, histograms, and a line of JSON."""

    name = "logging"

    def after_step(self, number: int, model: nn.Module) -> None:
        """Summarises as many slices of parameters as the dose says."""
        if not self.is_on:
            return
        values = next(iter(model.parameters())).detach().flatten()[:1_000]
        n = rounds(self.cost_s, _SUMMARY_S)
        lines = [json.dumps({"step": number, "slice": each, **_summary(values + each)}) for each in range(n)]
        with tempfile.TemporaryFile("w") as file:
            file.writelines(lines)


def _summary(values: Tensor) -> dict[str, Any]:
    return {"norm": values.norm().item(), "histogram": torch.histc(values, 20).tolist()}


class Checkpoint(HostWork):
    """A checkpoint in each step."""

    name = "checkpoint"

    @contextmanager
    def around(self) -> Iterator[None]:
        """Holds the folder of the file."""
        with tempfile.TemporaryDirectory(prefix="accuracy-") as folder:
            self.path = Path(folder) / "last.pt"
            self.state = {str(n): torch.zeros(250_000) for n in range(rounds(self.cost_s, _MEGABYTE_S))}
            yield

    def after_step(self, number: int, model: nn.Module) -> None:
        """Writes the file."""
        if self.is_on:
            torch.save(self.state, self.path)
