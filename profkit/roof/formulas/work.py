"""The work of an operator, and how its recorded arguments are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Final, Self

import msgspec

from profkit.model.kernel_names import Precision
from profkit.model.signature import Signature


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What one call of an operator computes and moves at least. None is unknown; 0 is none."""

    family: str
    """As `profkit.model.names.family_of` calls it."""
    flops: int | None
    """A multiplication with an addition is 2. What a causal mask hides is counted, as FlopCounterMode does."""
    least_flops: int | None
    """The same without what a causal mask hides: no implementation needs more."""
    n_bytes: int | None
    """Each element of each operand read once, each of each result written once."""
    precision: Precision
    """The number format of the operands; fp32 products may run in tf32."""

    @property
    def is_matrix(self) -> bool:
        """Whether matrix units can do it: what counts as model FLOPs."""
        return self.family in MATRIX_FAMILIES

    @classmethod
    def of(cls, family: str, flops: int | None, n_bytes: int, kind: str) -> Self:
        """Work on operands of one type, of which nothing can be left out."""
        return cls(family=family, flops=flops, least_flops=flops, n_bytes=n_bytes, precision=precision(kind))


Formula = Callable[[Signature], Work | None]

MATRIX_FAMILIES: Final = ("matmul", "convolution", "attention")

Shape = tuple[int, ...]

# C++ names of element types as torch.profiler writes them: size in bytes, number format, rank in type promotion.
_TYPES: Final = {
    "bool": (1, Precision.UNKNOWN, 0),
    "unsigned char": (1, Precision.UNKNOWN, 1),
    "signed char": (1, Precision.INT8, 1),
    "short int": (2, Precision.UNKNOWN, 2),
    "short": (2, Precision.UNKNOWN, 2),
    "int": (4, Precision.UNKNOWN, 3),
    "long int": (8, Precision.UNKNOWN, 4),
    "long": (8, Precision.UNKNOWN, 4),
    "c10::Float8_e4m3fn": (1, Precision.FP8, 5),
    "c10::Float8_e4m3fnuz": (1, Precision.FP8, 5),
    "c10::Float8_e5m2": (1, Precision.FP8, 5),
    "c10::Float8_e5m2fnuz": (1, Precision.FP8, 5),
    "c10::Half": (2, Precision.FP16, 6),
    "c10::BFloat16": (2, Precision.BF16, 6),
    "float": (4, Precision.FP32, 7),
    "double": (8, Precision.FP64, 8),
    "c10::complex<float>": (8, Precision.UNKNOWN, 9),
    "c10::complex<double>": (16, Precision.UNKNOWN, 10),
}
# torch's ScalarType as recorded numbers have it.
_SCALAR_TYPES: Final = {
    0: "unsigned char",
    1: "signed char",
    2: "short int",
    3: "int",
    4: "long int",
    5: "c10::Half",
    6: "float",
    7: "double",
    11: "bool",
    15: "c10::BFloat16",
    23: "c10::Float8_e5m2",
    24: "c10::Float8_e4m3fn",
    25: "c10::Float8_e5m2fnuz",
    26: "c10::Float8_e4m3fnuz",
}


def is_tensor(signature: Signature, place: int) -> bool:
    """Whether an argument is one tensor."""
    return place < len(signature.types) and signature.types[place] in _TYPES


def shape(signature: Signature, place: int) -> Shape:
    """The shape of a tensor argument; raises ValueError if it is none."""
    if not is_tensor(signature, place):
        raise ValueError(f"argument {place} is no tensor")
    return tuple(map(int, signature.dims[place]))


def tensors(signature: Signature) -> tuple[int, ...]:
    """The places of the tensors among the arguments; a number that was made one is left out."""
    return tuple(
        place
        for place in range(len(signature.types))
        if is_tensor(signature, place)
        and (signature.dims[place] or signature.types[place] not in {"double", "long int"})
    )


def stored(signature: Signature, place: int) -> int:
    """How many different elements a tensor has: those that `expand` repeats (stride 0) count once."""
    sizes = shape(signature, place)
    strides: Sequence[int] = signature.strides[place] if place < len(signature.strides) else ()
    if len(strides) != len(sizes) or 0 not in strides:
        return prod(sizes)
    return prod(size for size, stride in zip(sizes, strides, strict=True) if stride or not size)


def read(signature: Signature, *places: int) -> int:
    """The bytes of these arguments, each element once; an argument that was not given has none."""
    return sum(
        stored(signature, place) * size_of(signature.types[place]) for place in places if is_tensor(signature, place)
    )


def size_of(kind: str) -> int:
    """Bytes of an element; raises ValueError for a type that is not known."""
    if kind not in _TYPES:
        raise ValueError(f"unknown type {kind}")
    return _TYPES[kind][0]


def precision(kind: str) -> Precision:
    """The number format of a type."""
    return _TYPES[kind][1] if kind in _TYPES else Precision.UNKNOWN


def precision_of_parts(kind: str) -> Precision:
    """The number format of a type, of a complex one that of its two parts."""
    return precision(kind.removeprefix("c10::complex<").removesuffix(">"))


def promoted(kinds: Iterable[str]) -> str:
    """The type of what comes out of operands of these types: fp16 with bf16 gives fp32."""
    known = [kind for kind in kinds if kind in _TYPES]
    highest = max(known, key=lambda kind: _TYPES[kind][2])
    halves = {kind for kind in known if _TYPES[kind][2] == _TYPES["c10::Half"][2]}
    return "float" if len(halves) > 1 and highest in halves else highest


def type_said(signature: Signature, place: int) -> str | None:
    """The type that an argument names (`dtype`), None where it names none."""
    text = signature.concrete[place] if place < len(signature.concrete) else ""
    return _SCALAR_TYPES.get(int(text)) if text.isdigit() else None


def numbers(signature: Signature, place: int, n: int = 0) -> tuple[int, ...]:
    """A list of integers among the arguments, "[1, 1]"; one number stands for `n` of them. Raises ValueError."""
    text = signature.concrete[place].strip()
    if not (text.startswith("[") and text.endswith("]")):
        raise ValueError(f"argument {place} is no list: {text!r}")
    found = tuple(int(part) for part in text[1:-1].split(",") if part.strip())
    return found * n if len(found) == 1 and n else found


def flags(signature: Signature, place: int) -> tuple[bool, ...]:
    """A list of truth values among the arguments: "[True, False]"."""
    return tuple(part.strip() == "True" for part in signature.concrete[place].strip("[] ").split(","))


def is_true(signature: Signature, place: int) -> bool:
    """A truth value among the arguments; raises ValueError where it was not recorded."""
    text = signature.concrete[place]
    if text not in {"True", "False"}:
        raise ValueError(f"argument {place} is no truth value: {text!r}")
    return text == "True"


def broadcast(shapes: Iterable[Shape]) -> Shape:
    """The shape that tensors of these shapes have together; raises ValueError where they do not fit."""
    out: list[int] = []
    for sizes in shapes:
        out = [1] * (len(sizes) - len(out)) + out
        for place, size in enumerate(sizes, len(out) - len(sizes)):
            if size != out[place] and 1 not in {size, out[place]}:
                raise ValueError("shapes do not broadcast")
            out[place] = size if out[place] == 1 else out[place]
    return tuple(out)
