"""The modules of a trace: their names, and which stands inside which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np

from profkit.model.arrays import distinct_codes, looked_up
from profkit.model.trace import I32, Trace
from profkit.timeline.code.frames import MODULE, Frames

_MOST_LEVELS: Final = 64
"""Modules inside each other. Chosen: a made-up file may claim any number, models have a dozen."""


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """One module (`torch.nn.Module`) that was called while frames were recorded."""

    name: str
    """Its qualified name where the capture recorded it (`layers.3.attn`), else its path of classes, in which a number
    tells those of one class in one module apart, in order of their first call (`Model/Block[3]/Linear`)."""
    kind: str
    """Its class."""
    parent: int
    """The place of the module around it in `Code.modules`, -1 for none."""


def modules_of(trace: Trace, frames: Frames) -> tuple[tuple[Module, ...], I32]:
    """The modules, and per code of a string the place of its module, -1 for none, shape (n_strings,)."""
    rows = frames.rows
    called = np.flatnonzero(frames.module == np.arange(len(rows)))
    codes = distinct_codes(rows.name[called]).tolist() if called.size else []
    place_of = np.full(len(trace.strings), -1, np.int32)
    place_of[codes] = np.arange(len(codes))
    around = _around(frames, called, place_of, len(codes))
    qualified = trace.meta.metadata.get("profkit_modules")
    named = qualified if isinstance(qualified, Mapping) else {}
    parts = [_parts(trace.name(code)) for code in codes]
    return _named(parts, _without_circles(around), named), place_of


def _around(frames: Frames, called: np.ndarray[Any, np.dtype[np.intp]], place_of: I32, n: int) -> list[int]:
    """The module around each: at its first call that lies in another one, for the recomputed ones lack some."""
    name = frames.rows.name
    parent = frames.parent[called]
    mine = place_of[name[called]]
    around = looked_up(place_of, looked_up(name, looked_up(frames.module, parent)))
    has = np.flatnonzero((around >= 0) & (around != mine))
    first = np.full(n, -1, np.int64)
    first[mine[has][::-1]] = around[has][::-1]
    return [int(each) for each in first]


def _without_circles(around: list[int]) -> list[int]:
    """The same, where a module that lies in itself, or in more than any model has, has none around it."""
    out = list(around)
    for place in range(len(out)):
        at = out[place]
        for _ in range(_MOST_LEVELS):
            if at < 0:
                break
            at = out[at]
        else:
            out[place] = -1
    return out


def _parts(name: str) -> tuple[str, int]:
    """Class and number of `nn.Module: Linear_3`."""
    kind, _, number = name.removeprefix(MODULE).rpartition("_")
    return (kind, int(number)) if kind and number.isdecimal() and len(number) < 10 else (name.removeprefix(MODULE), 0)


def _named(parts: list[tuple[str, int]], around: list[int], qualified: Mapping[Any, Any]) -> tuple[Module, ...]:
    """The modules with their names; those of one class in one module are numbered if there are several."""
    alike: dict[tuple[int, str], list[int]] = {}
    for place, (kind, _) in enumerate(parts):
        alike.setdefault((around[place], kind), []).append(place)
    own = [""] * len(parts)
    for (_, kind), places in alike.items():
        for count, place in enumerate(sorted(places, key=lambda each: parts[each][1])):
            own[place] = kind if len(places) == 1 else f"{kind}[{count}]"
    names: list[str] = []
    for place, (kind, number) in enumerate(parts):
        told = qualified.get(f"{kind}_{number}", qualified.get(f"{MODULE}{kind}_{number}"))
        path, at = [own[place]], around[place]
        while at >= 0:
            path.append(own[at])
            at = around[at]
        names.append(told if isinstance(told, str) and told else "/".join(reversed(path)))
    return tuple(
        Module(name=name, kind=kind, parent=outer) for name, (kind, _), outer in zip(names, parts, around, strict=True)
    )


def pattern(names: list[str]) -> str:
    """What several names of modules have in common, `*` for a part or a number in which they differ; "" for nothing.

    `layers.0.attn` and `layers.1.attn` give `layers.*.attn`.
    """
    first = names[0]
    sign = "/" if "/" in first else "."
    split = [name.split(sign) for name in names]
    out = []
    for parts in zip(*split, strict=False):
        heads = {part.partition("[")[0] for part in parts}
        if len(set(parts)) == 1:
            out.append(parts[0])
        elif len(heads) == 1 and "[" in parts[0]:
            out.append(f"{heads.pop()}[*]")
        else:
            out.append("*")
    if len({len(each) for each in split}) > 1:  # some lie deeper: what all are in
        while out and out[-1] == "*":
            out.pop()
    return sign.join(out) if any(part != "*" for part in out) else ""
