"""Real captures whose truth was read before: no verdict is wrong, and no advice or comparison worse than it was.

The files are others', beside this checkout or not at all; what is missing is skipped by its name.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from analyses.field import kernels, score
from analyses.field.registry import REGISTRY, read_batch
from profkit.api import triage
from profkit.compare.captures.sides import Side, read_side
from profkit.compare.comparison import compare
from profkit.ingest.ncu.reader import read_profiles
from profkit.kernels.assess import assess_all
from profkit.render.json import compare as compare_json
from profkit.render.json import kernels as kernels_json
from profkit.render.json import triage as triage_json
from tests.conftest import SHARED_TRACES

KNOWN = read_batch(REGISTRY / "known.toml")
LEFT = {
    "dictlearn-a40": score.OPEN,
    "gec-copying": score.PARTLY,
    "kernelforge-t4": score.PARTLY,
    "nersc-sc21-4-amp": score.PARTLY,
    "nersc-sc21-5-fusedadam-jit": score.PARTLY,
    "sam2-amg-1-69bf": score.PARTLY,
    "solangii-4060": score.OPEN,
}
"""Captures that are not told right yet, and how they are told; all others are."""
ADVICE = {
    "nersc-sc21-broadcast-buffers-off": "missing",
    "nersc-sc21-bucket100": "missing",
    "nersc-sc21-fusedadam-jit": "alternative",
    "sam2-amg-compile": "listed",
    "sam2-amg-process-batches": "missing",
}
"""Pairs whose change is not the first advice yet; of all others it is."""
VERDICTS = (score.OPEN, score.PARTLY, score.RIGHT)
ADVISED = ("missing", "listed", "alternative", "change")
pytestmark = pytest.mark.shared


def files(name: str) -> tuple[Path, ...]:
    found = KNOWN.by_name[name].found(SHARED_TRACES.parent)
    return found or pytest.skip(f"{name}: not beside this checkout")


@cache
def triaged(name: str) -> dict[str, Any]:
    return json.loads(triage_json.render(triage([str(path) for path in files(name)])))


@cache
def side(role: str, name: str) -> Side:
    return read_side(role, [str(path) for path in files(name)])


@pytest.mark.parametrize("name", [one.name for one in KNOWN.captures if one.kind != "ncu"])
def test_no_verdict_is_wrong_or_worse(name: str) -> None:
    found = score.of_capture(KNOWN.by_name[name], triaged(name))
    assert VERDICTS.index(found.score) >= VERDICTS.index(LEFT.get(name, score.RIGHT)), found.why


@pytest.mark.parametrize("pair", KNOWN.pairs, ids=lambda pair: pair.name)
def test_no_advice_and_no_comparison_is_worse(pair) -> None:
    comparison = compare(side("baseline", pair.before), side("candidate", pair.after))
    found = score.of_pair(pair, triaged(pair.before), json.loads(compare_json.render(comparison)))
    assert ADVISED.index(found.advice) >= ADVISED.index(ADVICE.get(pair.name, "change"))
    assert found.compare == score.RIGHT, found.why


@pytest.mark.parametrize("name", [one.name for one in KNOWN.captures if one.kind == "ncu"])
def test_first_advice_on_a_launch_follows_nvidia_or_the_expert(name: str) -> None:
    pytest.importorskip("ncu_report")
    source = str(files(name)[0])
    report = json.loads(kernels_json.render(assess_all(read_profiles(source).profiles, sources=[source], warnings=[])))
    launches = kernels.scored(KNOWN.by_name[name], report)
    assert launches
    assert all(one.is_sound for one in launches if one.is_settled)
