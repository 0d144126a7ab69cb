"""CPU samples of an nsys export: which function a thread was in, and the program's own function around it.

A row of COMPOSITE_EVENTS is a moment at which a thread ran on a CPU; its call chain is in SAMPLING_CALLCHAINS under the
same id, a row for each frame, the innermost at depth 0. Tables and columns checked on exports of 2023 to 2025.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.ingest.assemble.raw import Columns
from profkit.ingest.nsys.rows import NO_NAME, TABLES, Rows
from profkit.ingest.nsys.session import process_of
from profkit.ingest.nsys.sqlite import Database
from profkit.ingest.texts import trimmed
from profkit.model.arrays import I64, is_member, is_one_of

CHAINS: Final = "SAMPLING_CALLCHAINS"
_EVENTS: Final = "COMPOSITE_EVENTS"
_RUNNING: Final = (0, 1)
"""ENUM_SAMPLING_THREAD_STATE: unknown, running. Others are backtraces of threads that began to wait."""
_NOT_THE_PROGRAMS: Final = re.compile(
    r"^$|^\[|^(?:lib(?:c|m|dl|rt|pthread|gcc_s|stdc\+\+|cuda|nvidia-[\w-]+|python[\d.]*|ToolsInjection\w*)|ld-linux[\w-]*"
    r"|python[\d.]*)(?:[-.]|$)"
)
"""Modules in which no function is the program's own: the kernel, C and C++ libraries, the driver, the interpreter."""
_OF_THE_LANGUAGE: Final = re.compile(r"^(?:std|__gnu_cxx|__cxxabi\w*)::|_[0-9a-f]{40}$")
"""Functions of the C++ library that were compiled into the program, and NVIDIA's, whose names are digests."""
_OPERATOR: Final = re.compile(r"\boperator *(?:\(\)|<<|>>|->|<=|>=|<|>)")
_LONGEST_SYMBOL: Final = 2_000
_AS_BUSY: Final = 0.25
"""Of the samples of the busiest other process, which one of several workers has; and of those of the job, which the
busiest has if it works for it. Chosen: workers of one loader differ by less, launchers and monitors sleep."""
_MOST_PARTS: Final = 2
_I32 = NDArray[np.int32]


class Samples(msgspec.Struct):
    """The samples of the wanted processes, shape (n,), in order of their ids."""

    id: I64
    start_ns: I64
    owner: I64
    """globalTids."""
    symbol: _I32
    """Of the innermost frame, as id of StringIds; `NO_NAME` where it is not known."""
    module: _I32
    chain: Chain
    n_busy_beside: int = 0
    """Other processes that are at work as much as the busiest of them, within a factor: workers of a loader."""


class Chain(msgspec.Struct):
    """The frames of all samples, shape (m,), by sample and from the innermost out."""

    place: _I32
    """The sample."""
    symbol: _I32
    module: _I32


def read_samples(database: Database, rows: Rows, wanted: set[int]) -> Samples | None:
    """The samples of these processes; None without any."""
    needed = ("id", "start", "globalTid")
    missing = [name for name in needed if database.has(_EVENTS) and name not in database.columns(_EVENTS)]
    if missing:
        rows.left_out.append(f"{_EVENTS} has no column {missing[0]}: left out")
        return None
    parts: list[tuple[I64, I64, I64]] = []
    beside: Counter[int] = Counter()
    for chunk in database.chunks(_EVENTS, {"id": -1, "start": None, "globalTid": 0, "threadState": _RUNNING[0]}):
        is_wanted = np.isin(process_of(chunk["globalTid"]), list(wanted))
        is_running = is_one_of(chunk["threadState"], _RUNNING)
        mine = is_wanted & is_running
        keys, counts = np.unique(process_of(chunk["globalTid"][~is_wanted & is_running]), return_counts=True)
        beside.update(dict(zip(keys.tolist(), counts.tolist(), strict=True)))
        parts.append((chunk["id"][mine], chunk.ns()[mine], chunk["globalTid"][mine]))
    if not any(part[0].size for part in parts):
        return None
    id_, start, owner = (np.concatenate([part[column] for part in parts]) for column in range(3))
    order = np.argsort(id_, kind="stable")
    id_ = id_[order]
    chain = _chain(database, id_)
    symbol, module = np.full(id_.size, NO_NAME, np.int32), np.full(id_.size, NO_NAME, np.int32)
    first = _first(chain.place)
    symbol[chain.place[first]], module[chain.place[first]] = chain.symbol[first], chain.module[first]
    most = max(beside.values(), default=0)
    n_busy = (
        sum(count >= _AS_BUSY * most for count in beside.values()) if most >= _AS_BUSY * id_.size / len(wanted) else 0
    )
    return Samples(
        id=id_,
        start_ns=start[order],
        owner=owner[order],
        symbol=symbol,
        module=module,
        chain=chain,
        n_busy_beside=n_busy,
    )


def _first(place: _I32) -> NDArray[np.intp]:
    """The first row of each run of one value."""
    return np.flatnonzero(np.append(True, place[1:] != place[:-1])) if place.size else np.empty(0, np.intp)


