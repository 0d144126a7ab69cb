"""The table of peaks in docs/roof.md is the one of the program."""

from profkit.roof.roofline import _TABLE
from tests.conftest import ROOT


def peaks_table():
    headers = ("device", "fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "GB/s", "MiB", "source")
    rows = [
        (name, *(f"{rate:g}" if rate else "-" for rate in rates), f"{giga:g}", f"{mebi:g}", source)
        for _, name, rates, giga, mebi, source in _TABLE
    ]
    rule = "|".join(["---", *["---:"] * 9, "---"])
    lines = [f"| {' | '.join(cells)} |" for cells in (headers, *rows)]
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])


def test_the_document_has_the_peaks_of_the_program():
    assert peaks_table() in (ROOT / "docs/roof.md").read_text(encoding="utf-8")
