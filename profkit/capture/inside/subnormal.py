"""Whether the step computes with subnormal numbers on the CPU: a look at a few values, outside recorded steps.

Some of what modules take and give is looked at, of parameters, gradients, what the optimizer keeps and what functions
hold. Their bytes are read, nothing is changed, and no mode of the script's sees it. Behind the step a product with a
copy of such values is timed, and one with zeros in their place. Runs in the traced process: standard library and torch
only.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Any, Final

import torch
from torch.nn.modules.module import register_module_forward_hook

from ..beside import redact
from .grown import is_own_object, locals_of
from .hooks import has_compiled
from .places.owners import is_own_path

_ROWS: Final = 16
_VALUES: Final = 32
"""Of a tensor, in so many rows. Chosen: they take 40 us."""
_APART: Final = 0.618
"""Of a tensor, how far a row is from the next, around its end: what repeats in it is met at all places. Chosen."""
_SHARE: Final = 0.02
"""Of the step, what looks take at most."""
_MOST_OF_OPTIMIZER: Final = 100
"""Parameters, with what is kept of them. Chosen: some 10 ms."""
_LEAST: Final = 1024
"""Values of a tensor that is looked at: fewer take no time. Chosen."""
_DEPTH: Final = 3
_MOST_HELD: Final = 300
"""Tensors that one look at all that functions hold takes. Chosen: some 10 ms."""
_MOST_OPERANDS: Final = 4
"""Tensors of which a product is timed. Chosen: each takes some milliseconds."""
_PIECES: Final = (64, 64)
"""Of such a tensor, so many pieces of so many values are the factor that is timed, and..."""
_COLUMNS: Final = 32
"""...of the other factor. Measured: this takes 3 us; a larger one waits for threads that have no core."""
_TRIES: Final = 16
"""Of each product: the quickest had its core. Chosen."""
_LEAST_TIMES: Final = 2.0
"""Chosen: what takes less than twice as long may be noise."""
_MOST_PARTS: Final = 64
_MOST_OF_ONE: Final = 4000
"""Values that are looked into for one name, and..."""
_MOST_OF_ALL: Final = 20_000
"""...for all: a list of lists of lists has very many. Chosen: some milliseconds."""
_MOST_FRAMES: Final = 60
_LONGEST_NAME: Final = 40
_OF_OPTIMIZER: Final = "the optimizer's "
_SIGN: Final = 0x7FFFFFFF
_NORMAL: Final = 0x00800000
"""The bits of the smallest float32 that is not subnormal."""


class Subnormals:
    """Looks from `begin` to `end`; `told` has what they found."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._thread = 0
        self._begun_ns = self._spent_ns = 0
        self._flushes = False
        self._n_looks: Counter[str] = Counter()
        self._n_found: Counter[str] = Counter()
        self._operands: dict[tuple[int, ...], tuple[str, bytes]] = {}
        self._products: list[dict[str, Any]] = []

    def begin(self) -> None:
        """A step begins that nothing times or records."""
        if has_compiled():  # it would compile again under a hook
            return
        self._thread, self._begun_ns = threading.get_ident(), time.perf_counter_ns()
        self._flushes = flushes()
        self._handle = register_module_forward_hook(self._called)

    def end(self, optimizer: Any = None) -> None:
        """It ends; the optimizer that has made its step is looked at."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        handle.remove()
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - a mode of the script's would see each look
            self._look_behind(optimizer)

    def _look_behind(self, optimizer: Any) -> None:
        with suppress(Exception):  # the script's own classes may be of any kind
            held = _held(sys._getframe(), is_own_path, set())  # noqa: SLF001
            for name, one in islice(held, _MOST_HELD):
                if type(one) is torch.Tensor and not name.startswith(_OF_OPTIMIZER):
                    self._look(name, one, is_operand=True)
        with suppress(Exception):
            self._products = [] if self._flushes else _timed(self._operands)
        with suppress(Exception):
            of_all = (parameter for group in optimizer.param_groups for parameter in group["params"])
            for parameter, _ in zip(of_all, range(_MOST_OF_OPTIMIZER)):  # noqa: B905 - Python 3.9
                self._look("a parameter", parameter)
                self._look("a gradient", parameter.grad)
                for name, kept in (optimizer.state.get(parameter) or {}).items():
                    self._look(_OF_OPTIMIZER + name, kept)

    def told(self) -> dict[str, Any] | None:
        """Of each kind of tensor that has them: how many were looked at, and how many have; None where none has."""
        if not self._n_found:
            return None
        kinds = [
            {"of": redact().redacted_text(kind)[:_LONGEST_NAME], "n_found": n, "n_looks": self._n_looks[kind]}
            for kind, n in self._n_found.most_common(4)
        ]
        return {"flushes": self._flushes, "kinds": kinds, "products": self._products}

    def _called(self, module: Any, taken: Any, given: Any) -> None:
        if torch.compiler.is_compiling() or torch.jit.is_tracing() or threading.get_ident() != self._thread:
            return
        if self._spent_ns > _SHARE * (time.perf_counter_ns() - self._begun_ns):  # so looks lie all over the step
            return
        begun_ns = time.perf_counter_ns()
        with suppress(Exception), torch._C.DisableTorchFunction():  # noqa: SLF001
            if any(one is not None for one in module._parameters.values()):  # noqa: SLF001 - its method may be the script's
                for one in _tensors(taken):
                    self._look(f"what {type(module).__name__} takes", one, is_operand=True)
            for one in _tensors(given):
                self._look(f"what {type(module).__name__} gives", one)
        self._spent_ns += time.perf_counter_ns() - begun_ns

    def _look(self, kind: str, tensor: Any, *, is_operand: bool = False) -> None:
        """Of an operand a copy of some values is kept, where products with it may be slow."""
        if type(tensor) in (torch.Tensor, torch.nn.Parameter) and _is_plain(tensor):
            self._n_looks[kind] += 1
            if _share(tensor):
                self._n_found[kind] += 1
                shape = tuple(tensor.shape)
                if is_operand and shape not in self._operands and len(self._operands) < _MOST_OPERANDS:
                    self._operands[shape] = (kind, b"".join(_pieces(tensor, *_PIECES)))


def flushes() -> bool:
    """Whether this thread takes subnormal numbers for zero, Python's own among them."""
    least = sys.float_info.min
    return least / 2 == 0


