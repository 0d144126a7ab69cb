"""What is computed of the very tensors of which it was computed before in the same step: ranges mark all but the first.

A tensor is known by the object and its count of changes in place, or by what it was made of: where a function makes the
same each time, what it makes of the same tensors is the same. Runs in the traced process: standard library and torch
only.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from itertools import count
from typing import Any, Final, NamedTuple

import torch
from torch.autograd.profiler import record_function

from ..exits import in_backward

SAME_TENSORS: Final = "profkit: of the same tensors"
"""Behind it stands a number for what is computed, and, of a parametrization, what it makes by which class."""
PARAMETRIZATION: Final = "parametrization "
_PRODUCTS: Final = "linear conv1d conv2d conv3d matmul __matmul__ __rmatmul__ mm bmm mv addmm baddbmm einsum"
PRODUCTS: Final = frozenset(_PRODUCTS.split())
_BY_NUMBER: Final = (
    "add sub mul div neg pow square sqrt rsqrt reciprocal exp log log10 log2 log1p sin cos tanh sigmoid softplus relu"
    " gelu silu abs clamp __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __pow__ __neg__"
    " softmax log_softmax sum mean norm linalg_norm linalg_vector_norm"
    " embedding layer_norm rms_norm group_norm logsigmoid"
)
_ATTENTION: Final = "scaled_dot_product_attention"
"""Makes the same each time where it drops nothing."""
_MATRICES: Final = (
    "tril triu diag cat stack clone detach contiguous reshape to float int inverse linalg_inv linalg_solve matrix_exp"
    " linalg_matrix_exp linalg_solve_triangular linalg_qr linalg_cholesky linalg_eigh linalg_svd linalg_lu_factor"
    " linalg_slogdet linalg_householder_product orgqr _weight_norm fft_fft fft_rfft"
)
_MAKES_THE_SAME: Final = PRODUCTS | frozenset(f"{_BY_NUMBER} {_MATRICES}".split())
_BY_SIZE: Final = frozenset(("eye", "zeros", "ones", "new_zeros", "new_ones"))
"""Of a parametrization alone: elsewhere such a tensor may be a buffer that numpy fills."""
_ENDS: Final = "backward"
"""What changes weights comes behind it: what was multiplied before may be another product."""
_PLAIN: Final = (
    *(int, float, complex, str, slice, type(None), type(...)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
_MOST: Final = 10_000
_MOST_NUMBERS: Final = 1000
"""Chosen: more than a step repeats; what comes behind them has the last one's. A loss of 24 permutations has 200."""
_MOST_FRAMES: Final = 12
_GETTERS: Final = {
    ("parametrize.py", "get_parametrized"): ("tensor_name", "parametrization"),
    ("weight_norm.py", "__call__"): ("self", "module"),
}
"""Functions of `torch.nn.utils` that compute a weight each time that it is read, and where they keep which one."""


class _Known(NamedTuple):
    tensor: weakref.ref[Any]
    version: int
    at: int
    value: int


