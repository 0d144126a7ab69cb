"""`Signature`: the recorded arguments of an operator."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import msgspec

_MOST_ELEMENTS: Final = 2**63 - 1
"""torch counts the elements of a tensor in int64."""


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
        return [shape for shape in self.dims if shape and is_shape(shape)]

    def shape(self, place: int) -> tuple[int, ...]:
        """An argument's shape; () of what is not one tensor with at least one axis."""
        return next((shape for shape in self.dims[place : place + 1] if is_shape(shape)), ())

    def listed(self, place: int) -> tuple[tuple[int, ...], ...]:
        """The shapes of an argument that is a list of tensors, () for one without axes; () of others."""
        return next((shapes for shapes in self.dims[place : place + 1] if all(map(is_shape, shapes))), ())

    def text(self, place: int) -> str:
        """The value of an argument that is no tensor; "" where it was not recorded."""
        return self.concrete[place] if len(self.concrete) > place else ""

    @property
    def shapes(self) -> str:
        """The first tensors' shapes, for a table: "8192x2432, 2432x9728"; "" where no argument is a tensor."""
        sizes = ["x".join(map(str, shape[:_MOST_AXES])) for shape in self.tensors]
        return ", ".join(sizes[:_MOST_SHAPES]) + (", ..." if len(sizes) > _MOST_SHAPES else "")


def is_shape(value: object) -> bool:
    """Whether a tensor can have these sizes: none below zero, and no more elements than torch counts."""
    return (
        isinstance(value, tuple)
        and all(isinstance(size, int) and size >= 0 for size in value)
        and prod(size or 1 for size in value) <= _MOST_ELEMENTS
    )


_MOST_SHAPES: Final = 3
_MOST_AXES: Final = 8