def _chain(database: Database, ids: I64) -> Chain:
    """The frames of the samples with these ids, which are in order; none of a table that lacks its columns."""
    places: list[_I32] = [np.empty(0, np.int32)]
    depths: list[I64] = [np.empty(0, np.int64)]
    symbols, modules = list(places), list(places)
    is_whole = database.has(CHAINS) and {"id", "symbol", "module", "stackDepth"} <= database.columns(CHAINS)
    numbers = {"id": -1, "symbol": NO_NAME, "module": NO_NAME, "stackDepth": 0, "unresolved": 0}
    for chunk in database.chunks(CHAINS, numbers) if is_whole else ():
        mine = is_member(chunk["id"], ids)
        places.append(np.searchsorted(ids, chunk["id"][mine]).astype(np.int32))
        depths.append(chunk["stackDepth"][mine])
        kept = chunk.kept(mine)
        symbols.append(np.where(kept["unresolved"] == 0, kept.ids("symbol"), NO_NAME))
        modules.append(kept.ids("module"))
    place = np.concatenate(places)
    order = np.lexsort((np.concatenate(depths), place))
    return Chain(
        place=place[order],
        symbol=np.concatenate(symbols)[order].astype(np.int32),
        module=np.concatenate(modules)[order].astype(np.int32),
    )


def texts_of(samples: Samples) -> set[int]:
    """The ids of StringIds that the frames refer to."""
    found = {*np.unique(samples.chain.symbol).tolist(), *np.unique(samples.chain.module).tolist()}
    return {id_ for id_ in found if id_ >= 0}


def add_samples(samples: Samples, rows: Rows, texts: Mapping[int, str]) -> list[str]:
    """Add the samples to their processes; `name`, `module`, `caller` are places in the words returned, -1 for none."""
    words: dict[str, int] = {}

    def coded(ids: _I32, text: Mapping[int, str]) -> _I32:
        distinct, place = np.unique(ids, return_inverse=True)
        codes = [words.setdefault(said, len(words)) if (said := text.get(id_, "")) else -1 for id_ in distinct.tolist()]
        return np.array(codes, np.int32)[place.reshape(-1)]

    functions = {id_: function_words(texts.get(id_, "")) for id_ in np.unique(samples.chain.symbol).tolist()}
    modules = {id_: module_words(texts.get(id_, "")) for id_ in np.unique(samples.chain.module).tolist()}
    columns: Columns = {
        "start_ns": samples.start_ns,
        "thread": rows.thread_codes(samples.owner),
        "name": coded(samples.symbol, functions),
        "module": coded(samples.module, modules),
        "caller": _callers(samples, functions, modules, words),
    }
    rows.add("samples", TABLES[_EVENTS], samples.owner, columns)
    return list(words)


def _callers(samples: Samples, functions: Mapping[int, str], modules: Mapping[int, str], words: dict[str, int]) -> _I32:
    """For each sample: the innermost frame that is a function of the program's own, in words, -1 for none."""
    chain = samples.chain
    foreign = [id_ for id_, name in modules.items() if _NOT_THE_PROGRAMS.search(name)]
    unnamed = [id_ for id_, name in functions.items() if not name or _OF_THE_LANGUAGE.search(name)]
    own = np.flatnonzero(~np.isin(chain.module, foreign) & ~np.isin(chain.symbol, unnamed))
    first = own[_first(chain.place[own])]
    out = np.full(samples.id.size, -1, np.int32)
    pairs, place = np.unique(np.stack([chain.symbol[first], chain.module[first]]), axis=1, return_inverse=True)
    said = [f"{functions[symbol]} ({modules[module]})" for symbol, module in pairs.T.tolist()]
    codes = np.array([words.setdefault(one, len(words)) for one in said], np.int32)
    if first.size:
        out[chain.place[first]] = codes[place.reshape(-1)]
    return out


def module_words(path: str) -> str:
    """A module as people know it: the last part of its path; "" for what nsys could not find."""
    return "" if path in {"[Unknown]", "[Max depth]", "[Broken backtraces]"} else path.rsplit("/", 1)[-1]


def function_words(symbol: str) -> str:
    """A function as people know it: its name and the class or namespace around it, no types, no arguments.

    "" for what is none: an address, or what nsys writes where a chain ends early.
    """
    if symbol.startswith(("[", "0x")):
        return ""
    text = trimmed(symbol, _LONGEST_SYMBOL).split("@@")[0].replace("(anonymous namespace)", "anon")
    text = _OPERATOR.sub(lambda found: found[0].translate(_HIDDEN), text)
    kept, depth = [], 0
    for piece in re.findall(r"[<>]|[^<>]+", text):
        depth += (piece == "<") - (piece == ">")
        if depth == 0 and piece != ">":
            kept.append(piece)
    words = "".join(kept).partition("(")[0].split()
    place = next((n for n, word in enumerate(words) if "operator" in word.split("::")[-1]), len(words) - 1)
    name = " ".join(words[place:])
    return "::".join(name.split("::")[-_MOST_PARTS:]).translate(_SHOWN)


_HIDDEN: Final = str.maketrans("<>()", "\x01\x02\x03\x04")
_SHOWN: Final = str.maketrans("\x01\x02\x03\x04", "<>()")