class SameInputs:
    """What a step has computed so far, by what it was made of; no tensor is held."""

    def __init__(self) -> None:
        self._tensors: dict[int, _Known] = {}
        self._values: dict[Any, int] = {}
        self._again: dict[int, int] = {}
        self._next = count()

    def forget(self) -> None:
        """A step ends."""
        self._tensors.clear()
        self._values.clear()
        self._again.clear()

    def call(self, function: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """What the function makes of these; in a range, where it was made before of the same tensors."""
        name = getattr(function, "__name__", "")
        if name == _ENDS:
            self.forget()
        value, mark = None, ""
        try:
            if name in _MAKES_THE_SAME or name in _BY_SIZE or (name == _ATTENTION and not _drops(args, kwargs)):
                value, mark = self._value((name, torch.is_grad_enabled(), *args, *kwargs.items()), name in _BY_SIZE)
        except Exception:  # noqa: BLE001, S110 - whatever tensor this is: nothing is said of it
            pass
        if mark:
            with record_function(mark):
                made = function(*args, **kwargs)
        else:
            made = function(*args, **kwargs)
        if value is not None:
            self._note(made, value)
        return made

    def _value(self, given: tuple[Any, ...], is_by_size: bool) -> tuple[int | None, str]:
        """The number of what is computed, None where it is not known; the name of its range, "" for the first time."""
        if in_backward() or torch.jit.is_tracing():  # a checkpoint computes again on purpose
            return None, ""
        if is_by_size and not _parametrization():
            return None, ""
        key = tuple(map(self._told, given))
        value = self._values.get(key)
        if value is None:
            if len(self._values) >= _MOST:
                return None, ""
            self._values[key] = value = next(self._next)
            return value, ""
        number = self._again.setdefault(value, min(len(self._again), _MOST_NUMBERS))
        whose = _parametrization()
        return value, f"{SAME_TENSORS} {number}" + (f": {PARAMETRIZATION}{whose}" if whose else "")

    def _told(self, one: Any) -> Any:
        """What an argument is known by; of a view by the tensor that it is a view of. Raises where it is not known."""
        if isinstance(one, (tuple, list)):
            return tuple(map(self._told, one))
        if not isinstance(one, torch.Tensor):
            if not isinstance(one, _PLAIN):
                raise TypeError  # an object of the script's own, which would be kept until the step ends
            return type(one), one
        owner = one._base if one._base is not None else one  # noqa: SLF001
        if type(one) not in (torch.Tensor, torch.nn.Parameter) or not _is_torchs(one):
            raise TypeError
        known = self._known(owner)
        if known is None:
            known = self._keep(owner, next(self._next))
        return known.value, one.data_ptr() - known.at, one.shape, one.stride(), one.dtype

    def _known(self, tensor: Any) -> _Known | None:
        """What is known of it, if nobody has changed it since."""
        known = self._tensors.get(id(tensor))
        is_same = known is not None and known.tensor() is tensor
        return known if is_same and known[1:3] == (tensor._version, tensor.data_ptr()) else None  # type: ignore[index]  # noqa: SLF001

    def _keep(self, tensor: Any, value: int) -> _Known:
        if len(self._tensors) >= _MOST:
            raise MemoryError
        known = _Known(weakref.ref(tensor), tensor._version, tensor.data_ptr(), value)  # noqa: SLF001
        self._tensors[id(tensor)] = known
        return known

    def _note(self, made: Any, value: int) -> None:
        """What was made is known by how, a product of many rows by what lies below; not what was given."""
        try:
            parts = made if isinstance(made, (tuple, list)) else (made,)
            for place, one in enumerate(parts):
                if type(one) is not torch.Tensor:
                    continue
                owner = one._base if one._base is not None else one  # noqa: SLF001
                if self._known(owner) is None:
                    self._keep(owner, self._values.setdefault((value, place), next(self._next)))
        except Exception:  # noqa: BLE001, S110 - then it is known as an object
            pass


def _drops(args: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether attention drops some of its weights at random."""
    return bool(kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0))


def _parametrization() -> str:
    """What of a module is computed now by a parametrization, and by which class; "" where none runs."""
    frame: Any = sys._getframe(3)  # noqa: SLF001
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        names = _GETTERS.get((code.co_filename.rpartition("/")[2].rpartition("\\")[2], code.co_name))
        if names is not None:
            return _whose(*(frame.f_locals.get(name) for name in names))
        frame = frame.f_back
    return ""


def _whose(first: Any, second: Any) -> str:
    """From a getter's tensor name and list of parametrizations, or from the hook of `weight_norm`."""
    if not isinstance(first, str):
        return f"{getattr(first, 'name', 'weight')} by the hook of weight_norm"
    return f"{first} by {type(second[0]).__name__.lstrip('_')}"


def _is_torchs(tensor: Any) -> bool:
    """Whether nobody writes to it but torch, which counts that: not numpy, not another process."""
    return tensor.grad_fn is not None or tensor.untyped_storage().resizable()
