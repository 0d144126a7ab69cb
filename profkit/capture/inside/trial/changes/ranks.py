"""Changes to how ranks work together.

Runs in the tried process: standard library and torch only.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

from .base import Change, wrapped


class _Wrapper(Change):
    """Other arguments of a module that wraps the model."""

    name = ""

    def install(self) -> None:
        """Change the arguments of wrappers that are made from now on."""
        self.why_not = f"the run made no {self.name}"
        wrapped(self.owner(), "__init__", self._made)

    def owner(self) -> Any:
        """The class of the wrapper."""
        raise NotImplementedError

    def _made(self, original: Any, wrapper: Any, *args: Any, **kwargs: Any) -> Any:
        known = inspect.signature(original).parameters
        said = []
        for name, value in self.how.items():
            if name not in known:
                self.why_not = f"{self.name} of this torch has no {name}"
                continue
            if kwargs.get(name) == value:
                self.why_not = f"{name} is {value} already"
                continue
            said.append(f"{name} {kwargs.get(name, known[name].default)} -> {value}")
            kwargs[name] = value
        self.done = self.done or ", ".join(said)
        return original(wrapper, *args, **kwargs)


class Ddp(_Wrapper):
    """Other arguments of DistributedDataParallel."""

    name = "DistributedDataParallel"

    def owner(self) -> Any:
        """As above."""
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel


class Fsdp(_Wrapper):
    """Other arguments of FullyShardedDataParallel."""

    name = "FullyShardedDataParallel"

    def owner(self) -> Any:
        """As above."""
        from torch.distributed.fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel


CHANGES: Final = {
    "ddp_view": Ddp,
    "ddp_bucket": Ddp,
    "ddp_static": Ddp,
    "fsdp_prefetch": Fsdp,
}
