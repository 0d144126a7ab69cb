"""`Signature`: the recorded arguments of an operator."""

from __future__ import annotations

from typing import Any, Final

import msgspec


class Signature(msgspec.Struct, frozen=True):
    """The recorded arguments of an operator, an entry for each argument of its schema, in that order.

    Sizes and strides are in elements, `()` for what is no tensor and for a scalar; of a list of tensors the entry has
    a tuple for each. Types are C++ names ("float", "c10::Half", "Scalar", "TensorList"), "" for none. `concrete` is
    the value of numbers, flags and lists of them as text, else "". Outputs are not recorded.
    """

    dims: tuple[tuple[Any, ...], ...]
    types: tuple[str, ...]
    strides: tuple[tuple[Any, ...], ...] = ()
    concrete: tuple[str, ...] = ()

    @property
    def tensors(self) -> list[tuple[int, ...]]:
        """The shapes of the arguments that are one tensor."""
        return [shape for shape in self.dims if shape and not isinstance(shape[0], tuple)]

    def shape(self, place: int) -> tuple[Any, ...]:
        """An argument's shape, of a list of tensors their shapes; () where it has none."""
        return self.dims[place] if len(self.dims) > place else ()

    def text(self, place: int) -> str:
        """The value of an argument that is no tensor; "" where it was not recorded."""
        return self.concrete[place] if len(self.concrete) > place else ""

    @property
    def shapes(self) -> str:
        """The first tensors' shapes, for a table: "8192x2432, 2432x9728"; "" where no argument is a tensor."""
        sizes = ["x".join(map(str, shape[:_MOST_AXES])) for shape in self.tensors]
        return ", ".join(sizes[:_MOST_SHAPES]) + (", ..." if len(sizes) > _MOST_SHAPES else "")


_MOST_SHAPES: Final = 3
_MOST_AXES: Final = 8