def address_of(tensor: Any, storage: Any) -> int:
    """Where its first value lies; 0 where its storage has not all of them: FSDP frees what a rank does not hold.

    Who reads there holds the storage meanwhile: another thread may give the tensor another one.
    """
    first = tensor.storage_offset()
    last = first + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride()))  # noqa: B905
    has_all = storage.data_ptr() and storage.nbytes() >= (last + 1) * tensor.element_size()
    return int(storage.data_ptr() + first * tensor.element_size()) if has_all else 0


def _is_plain(tensor: Any) -> bool:
    is_ours = tensor.dtype is torch.float32 and tensor.device.type == "cpu" and tensor.layout is torch.strided
    span = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride()))  # noqa: B905 - Python 3.9
    return is_ours and span == tensor.numel() >= _LEAST


def _pieces(tensor: Any, n_pieces: int, n_values: int) -> list[bytes]:
    """So many pieces of its memory; [] where they cannot be read. The last may be shorter."""
    storage, n = tensor.untyped_storage(), tensor.numel()
    first = address_of(tensor, storage)
    places = [int(n * (_APART * (row + 1) % 1)) for row in range(n_pieces)] if first else []
    return [ctypes.string_at(first + 4 * at, 4 * min(n_values, n - at)) for at in places]


def _share(tensor: Any) -> float:
    """The share (0-1) of its values that are subnormal, by some of them."""
    found = [_is_subnormal(bits) for piece in _pieces(tensor, _ROWS, _VALUES) for bits in array("I", piece)]
    return sum(found) / len(found) if found else 0.0


def _is_subnormal(bits: int) -> bool:
    return 0 < bits & _SIGN < _NORMAL


