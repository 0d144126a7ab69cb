"""The judge of field captures on reports that profkit prints."""

import json
from collections import Counter
from typing import Any

import pytest

from analyses.field.registry import Pair, names_twice, read_registry
from analyses.field.score import of_pair
from profkit.findings.capture import READ
from tests.conftest import ROOT


def golden(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "tests" / "goldens" / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("kind", "saving", "compare"),
    [("loader", 0.52, "right"), ("fused-optimizer", 0.52, "partly"), ("loader", 0.1, "partly"), ("amp", -0.3, "wrong")],
)
def test_a_comparison_is_right_by_its_size_and_by_what_it_reads(kind: str, saving: float, compare: str) -> None:
    """Two workers took 51.9 % of the step away."""
    pair = Pair(name="workers", before="a", after="b", change="num_workers=2", change_kind=kind, saving=saving)
    assert of_pair(pair, golden("data_cpu.json"), golden("compare/data_workers2_cpu.json")).compare == compare


def test_confidence_on_gpus_counts_the_captures_of_the_registry() -> None:
    counted = Counter((one.vendor, one.kind) for batch in read_registry() for one in batch.captures)
    assert {pair: counted[pair] for pair in READ} == dict(READ)
    assert not names_twice(read_registry())
