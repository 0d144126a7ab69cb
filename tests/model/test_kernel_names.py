"""The table of grammars, held against names from real captures and from the libraries' own sources."""

import re
from pathlib import Path

import pytest

from profkit.model import kernel_names
from profkit.model.kernel_names import GRAMMARS, Precision, told, words_of

LINES = [line.split("\t") for line in Path(__file__).with_name("kernel_names.tsv").read_text().splitlines()[1:]]
ON_UNITS = {"yes": True, "no": False, "": None}


@pytest.mark.parametrize(
    ("name", "library", "what", "precision", "sums", "units"),
    [line[:6] for line in LINES],
    ids=[line[0] for line in LINES],
)
def test_what_a_name_tells(name: str, library: str, what: str, precision: str, sums: str, units: str) -> None:
    found = told(name)
    assert (found.library, found.what) == (library, what)
    assert (found.precision or "", found.sums or "") == (precision, sums)
    assert found.on_matrix_units is ON_UNITS[units]


def test_every_row_for_products_explains_a_name_of_the_table() -> None:
    texts = [kernel_names.spelled(line[0]) for line in LINES]
    used = [kernel_names._first(kernel_names._OF_LIBRARIES, text)[0] or kernel_names._of_words(text) for text in texts]
    assert {row.pattern for row in GRAMMARS if row.formats != "none"} <= {row.pattern for row in used if row}


@pytest.mark.parametrize("row", GRAMMARS, ids=lambda row: row.pattern)
def test_rows_are_whole(row: kernel_names.Grammar) -> None:
    whole = row.formats in {"none", *kernel_names._READ_WHOLE}
    assert whole or (words_of(row.formats) and set(words_of(row.formats).values()) <= set(Precision))
    assert row.what in {"", *(other.what for other in GRAMMARS)}
    assert row.sums in {"", *Precision}
    assert row.units in ON_UNITS
    assert row.source
    assert row.keys == row.keys.lower()
    assert row.keys or not row.library


@pytest.mark.parametrize("row", [row for row in GRAMMARS if not row.library], ids=lambda row: row.pattern)
def test_names_that_words_tell_hold_a_key_of_them(row: kernel_names.Grammar) -> None:
    texts = [kernel_names.spelled(line[0]) for line in LINES]
    assert all(any(key in text for key in row.keys.split(",")) for text in texts if re.search(row.pattern, text))


@pytest.mark.parametrize(
    ("mangled", "spelled"),
    [
        ("_ZN5cudnn8winograd4tileILi0EffEEv", "cudnn::winograd::tile::float::float"),
        ("_Z3fooIDF16_DF16btES0_", "foo::half::bf16::unsigned short"),
        ("_ZN12truncated", "truncated"),
        ("_Z", ""),
        ("_Z9", ""),
        ("Plain_Z3foo", "plain_z3foo"),
    ],
)
def test_mangled_names_are_written_out(mangled: str, spelled: str) -> None:
    assert kernel_names.spelled(mangled) == spelled