def _timed(operands: dict[tuple[int, ...], tuple[str, bytes]]) -> list[dict[str, Any]]:
    """Of those whose products take longer than of zeros in place of subnormal values: both rates, on all threads.

    None while a mode of the script's counts or records operators.
    """
    if torch._C._len_torch_dispatch_stack():  # noqa: SLF001
        return []
    n_values = _PIECES[0] * _PIECES[1]
    flops = 2 * 10**9 * n_values * _COLUMNS * torch.get_num_threads()
    other = torch.frombuffer(array("f", [1.0] * _PIECES[1] * _COLUMNS), dtype=torch.float32).view(-1, _COLUMNS)
    told = []
    for shape, (kind, kept) in operands.items():
        bits = array("I", kept.ljust(4 * n_values, b"\0"))
        cut = array("I", [0 if _is_subnormal(one) else one for one in bits])
        slow, zeros = (torch.frombuffer(one, dtype=torch.float32).view(_PIECES) for one in (bits, cut))
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            spent = [(_spent_ns(slow, other), _spent_ns(zeros, other)) for _ in range(_TRIES)]
        slow_ns, zeros_ns = (min(each) for each in zip(*spent))  # noqa: B905 - Python 3.9
        if slow_ns >= _LEAST_TIMES * zeros_ns:
            name = redact().redacted_text(kind)[:_LONGEST_NAME]
            rates = {"flop_per_s": flops // slow_ns, "flop_per_s_of_zeros": flops // zeros_ns}
            told.append({"of": name, "shape": list(shape), **rates})
    return told


def _spent_ns(first: Any, second: Any) -> int:
    begun_ns = time.perf_counter_ns()
    torch.mm(first, second)
    return max(time.perf_counter_ns() - begun_ns, 1)


def _tensors(given: Any, depth: int = 0) -> Iterable[Any]:
    if isinstance(given, torch.Tensor):
        yield given
    elif depth < _DEPTH and isinstance(given, (tuple, list)):
        for one in given[:16]:
            yield from _tensors(one, depth + 1)


def held_subnormals(frame: Any, owns: Callable[[str], bool]) -> dict[str, int]:
    """Of what the script's running functions hold: how many values are subnormal, by name; {} where they count as zero.

    Their objects, modules and optimizers are looked into as well. For the thread whose frame it is.
    """
    found: dict[str, int] = {}
    if flushes():
        return found
    seen: set[int] = set()
    with torch._C.DisableTorchFunction():  # noqa: SLF001
        for name, tensor in islice(_held(frame, owns, seen), _MOST_HELD):
            if type(tensor) in (torch.Tensor, torch.nn.Parameter) and _is_plain(tensor) and (share := _share(tensor)):
                key = redact().redacted_text(name)[:_LONGEST_NAME]
                found[key] = found.get(key, 0) + round(share * tensor.numel())
    return found


def _held(frame: Any, owns: Callable[[str], bool], seen: set[int]) -> Iterator[tuple[str, Any]]:
    left = iter(range(_MOST_OF_ALL))
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        if owns(frame.f_code.co_filename):
            for name, value in locals_of(frame)[:_MOST_PARTS]:
                yield from _inside(name, value, owns, seen, islice(left, _MOST_OF_ONE))
        frame = frame.f_back


def _inside(
    name: str, value: Any, owns: Callable[[str], bool], seen: set[int], left: Iterator[int], depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """The tensors of a value, each once, with the names that lead to them.

    By its type alone: to ask a lazy object of the script for its class would make what it stands for.
    """
    if next(left, None) is None or id(value) in seen or depth > _DEPTH:
        return
    parts: Iterable[tuple[str, Any]] = ()
    if issubclass(type(value), torch.Tensor):
        yield name, value
    elif issubclass(type(value), torch.optim.Optimizer):
        states = islice(value.state.values(), _MOST_OF_OPTIMIZER)
        parts = ((_OF_OPTIMIZER + key, one) for state in states for key, one in state.items())
    elif issubclass(type(value), torch.nn.Module):
        parts = ((f"{name}.{key}", one) for key, one in chain(value.named_buffers(), value.named_parameters()))
    elif type(value) in (list, tuple):
        parts = ((name, one) for one in value)
    elif type(value) is dict:
        parts = ((f"{name}[{key!r}]" if type(key) is str else name, one) for key, one in value.items())
    elif is_own_object(value, owns) and hasattr(value, "__dict__"):
        parts = ((f"{name}.{key}", one) for key, one in vars(value).items())
    else:
        return
    seen.add(id(value))
    for key, one in islice(parts, _MOST_PARTS):
        yield from _inside(key, one, owns, seen, left, depth + 1)
