"""What a step computes that the step before has computed as well: ranges mark it, and what is known to be another.

An operator is known by the lines that call it and how manieth call that is. Its result is the same where what it takes
is (objects that nobody has changed for a whole step, or what was made the same in this step) and its bytes are: so what
comes of a new batch or of what trains is another, whatever its bytes. No operator runs, no tensor is held. Runs in the
traced process: standard library and torch only.
"""

from __future__ import annotations

import ctypes
import re
import sys
import weakref
from binascii import crc32
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import torch

from ..exits import in_backward

COMPARED: Final = "profkit: compared with the next step: "
SAME_STEP: Final = "profkit: the same as in the step before: "
OTHER_STEP: Final = "profkit: another than in the step before: "
"""Ranges around an operator, with a number that it has in each step; the last one inside the one before as well, where
its bytes are others in spite of all."""
_SAME, _UNKNOWN, _OTHER = range(3)
_RANDOM: Final = re.compile(
    "rand|normal|uniform|bernoulli|exponential|multinomial|poisson|dropout|gumbel|rrelu|geometric|cauchy|empty"
    "|from_numpy|frombuffer|load"
)
"""Names of what gives other values each time, or values of nobody knows where."""
_NO_TENSOR: Final = (
    "dim size stride numel item tolist numpy backward __set__ __len__ __bool__ __int__ __float__ __iter__"
)
_VIEWS: Final = (
    "__get__ view view_as expand expand_as transpose t permute squeeze unsqueeze unbind split chunk narrow select"
)
_TELLS_NOTHING: Final = frozenset(f"{_NO_TENSOR} {_VIEWS}".split())
"""Names of what makes no tensor, or a view: it is known by the tensor that it is a view of, and where it lies there."""
_MADE_ANEW: Final = re.compile(
    r"^(?:(?:new_)?(?:zeros|ones|full|tensor)(?:_like)?|as_tensor|scalar_tensor|clone|contiguous|repeat|tile|to|copy_|float"
    r"|double|half|bfloat16|int|long|bool|type|cpu|detach|fill_|zero_|indices|values|crow_indices|col_indices)$"
)
"""What is no reason by itself: a copy or a start value may be made to be changed."""
_IN_PLACE: Final = re.compile(r"(?<!_)_$|^__(?:setitem|i(?:add|sub|mul|truediv|floordiv|mod|pow|and|or|xor))__$")
_FRAMES: Final = 4
"""By so many calls a place is known: torch's own wrappers are two or three of them. Chosen."""
_OPTIMIZERS: Final = re.compile(r"torch[/\\]optim[/\\]")
_WHOLE: Final = 1 << 18
"""Bytes of a result that is read whole (0.1 ms); of a larger one..."""
_PIECES: Final = 64
_PIECE: Final = 1024
"""...so many pieces of so many bytes, which take as long. What it was made of is known as well. Chosen."""
_APART: Final = 0.6180339887498949
_MOST: Final = 500
_MOST_BYTES: Final = 1 << 26
"""Calls of a step that are looked at, some 50 us each where Python calls are recorded, and bytes that are read (20 ms):
of what comes then nothing is said. Chosen: together a tenth of what such steps may take."""
_MOST_KNOWN: Final = 10_000
_MOST_TENSORS: Final = 64
_PLAIN: Final = (
    *(int, float, bool, complex, str, slice, type(None), type(...), torch.Size),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
_NOT_KNOWN: Final = "an argument of another type"
_LISTS: Final = (tuple, list, torch.Size)
_TENSORS: Final = (torch.Tensor, torch.nn.Parameter)


class _Known:
    """A tensor that this has seen: by the object and its count of changes."""

    __slots__ = ("made", "ref", "since", "state", "version")

    def __init__(self, tensor: Any, *, made: int, since: int, state: int) -> None:
        self.ref, self.version = weakref.ref(tensor), tensor._version  # noqa: SLF001
        self.made, self.since, self.state = made, since, state


class _Call(NamedTuple):
    key: Any
    number: int
    state: int
    given: Any
    """The objects that it takes which this step has not made, and what is no tensor."""
    changed: Any
    """The tensor that it changes in place, made in this step; None for none."""


class SameSteps:
    """What the step before has computed, and this one so far.

    Each function that this calls is recorded beside those of the script: few are.
    """

    def __init__(self) -> None:
        self.call: _Call | None = None
        """What runs now, if it is looked at."""
        self._step = 1
        self._known: dict[int, _Known] = {}
        self._before: dict[Any, Any] = {}
        self._now: dict[Any, Any] = {}
        self._counts: dict[Any, int] = {}
        self._codes: dict[Any, int] = {}
        self._names: dict[str, tuple[int, bool, bool]] = {}
        self._n = self._n_looks = self._n_bytes = 0

    def step(self) -> None:
        """A step ends and another one begins."""
        self._step += 1
        self._before, self._now, self._counts = self._now, {}, {}
        self._n_looks = self._n_bytes = 0
        self._known = {key: one for key, one in self._known.items() if one.ref() is not None}

    def forget(self) -> None:
        """No step comes any more."""
        self.call, self._n_looks = None, _MOST
        self._known, self._before, self._now, self._counts = {}, {}, {}, {}

    def ask(self, name: str, args: Any, kwargs: Mapping[str, Any]) -> str:
        """An operator is called now: the name of the range around it, "" for none."""
        self.call = None
        if self._n_looks >= _MOST or name in _TELLS_NOTHING:
            return ""
        tensors: list[Any] = []
        plain: list[Any] = []
        for one in (*args, *kwargs.values()) if kwargs else args:
            for part in one if type(one) in _LISTS and len(one) <= _MOST_TENSORS else (one,):
                if type(part) in _TENSORS:
                    if part.requires_grad:  # what is made of what trains is new in each step
                        return ""
                    tensors.append(part)
                else:
                    plain.append(part if type(part) in _PLAIN else _NOT_KNOWN)  # no object of the script's is held
        try:
            return self._asked(name, tensors, plain)
        except Exception:  # noqa: BLE001 - whatever this takes: nothing is said of it
            self.call = None
            return ""

    def note(self, result: Any) -> str:
        """It has given this: the name of the range that says that this is another than it was, "" for none."""
        call, self.call = self.call, None
        is_other = False
        try:
            if call is not None:
                changed = call.changed
                parts = result if isinstance(result, (tuple, list)) else (result,)
                for place, one in enumerate(parts[:_MOST_TENSORS] if changed is None else (changed,)):
                    if type(one) is torch.Tensor and not one.requires_grad:
                        is_other |= self._noted(one, call, (call.key, place))
        except Exception:  # noqa: BLE001, S110 - then it is not known
            pass
        return f"{OTHER_STEP}{call.number}" if is_other and call is not None else ""

    def _asked(self, name: str, tensors: list[Any], plain: list[Any]) -> str:
        if name not in self._names:
            is_random, is_change, is_copy = (one.search(name) is not None for one in (_RANDOM, _IN_PLACE, _MADE_ANEW))
            self._names[name] = (_OTHER if is_random else _SAME, is_change, is_copy)
        state, is_change, is_copy = self._names[name]
        path = self._path(sys._getframe(4))  # noqa: SLF001
        if path is None or in_backward() or torch._C._get_tracing_state() is not None:  # noqa: SLF001
            return ""
        if _NOT_KNOWN in plain:
            state = max(state, _UNKNOWN)
        taken: list[Any] = []
        for one in tensors:
            its_state, *which = self._told(one)
            state = max(state, its_state)
            taken.append(which)
        if is_change and taken[0][0]:  # what lives on is changed: that is no result of the step
            return ""
        given, place = (taken, plain), (path, name)
        self._n_looks += 1
        self._counts[place] = n = self._counts[place] + 1 if place in self._counts else 1
        key = ((place, n), 0)
        before = self._before.get(key)
        number = self._n if before is None else before[2]
        self._n += before is None
        self.call = _Call((place, n), number, state, given, tensors[0] if is_change else None)
        if state == _OTHER or (before is not None and before[0] != given):
            return f"{OTHER_STEP}{number}" if self._step > 1 else ""
        if is_copy or (before is not None and (state != _SAME or before[1] is None)):
            return ""
        return f"{COMPARED if before is None else SAME_STEP}{number}"

    def _told(self, tensor: Any) -> tuple[int, int, Any]:
        """The state of a tensor, its object, 0 of one that this step has made, and where a view lies in it."""
        known = self._look(tensor)
        place = None if known.ref() is tensor else (tensor.storage_offset(), tensor.shape, tensor.stride())
        if known.made == self._step:
            return known.state, 0, place
        at_first = _UNKNOWN if self._step == 1 else _OTHER
        return _SAME if known.since < self._step else at_first, id(known), place

    def _path(self, frame: Any) -> Any:
        """The lines that call the operator; None where an optimizer of torch does."""
        path: tuple[int, ...] = ()
        for _ in range(_FRAMES):
            if frame is None:
                break
            code = frame.f_code
            if code not in self._codes:
                is_skipped = _OPTIMIZERS.search(code.co_filename) is not None
                self._codes[code] = -1 if is_skipped else len(self._codes)
            number = self._codes[code]
            if number < 0:
                return None
            path = (*path, number, frame.f_lasti)
            frame = frame.f_back
        return path

    def _look(self, tensor: Any) -> _Known:
        """What is known of a tensor, or of the one that it is a view of; from now on it is known by what it is now."""
        number, base, version = id(tensor), tensor._base, tensor._version  # noqa: SLF001
        known = self._known.get(number)
        if known is not None and known.ref() is tensor:
            if known.version != version:
                known.version, known.since, known.state = version, self._step + 1, _OTHER
            return known
        if base is not None:
            return self._look(base)
        known = _Known(tensor, made=0, since=self._step, state=_OTHER)
        if len(self._known) < _MOST_KNOWN:
            self._known[number] = known
        return known

    def _noted(self, made: Any, call: _Call, key: Any) -> bool:
        """Keep what the step has made; gives whether it is another than it was, though it is made of the same."""
        number, base, state = id(made), made._base, call.state  # noqa: SLF001
        owner = self._known.get(number if base is None else id(base))
        is_known = owner is not None and owner.ref() is (made if base is None else base)
        if is_known and call.changed is None:  # a view, or what was given and is handed back
            return False
        is_surely_other = state == _OTHER
        value = None if is_surely_other else self._read(made)
        before = self._before.get(key)
        if not is_surely_other and self._step > 1:
            if before is None or before[1] is None or value is None:
                state = _UNKNOWN
            elif before[:2] != (call.given, value):
                state = _OTHER
        self._now[key] = (call.given, value, call.number)
        if owner is not None and is_known:
            owner.version, owner.state = made._version, max(owner.state, state)  # noqa: SLF001
        elif len(self._known) < _MOST_KNOWN:
            self._known[number] = _Known(made, made=self._step, since=self._step + 1, state=state)
        return state == _OTHER and not is_surely_other

    def _read(self, tensor: Any) -> Any:
        """What tells a tensor from another one.

        Of a sparse one, or one with axes in another order, its form: with what it was made of that tells it as well.
        """
        form = (tensor.shape, tensor.dtype, tensor.layout)
        if not tensor.is_cpu:
            return None
        if tensor.layout is not torch.strided or not tensor.is_contiguous():
            return form
        n_bytes, skipped = tensor.nbytes, tensor.element_size() * tensor.storage_offset()
        storage = tensor.untyped_storage()
        if storage.nbytes() < skipped + n_bytes:  # FSDP frees what a rank does not hold
            return None
        first = storage.data_ptr() + skipped
        self._n_bytes += min(n_bytes, _WHOLE)
        if self._n_bytes > _MOST_BYTES:
            return None
        if n_bytes <= _WHOLE:
            return (*form, crc32(ctypes.string_at(first, n_bytes)))
        told = 0
        for number in range(_PIECES):
            told = crc32(ctypes.string_at(first + int(number * _APART % 1 * (n_bytes - _PIECE)), _PIECE), told)
        return (*form, told)
