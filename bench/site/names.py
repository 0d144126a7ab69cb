"""The page of kernels' names: the table of grammars by library, and real names with what they tell."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from profkit.model.kernel_names import GRAMMARS, Grammar, told

_EXAMPLES: Final = Path(__file__).resolve().parents[2] / "tests" / "model" / "kernel_names.tsv"
_LONGEST: Final = 90
_UNITS: Final = {"yes": "on tensor or matrix cores", "no": "outside tensor cores", "": "where, the name does not tell"}
_FORMATS: Final = {
    "types": "the narrowest type that the name holds",
    "short": "the narrowest type that the name holds; `unsigned short` is bf16",
    "activations": "fp16 or bf16 if the name holds it, else the narrowest type",
    "words": "named in the name",
    "letters": "named, else BLAS' letter",
    "tensile": "Tensile's letters: H, B, S, D, F8, B8, I8; S_MX is tf32",
    "=unknown": "not told",
}


def page() -> str:
    """The page's text."""
    parts = [
        "# Names of kernels",
        "This page is made from `profkit/model/kernel_names.tsv`: how libraries name their kernels, and what profkit reads in"
        " it. The format is that in which operands are multiplied, `sums` that in which products are added up. Where"
        " fp16 and bf16 are both possible profkit says `half`; what no row explains, `profkit info` counts. The first"
        " row that fits counts. A name is compared in lower case, mangled C++ written out.",
    ]
    libraries = list(dict.fromkeys(grammar.library for grammar in GRAMMARS))
    for library in libraries:
        rows = [grammar for grammar in GRAMMARS if grammar.library == library]
        parts.append(f"## {library or 'All others, by their words'}\n\n{chr(10).join(_rows(rows))}")
        if names := list(_examples(library)):
            parts.append("\n".join(names))
    return "\n\n".join(parts) + "\n"


def _rows(rows: Iterable[Grammar]) -> Iterable[str]:
    for row in rows:
        what = row.what or "what its words say"
        product = f"; {_formats(row.formats)}; {_UNITS[row.units]}" if row.formats != "none" else ""
        yield f"- **{what}**: `{row.pattern}`{product}. Source: {row.source}."


def _formats(formats: str) -> str:
    if formats in _FORMATS:
        return _FORMATS[formats]
    pairs = [part.partition("=") for part in formats.split()]
    told_by = [f"`{word}` is {name}" if name else "the words and the matrix instruction" for word, _, name in pairs]
    return ", ".join(told_by)


def _examples(library: str) -> Iterable[str]:
    for line in _EXAMPLES.read_text(encoding="utf-8").splitlines()[1:]:
        name, of, *_ = line.split("\t")
        found = told(name)
        if of == library and found.precision is not None:
            short = name if len(name) <= _LONGEST else name[: _LONGEST - 3] + "..."
            sums = f", sums in {found.sums}" if found.sums else ""
            yield f"    {short}: {found.precision}{sums}"
