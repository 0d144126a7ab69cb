"""Changes to how the device computes: precision, layout, autotuning, compilation, optimizer kernels.

Runs in the tried process: standard library and torch only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import torch
from torch.optim.optimizer import Optimizer

from .base import Change, wrapped


class Tf32(Change):
    """Matrix products and convolutions of float32 in TF32."""

    def install(self) -> None:
        """Allow it."""
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        self.done = 'float32_matmul_precision "highest" -> "high"'


class Bf16(Change):
    """Forward passes under autocast to bfloat16; backward follows what forward recorded."""

    _device = ""

    def first_forward(self, module: Any) -> None:
        """Begin."""
        self._device = next(module.parameters()).device.type
        if torch.is_autocast_enabled(self._device):
            self._device, self.why_not = "", "the script runs under autocast already"
            return
        if self._device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
            self._device, self.why_not = "", "this GPU has no units for bfloat16; float16 needs a scaler in the script"
            return
        torch.set_autocast_dtype(self._device, torch.bfloat16)
        torch.set_autocast_enabled(self._device, True)
        self.done = "autocast to bfloat16 around forward and loss"

    def backward_began(self) -> None:
        """An autocast region does not hold backward."""
        if self._device:
            torch.set_autocast_enabled(self._device, False)

    def backward_ended(self) -> None:
        """As above."""
        if self._device:
            torch.set_autocast_enabled(self._device, True)

    def stepped(self) -> None:
        """The weights are others now than those that were cast."""
        torch.clear_autocast_cache()


class Single(Change):
    """Weights and inputs of the model in single precision; its optimizer holds the same weights."""

    def first_forward(self, module: Any) -> None:
        """Convert the weights, and from now on what the model is given."""
        if not any(one.dtype == torch.float64 for one in module.parameters()):
            self.why_not = "the model has no weights in double precision"
            return
        module.float()
        for each in module.modules():
            each.register_forward_pre_hook(_as_single, with_kwargs=True)
        self.done = "weights and inputs float64 -> float32"


def _as_single(_module: Any, args: Any, kwargs: Any) -> Any:
    return _single(args), {name: _single(value) for name, value in kwargs.items()}


def _single(value: Any) -> Any:
    """A value with its tensors of double precision in single precision."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype == torch.float64 else value
    return type(value)(map(_single, value)) if type(value) in (tuple, list) else value


class NoGrad(Change):
    """No graph for modules of which a backward pass reads nothing: none of their weights has a gradient after it."""

    _LOOKED: Final = 2  # backward passes (chosen: of two optimizers each has one)
    why_not = "every module that is called has gradients, or gets inputs that need some"

    def install(self) -> None:
        """Note which modules are called, until it is known which of them are trained."""
        self._called: dict[int, list[Any]] = {}
        self._trained: set[int] = set()
        self._depth = self._n_backward = 0
        self._original: Any = torch.nn.Module.__call__
        wrapped(torch.nn.Module, "__call__", self._calls)

    def _calls(self, original: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._depth and self._n_backward < self._LOOKED and not torch.compiler.is_compiling():
            one = self._called.setdefault(id(module), [module, True])
            one[1] = one[1] and torch.is_grad_enabled() and not any(map(_needs_grad, (*args, *kwargs.values())))
        self._depth += 1
        try:
            return original(module, *args, **kwargs)
        finally:
            self._depth -= 1

    def backward_ended(self) -> None:
        """The weights that have a gradient now are trained."""
        if self._n_backward >= self._LOOKED:
            return
        self._n_backward += 1
        self._trained |= {key for key, (one, _) in self._called.items() if any(map(_has_grad, one.parameters()))}
        if self._n_backward < self._LOOKED:
            return
        torch.nn.Module.__call__ = self._original
        for key, (module, is_free) in self._called.items():
            if is_free and key not in self._trained and any(one.requires_grad for one in module.parameters()):
                module.forward = torch.no_grad()(module.forward)
                self.done = f"torch.no_grad() around {type(module).__name__}"
        self._called.clear()


def _needs_grad(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_needs_grad, value))
    return isinstance(value, torch.Tensor) and value.requires_grad


def _has_grad(parameter: Any) -> bool:
    return parameter.grad is not None


class CudnnBenchmark(Change):
    """The fastest algorithm for each convolution, found by trying."""

    def install(self) -> None:
        """Allow it."""
        torch.backends.cudnn.benchmark = True
        self.done = "cudnn.benchmark False -> True"


class ChannelsLast(Change):
    """Weights of convolutions, and so their results, with channels last."""

    def first_forward(self, module: Any) -> None:
        """Lay the weights out anew."""
        if not any(isinstance(one, torch.nn.Conv2d) for one in module.modules()):
            self.why_not = "the model has no Conv2d"
            return
        module.to(memory_format=torch.channels_last)
        self.done = "weights contiguous -> channels_last"


class FlushDenormal(Change):
    """Subnormal numbers taken for zero, whatever the script asks for."""

    why_not = "this CPU cannot take subnormal numbers for zero"

    def install(self) -> None:
        """In this thread, and so in all that it starts: they begin with its settings."""
        if torch.set_flush_denormal(True):
            self.done = "subnormal numbers are taken for zero"
            wrapped(torch, "set_flush_denormal", lambda _original, _mode: True)


class Compiled(Change):
    """The model compiled."""

    def first_forward(self, module: Any) -> None:
        """Compile it at its next call."""
        if getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod"):
            self.why_not = "the model is compiled already"
            return
        module.compile()
        self.done = f"{type(module).__name__}.compile()"


class _Optimizer(Change):
    """Another implementation of the optimizers that have it."""

    why_not = "the run made no optimizer"

    def __init__(self, how: Mapping[str, Any], kind: str) -> None:
        super().__init__(how)
        self.kind = kind

    def install(self) -> None:
        """Change the defaults of optimizers that are made from now on."""
        wrapped(Optimizer, "__init__", self._made)

    def _made(self, original: Any, optimizer: Any, params: Any, defaults: Any) -> Any:
        name = type(optimizer).__name__
        if self.kind not in defaults:
            self.why_not = f"{name} has no {self.kind} implementation"
        elif defaults[self.kind]:
            self.why_not = f"{name} is {self.kind} already"
        else:
            defaults["foreach"] = defaults["fused"] = False
            defaults[self.kind] = True
            self.done = f"{name}({self.kind}=True)"
        return original(optimizer, params, defaults)


CHANGES: Final[dict[str, Callable[[Mapping[str, Any]], Change]]] = {
    "tf32": Tf32,
    "bf16": Bf16,
    "fp32": Single,
    "flush_denormal": FlushDenormal,
    "no_grad": NoGrad,
    "cudnn_benchmark": CudnnBenchmark,
    "channels_last": ChannelsLast,
    "compile": Compiled,
    "fused": partial(_Optimizer, kind="fused"),  # all parameters' updates in one kernel
    "foreach": partial(_Optimizer, kind="foreach"),  # by operators over lists of tensors
}
