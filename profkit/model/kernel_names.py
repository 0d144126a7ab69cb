"""What a kernel's name tells, by the table of grammars in `kernel_names.tsv`: what it is, and how it multiplies.

A row of the table is how one library names one sort of kernel, with the source of that. The first row whose pattern the
name holds counts. Patterns are held against names in lower case, mangled C++ written out. Their groups hold words of
formats: the first that the row's `formats` know is that of the product (the group `instr` comes last), the group `acc`
is that of the sum. Rows without a library go by words alone. `tests/model/kernel_names.tsv` has real names and what
they mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from profkit.redact.later import later


class Precision(StrEnum):
    """The number format in which a matrix kernel multiplies, as its name tells it."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    HALF = "half"
    """fp16 or bf16: the name leaves open which."""
    FP8 = "fp8"
    FP4 = "fp4"
    INT8 = "int8"
    FP64 = "fp64"
    UNKNOWN = "unknown"


COLLECTIVE: Final = "collective"
OTHER: Final = "other"

_WORDS: Final = {
    Precision.FP64: "fp64 f64 double",
    Precision.FP32: "fp32 f32 float",
    Precision.TF32: "tf32 xf32",
    Precision.FP16: "fp16 f16 half",
    Precision.BF16: "bf16 bfloat16 bfloat ushort",
    Precision.FP8: "fp8 e4m3 e5m2 f8 fp8e4nv fp8e5 fp8e4b8",
    Precision.FP4: "fp4 e2m1 f4",
    Precision.INT8: "int8 s8 u8 i8",
}
_LETTERS: Final = {
    # BLAS: single, double, half. Not c and z: complex products are those of FFTs, which convolve fp16 too
    Precision.FP32: "s",
    Precision.FP64: "d",
    Precision.FP16: "h",
    Precision.INT8: "i",
}
# mma.sync's shapes: of 8x8x4 and 32 bits only fp16, of 16x8x4 only tf32, of 16x8x16 fp16 or bf16. 16x8x8 is tf32
# where no word beside it says fp16 or bf16, but on Turing, which has fp16 alone.
_INSTRUCTIONS: Final = {
    Precision.FP16: "h884 s884 h1688 h16816 h161616",
    Precision.TF32: "s1688 s1684",
    Precision.HALF: "s16816 s161616",
    Precision.FP64: "d884",
    Precision.INT8: "i8816 i16816 i16832 i161616",
}
_TENSILE: Final = {
    Precision.FP32: "s c",
    Precision.TF32: "s_mx",
    Precision.FP64: "d z",
    Precision.FP16: "h",
    Precision.BF16: "b",
    Precision.FP8: "f8 b8",
    Precision.FP4: "f4",
    Precision.INT8: "i8 4xi8",
}
_VOCABULARIES: Final = {
    "words": (_WORDS,),
    "letters": (_WORDS, _LETTERS),
    "instructions": (_WORDS, _INSTRUCTIONS),
    "tensile": (_TENSILE,),
    "none": (),
}
_SUMS: Final = {
    **dict.fromkeys(("s", "f32", "fp32", "float"), Precision.FP32),
    **dict.fromkeys(("h", "f16", "fp16"), Precision.FP16),
    **dict.fromkeys(("d", "f64", "double"), Precision.FP64),
}
_MACROS: Final = {
    "INSTRUCTION": r"(?:_(fp16|bf16|f16|tf32|int8|s8|u8))?_(?P<instr>(?P<acc>g?[hsdicz])\d{3,6})(tf32|bf16|f16)?"
    r"(?:gemm|cudnn|fprop|dgrad|wgrad)(?:_[a-z]{2,16}(?=_)){0,3}(?:_(fp16|bf16|f16|tf32|int8|s8|u8)(?=_))?",
    "FORMAT": "tf32|bf16|f16|f32|f64|e4m3|e5m2|s8|u8|i8",
}
# Types in a name, the narrowest first: wider are those of sums and scales. CuTe's integer_subbyte has 1 to 7 bits.
_TYPES: Final = (
    (Precision.FP4, r"e2m1|mxfp4|nvfp4"),
    (Precision.FP8, r"e4m3|e5m2|qgmma|fp8(?!kvcache)|float8|(?<![a-z0-9])b?f8(?![a-z0-9])"),
    (Precision.UNKNOWN, r"integer_subbyte"),
    (Precision.INT8, r"(?<!u)int8|(?<![a-z0-9])i8(?![a-z0-9])|s8_?s8|imma|(?<!un)signed char"),
    (Precision.FP64, r"double(?!_?buf)|f64|dgemm"),
    (Precision.TF32, r"tf32|tfloat32|xf32"),
    (Precision.BF16, r"bf16|bfloat|bhalf"),
    (Precision.FP16, r"fp16|f16|float16|half|hgemm"),
    (Precision.FP32, r"float|f32|fp32|sgemm"),
)
_SHORT: Final = (Precision.BF16, r"unsigned short|bf16|bhalf")
_READ_WHOLE: Final = {
    "types": _TYPES,
    "short": (*_TYPES[:2], _SHORT, *_TYPES[2:]),
    "activations": (*_TYPES[6:8], *_TYPES),  # narrower weights and caches are widened to them before the product
}
# Libraries, argument types and epilogues that sound like work: fbgemm's embedding kernels, cublas parameter structs,
# cutlass's number types, cudnn's descriptors, vLLM's _typeConvert, CuTe's prefix.
_NOISE: Final = later(
    r"fbgemm(?:_gpu)?::|cublas\w{0,200}params|cublasgemv\w+|cutlass\w{0,200}::\w+_t\b|cudnn\w{1,200}(?:struct|_t)\b|_typeconvert"
    r"|^kernel_cutlass_"
)
_NOISE_KEYS: Final = ("fbgemm", "cublas", "cutlass", "cudnn", "_typeconvert")
"""Names with noise hold one of them."""


