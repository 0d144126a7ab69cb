"""What is committed of the published recipe follows from its runs, where these lie beside the project."""

import json
import math
import xml.etree.ElementTree as ET

import pytest

from analyses.vlm_recipe import published

SVG = "{http://www.w3.org/2000/svg}"
TOTALS = {"small, stage 1": 6.86, "small, stage 2": 2.95, "large, stage 1": 6.73, "large, stage 2": 2.09}


@pytest.fixture(scope="module", name="results")
def _results():
    return json.loads((published.OUT / "results.json").read_text(encoding="utf-8"))


def test_the_committed_totals_are_the_published_ones_and_factors_multiply_to_them(results):
    assert {one["name"]: round(one["total"], 2) for one in results["ladders"]} == TOTALS
    for one in results["ladders"]:
        factors = [rung["over_before"] for rung in one["rungs"][1:]]
        assert math.prod(factors) == pytest.approx(one["total"], rel=1e-4)
        assert "no interval" in one["sentence"]


def test_the_runs_are_not_shipped(results):
    text = json.dumps(results)
    assert '"runs":' not in text
    assert max(len(one["front"]) for one in results["ladders"]) < min(one["n_cells"] for one in results["ladders"])


def test_the_charts_of_memory_draw_the_fronts_and_no_other_cell(results):
    fronts = {one["name"]: len(one["front"]) for one in results["ladders"]}
    for model in ("small", "large"):
        root = ET.parse(published.OUT / f"memory_{model}.svg").getroot()  # noqa: S314 - our own charts
        marks = [one for one in root if one.get("class", "").startswith("fill ")]
        n_circles = sum(one.tag == f"{SVG}circle" for one in marks)
        in_legend = 1
        assert n_circles == fronts[f"{model}, stage 1"] + in_legend
        assert len(marks) - n_circles == fronts[f"{model}, stage 2"] + in_legend


def test_the_committed_charts_are_whole():
    charts = sorted(published.OUT.glob("*.svg"))
    assert [chart.name for chart in charts] == ["ladder.svg", "memory_large.svg", "memory_small.svg"]
    for chart in charts:
        root = ET.fromstring(chart.read_text(encoding="utf-8"))  # noqa: S314 - our own charts
        assert root.tag == f"{SVG}svg"


@pytest.mark.shared
def test_what_is_committed_follows_from_the_runs(results):
    found = published.reanalysed()
    if found is None:
        pytest.skip("no seed studies beside this checkout")
    values, text, charts = found
    assert json.loads(json.dumps(values)) == results
    assert text == (published.OUT / "ladder.txt").read_text(encoding="utf-8")
    for name, chart in charts.items():
        assert chart == (published.OUT / name).read_text(encoding="utf-8")
