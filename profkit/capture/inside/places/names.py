"""What modules are called in the script: `model.layers.3.attn` where the trace says `nn.Module: Attention_3`.

Runs in the traced process: standard library and torch only.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from torch import nn

from .owners import is_own_path

_WRAPPERS: Final = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_checkpoint_wrapped_module_")
"""Children that compile, FSDP and checkpointing put between a module and the one that the script wrote."""
_HOLDERS: Final = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")
"""Modules whose only child, `module`, is the one that the script wrote."""
_MOST_VARIABLES: Final = 10_000  # of a frame that is looked through (chosen: a notebook's globals are fewer)
_SELF: Final = ("self", "cls")


Held = tuple[str, nn.Module]


def qualified(seen: Mapping[str, int], held: Sequence[Held], called: Sequence[nn.Module]) -> dict[str, str]:
    """The qualified name of each module that was seen, by the name that the trace gives it.

    `seen` gives the id of the object for each of those names; `held` are modules with the variables that hold them,
    `called` those that were called from outside any other. A path begins with the variable that holds the outermost
    module, or with its class. Modules that are found nowhere have no entry.
    """
    wanted = set(seen.values())
    roots = [*held, *((type(module).__name__, module) for module in called)]
    paths = _paths(roots, wanted)
    if wanted - paths.keys():
        others = [(type(module).__name__, module) for module in _outermost_alive(wanted - paths.keys())]
        paths = {**_paths(others, wanted - paths.keys()), **paths}
    return {name: paths[key] for name, key in seen.items() if key in paths}


def _paths(roots: Sequence[Held], wanted: set[int]) -> dict[int, str]:
    """The paths of the wanted modules: from the root below which most of them are."""
    below: list[dict[int, str]] = []
    done: set[int] = set()
    for name, root in roots:
        if id(root) not in done:
            done.add(id(root))
            found = {id(module): _joined(name, root, path) for path, module in root.named_modules()}
            below.append({key: path for key, path in found.items() if key in wanted})
    paths: dict[int, str] = {}
    for found in sorted(below, key=len, reverse=True):  # stable: the outermost frame's variables first
        paths = {**found, **paths}
    return paths


def _joined(name: str, root: nn.Module, path: str) -> str:
    parts = [part for part in path.split(".") if part and part not in _WRAPPERS]
    if type(root).__name__ in _HOLDERS and parts[:1] == ["module"]:
        parts = parts[1:]
    return ".".join([name, *parts])


def variables() -> list[Held]:
    """The modules that variables of the script's running functions hold, and the attributes of their `self`."""
    found: list[Held] = []
    if sys.gettrace() is not None:  # a debugger writes back what it has read of a frame
        return found
    frame: Any = sys._getframe()  # noqa: SLF001
    frames: list[Any] = []
    while frame is not None:
        if is_own_path(frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    for one in reversed(frames):
        found += _held_by(one)
    return found


def _held_by(frame: Any) -> Iterator[Held]:
    values = frame.f_locals
    items = list(values.items()) if len(values) <= _MOST_VARIABLES else []
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and sys.version_info < (3, 13):
        values.clear()  # a copy that the frame keeps, and with it tensors that the script lets go of
    for name, value in items:
        if _is_module(value):
            if name not in _SELF:
                yield name, value
        else:
            yield from ((attribute, held) for attribute, held in _attributes(value) if _is_module(held))


def _is_module(value: Any) -> bool:
    return issubclass(type(value), nn.Module)  # not isinstance, which asks the object itself


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """What an object holds, as a trainer does its model; nothing of one whose class answers for its attributes."""
    kind: Any = type(value)
    offset: Any = getattr(kind, "__dictoffset__", 0)
    is_plain = kind.__getattribute__ is object.__getattribute__ and offset != 0
    held = value.__dict__ if is_plain and not issubclass(kind, type) else None
    return list(held.items()) if type(held) is dict and len(held) <= _MOST_VARIABLES else []


def _outermost_alive(wanted: set[int]) -> list[nn.Module]:
    """The modules that hold wanted ones and that no other module holds."""
    alive = [one for one in gc.get_objects() if _is_module(one)]
    held = {id(child) for module in alive for child in module.children()}
    tops = [module for module in alive if id(module) not in held]
    return [module for module in tops if any(id(child) in wanted for child in module.modules())]
