"""Every pattern that profkit holds against text of a file takes time in proportion to that text, whatever it says."""

import importlib
import json
import pkgutil
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import profkit
from profkit.compare.tables.result_tables import read_records
from profkit.errors import TraceFormatError
from profkit.ingest.ncu import values as ncu_values
from profkit.ingest.texts import LONGEST_TEXT
from profkit.model import names
from profkit.redact.later import Later

LONGEST_S = 2.0
"""For a text as long as a name may be: ten times what the slowest takes, a tenth of a quadratic pattern's time."""
UNITS = (
    *("cudnn", "flashinfer", "cublas", "cutlass", "attn", "(", "<", " ", "a", "1", "_", "-", "=", ":", "::", ",", "\n"),
    *("cask_", "compute", "ck::", "KEY", "cijk_", "cijk_a", "_v1", "1 ", "1, ", "--- ", "a1_", "functor", "symm_mem::"),
    *("step ", "step  ", "cudaMemcpy_v1", "data ", "a::", "triton_poi_", "opt ", "[[1, "),
    *('"name": "profkit.tokens"', "'mod': 'a' ", "step ", "[", '"', "\\", ", Context 1", "=1", "rank1", "https://a@"),
)

WHOLE = (
    "profkit.ingest.ncu.text_page._DASHES",
    "profkit.ingest.nsys.nvtx._STEP",
    "profkit.ingest.nsys.nvtx._OPTIMIZER",
    "profkit.ingest.nsys.nvtx._LOADER",
    "profkit.ingest.kineto.split._ARRAY_START",
    "profkit.redact.commands._ASSIGNMENT",
    "profkit.redact.assignments._NEXT_KEY",
    "profkit.redact.assignments._OPENING",
    "profkit.redact.commands._PROGRAM",
    "profkit.redact.commands._VARIABLE",
    "profkit.shell._NO_PROGRAM",
)
"""Patterns that are held against a whole text or its beginning alone."""
BOUNDED = (
    "profkit.redact.metadata._OF_ENVIRONMENT",
    "profkit.ingest.ncu.csv_page.METRIC_NAME",
    "profkit.ingest.ncu.values.METRIC_NAME",
    "profkit.compare.tables.headings.",
)
"""Patterns whose text is bounded before: labels of metrics, headings of tables, keys of metadata."""


def found_in(value: object, depth: int = 0) -> Iterator[re.Pattern[str] | re.Pattern[bytes]]:
    if isinstance(value, Later):
        yield value.compiled
    elif isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (tuple, list, dict)) and depth < 3:
        for item in value.values() if isinstance(value, dict) else value:
            yield from found_in(item, depth + 1)


def patterns() -> dict[str, re.Pattern[str] | re.Pattern[bytes]]:
    found = {}
    for module in pkgutil.walk_packages(profkit.__path__, "profkit."):
        if module.name.startswith(("profkit.capture", "profkit.__main__", "profkit.testing")):
            continue  # what a capture reads is its own machine's
        for name, value in vars(importlib.import_module(module.name)).items():
            for number, pattern in enumerate(found_in(value)):
                found.setdefault(f"{pattern.pattern!r}", (f"{module.name}.{name}.{number}", pattern))
    return dict(found.values())


PATTERNS = patterns()


def texts(length: int) -> list[str]:
    """Each unit repeated, also with a beginning and an end that fit nothing."""
    long = [(unit * length)[: length - 1] for unit in UNITS]
    return [*long, *(f"1{text[:-1]}!" for text in long)]


SHORT = texts(LONGEST_TEXT // 8)
LONG = texts(LONGEST_TEXT)


def seconds(name: str, text: str) -> float:
    """CPU time of one search."""
    pattern = PATTERNS[name]
    given = text.encode() if isinstance(pattern.pattern, bytes) else text
    begun = time.process_time()
    if name.startswith(WHOLE):
        pattern.fullmatch(given)
        pattern.match(given)
    else:
        pattern.search(given)
    return time.process_time() - begun


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_takes_time_in_proportion(name: str) -> None:
    """What takes less than 2 ms for an eighth of the text takes less than 1 s for all of it, were it cubic."""
    if name.startswith(BOUNDED):
        return
    slow = [place for place, text in enumerate(SHORT) if seconds(name, text) > 0.002]
    assert sum(seconds(name, LONG[place]) for place in slow) < LONGEST_S * len(UNITS) / 10


def test_a_quadratic_pattern_takes_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PATTERNS, "quadratic", re.compile(r"(?:a1_)+(?=x)|[(<]+(?=x)"))
    assert max(seconds("quadratic", text) for text in SHORT) > 0.002
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.LONGEST_S", 0.001)
        patch.setattr(f"{__name__}.LONG", SHORT)
        with pytest.raises(AssertionError):
            test_a_pattern_takes_time_in_proportion("quadratic")


@pytest.mark.parametrize("unit", UNITS)
def test_what_a_name_stands_for_is_found_at_once(unit: str) -> None:
    name = (unit * LONGEST_TEXT)[:LONGEST_TEXT]
    begun = time.perf_counter()
    names.kind_of(name, is_copy=False)
    for answer in (names.precision_of, names.family_of, names.call_kind_of, names.span_kind_of, names.function_name):
        answer(name)
    names.short_name(name)
    assert time.perf_counter() - begun < LONGEST_S


def test_headings_of_tables_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text(f"step_ms,{'steps_' * 50}\n1,2\n")
    (tmp_path / "wide.json").write_text(json.dumps([{"step_ms": 1, "steps_" * 50: 2}]))
    for name in ("wide.csv", "wide.json"):
        with pytest.raises(TraceFormatError, match="heading of 300 characters"):
            read_records(tmp_path / name)


def test_a_label_of_a_metric_is_bounded() -> None:
    begun = time.perf_counter()
    assert ncu_values.metric_for("a" * 2**20, "") == ""
    assert time.perf_counter() - begun < LONGEST_S