class KernelName(msgspec.Struct, frozen=True, kw_only=True):
    """What a name tells. Formats are None where nothing is multiplied, `sums` also where the name leaves it open."""

    library: str
    what: str
    """The family: matmul, attention, elementwise, ...; "other" if the name tells nothing."""
    precision: Precision | None = None
    sums: Precision | None = None
    """The number format in which products are summed up."""
    on_matrix_units: bool | None = None
    """Whether tensor cores (AMD: matrix cores) multiply; None where the name leaves it open."""


class Grammar(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table, its columns as they are written there."""

    library: str
    what: str
    """The family; "" where other words of the name tell it."""
    keys: str
    """Texts parted by commas: names of this sort hold one of them, which is faster to look for than the pattern."""
    pattern: str
    formats: str
    """Which formats words stand for: names of vocabularies, and `word=format`; `none` where nothing is multiplied."""
    sums: str
    """The format of the sum, where the names do not tell it and there is only one."""
    units: str
    """Whether matrix units multiply: yes, no, or "" where the name leaves it open."""
    source: str


def _table() -> tuple[Grammar, ...]:
    text = Path(__file__).with_name("kernel_names.tsv").read_text(encoding="utf-8")
    lines = text.splitlines()
    heads = lines[0].split("\t")
    return tuple(Grammar(**dict(zip(heads, line.split("\t"), strict=True))) for line in lines[1:])


GRAMMARS: Final = _table()


@lru_cache
def words_of(formats: str) -> Mapping[str, Precision]:
    """The format of each word that a row's `formats` name; of "" where no word is given."""
    out: dict[str, Precision] = {}
    for part in formats.split():
        word, is_one, name = part.partition("=")
        if is_one:
            out[word] = Precision(name)
        for vocabulary in _VOCABULARIES.get(part, ()):
            out.update((word, precision) for precision, words in vocabulary.items() for word in words.split())
    return out


def _compiled(text: str) -> re.Pattern[str]:
    for name, macro in _MACROS.items():
        text = text.replace(name, macro)
    return later(text)  # few of them are asked for by one trace


_Rows = Sequence[tuple[str, Grammar, re.Pattern[str]]]
_ROWS: Final = tuple(
    (key, grammar, pattern)
    for grammar in GRAMMARS
    for pattern in (_compiled(grammar.pattern),)
    for key in grammar.keys.split(",")
)
_OF_LIBRARIES: Final = tuple(row for row in _ROWS if row[1].library)
_BY_WORDS: Final = tuple(row for row in _ROWS if not row[1].library)
_COLLECTIVES: Final = tuple(row for row in _ROWS if row[1].what == COLLECTIVE)
_WHOLE: Final = {
    name: tuple((precision, later(pattern)) for precision, pattern in types) for name, types in _READ_WHOLE.items()
}


@lru_cache(maxsize=4096)
def told(name: str) -> KernelName:
    """What the name of a kernel or operator tells."""
    text = spelled(name)
    grammar, match = _first(_OF_LIBRARIES, text)
    by_words = _of_words(text) if grammar is None or not grammar.what else None
    grammar = grammar or by_words
    if grammar is None:
        return KernelName(library="", what=OTHER)
    what = grammar.what or (by_words.what if by_words is not None else OTHER)
    if grammar.formats == "none":
        return KernelName(library=grammar.library, what=what)
    return KernelName(
        library=grammar.library,
        what=what,
        precision=_precision(grammar, match, text),
        sums=_sums(grammar, match),
        on_matrix_units={"yes": True, "no": False}.get(grammar.units),
    )


def is_collective(text: str) -> bool:
    """Whether a name in lower case is, by a library's words, what ranks do together."""
    return _first(_COLLECTIVES, text)[0] is not None


def _of_words(text: str) -> Grammar | None:
    is_noisy = any(key in text for key in _NOISE_KEYS)
    return _first(_BY_WORDS, _NOISE.sub("", text) if is_noisy else text)[0]


def _first(rows: _Rows, text: str) -> tuple[Grammar | None, re.Match[str] | None]:
    """The first row whose pattern the text holds, and where."""
    for key, grammar, pattern in rows:
        if key in text and (match := pattern.search(text)):
            return grammar, match
    return None, None


def _precision(grammar: Grammar, match: re.Match[str] | None, text: str) -> Precision:
    if (types := _WHOLE.get(grammar.formats)) is not None:
        return next((precision for precision, pattern in types if pattern.search(text)), Precision.UNKNOWN)
    words = words_of(grammar.formats)
    named = {} if match is None else match.groupdict()
    in_order = () if match is None else (match[group] for group in _groups(match.re))
    known = (words[word] for word in (*in_order, named.get("instr")) if word in words)
    return next(known, words.get("", Precision.UNKNOWN))


@lru_cache
def _groups(pattern: re.Pattern[str]) -> tuple[int, ...]:
    """The groups of a pattern that have no name."""
    return tuple(sorted({*range(1, pattern.groups + 1)} - {*pattern.groupindex.values()}))


def _sums(grammar: Grammar, match: re.Match[str] | None) -> Precision | None:
    word = None if match is None else match.groupdict().get("acc")
    return _SUMS.get(word or "") or (Precision(grammar.sums) if grammar.sums else None)


# Itanium C++ ABI, 5.1: <length><name>, builtin types as letters, what stood before as S_ or S1_, literals as Li128E.
_TOKEN: Final = later(r"(\d{1,5})|L[a-z]n?\d{1,20}E|S[0-9A-Z]{0,6}_|S[a-z]|T\d{0,6}_|DF16_|DF16b|D[a-z]|.")
_BUILTIN: Final = {
    "f": "float",
    "d": "double",
    "t": "unsigned short",
    "a": "signed char",
    "DF16_": "half",
    "DF16b": "bf16",
}


def spelled(name: str) -> str:
    """A name in lower case; of a mangled one its words and types, parted by `::`."""
    return "::".join(_written_out(name)).lower() if name.startswith("_Z") else name.lower()


def _written_out(mangled: str) -> Iterator[str]:
    at = 2
    while at < len(mangled):
        token = _TOKEN.match(mangled, at)
        if token is None:
            return
        at = token.end()
        if token[1]:
            yield mangled[at : at + int(token[1])]
            at += int(token[1])
        elif token[0] in _BUILTIN:
            yield _BUILTIN[token[0]]
