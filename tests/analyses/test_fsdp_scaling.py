"""The published numbers of the FSDP study follow from its committed timings, and its charts are whole."""

import json
import xml.etree.ElementTree as ET

import pytest

from analyses.fsdp_scaling import here, published, runs, tables
from analyses.svg import Axes, Point, Series, bar_chart, interval_chart, line_chart
from tests.conftest import ROOT

STUDY = ROOT / "analyses" / "fsdp_scaling"
SVG = "{http://www.w3.org/2000/svg}"
AXES = Axes(title="a & b", x_label="ranks", y_label="tokens/s")


def parsed(text):
    return ET.fromstring(text)  # noqa: S314 - our own charts


@pytest.fixture(scope="module")
def results():
    return json.loads((STUDY / "results.json").read_text(encoding="utf-8"))


def test_the_results_are_those_of_the_timings(results):
    values, text = here.analysed(STUDY / "timings.csv", STUDY / "twins.csv")
    assert values["cells"] == results["here"]["cells"]
    assert [(one["what"], one["effect"]) for one in values["changes"]] == [
        (one["what"], one["effect"]) for one in results["here"]["changes"]
    ]
    assert text.count("the same once more") == 2


def test_every_cell_was_run_as_often_and_did_the_same_work(results):
    assert len(results["here"]["cells"]) == sum(not cell.is_twin for cell in runs.CELLS)
    assert {cell["n"] for cell in results["here"]["cells"]} == {results["here"]["blocks"]}
    assert results["here"]["blocks"] >= 4
    assert results["here"]["largest_loss_difference"] < 1e-4


def test_a_cell_takes_the_global_batch_on_any_number_of_ranks(tmp_path):
    for cell in runs.CELLS:
        command = cell.command(tmp_path, n_steps=9)
        batch, accumulation = (int(command[command.index(flag) + 1]) for flag in ("--batch", "--accumulation"))
        assert cell.n_ranks * batch * accumulation == runs.GLOBAL_BATCH


def test_the_published_study_is_reproduced_from_its_runs(shared_traces):
    values, text = published.reanalysed()
    plain, checkpointed = values["scaling"]["series"]
    assert [round(one["points"][-1]["speedup"], 2) for one in (plain, checkpointed)] == [5.80, 4.07]
    assert [round(one["points"][-1]["efficiency"], 2) for one in (plain, checkpointed)] == [1.45, 1.02]
    assert plain["standing"] == "accused"
    assert values["prefetch"]["answer"] == "inconclusive"
    assert values["prefetch"]["interval"] == pytest.approx((-0.082, 0.016), abs=5e-4)
    assert "INCONCLUSIVE" in text
    assert not any("runs" in point for series in values["scaling"]["series"] for point in series["points"])


def test_the_readme_holds_the_tables_of_the_results(results):
    text = (STUDY / "README.md").read_text(encoding="utf-8")
    inside = text.partition(tables.BEGIN)[2].partition(tables.END)[0]
    numbers = [word.strip("|") for word in inside.split()]
    assert results["here"]["cells"]
    for cell in results["here"]["cells"]:
        assert f"{cell['mean']:,.0f}" in numbers


def test_tables_replace_what_is_between_the_marks_alone(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n")
    tables.put_between_marks(path, "new")
    assert path.read_text() == f"before\n{tables.BEGIN}\n\nnew\n{tables.END}\nafter\n"
    path.write_text("no marks")
    with pytest.raises(ValueError, match="has no line"):
        tables.put_between_marks(path, "new")


def test_the_committed_charts_are_whole():
    charts = sorted(STUDY.glob("*.svg"))
    assert len(charts) == 4
    for chart in charts:
        assert parsed(chart.read_text(encoding="utf-8")).tag == f"{SVG}svg"


def test_a_line_chart_marks_every_point_and_draws_its_bar():
    points = (Point(x=1, y=10, low=8, high=12), Point(x=2, y=18))
    root = parsed(line_chart([Series(name="a", points=points)], AXES))
    assert len(root.findall(f"{SVG}circle")) == 2 + 1  # the legend's
    assert len(root.findall(f"{SVG}path")) == 1
    assert [text.text for text in root.iter(f"{SVG}text") if text.text in ("1", "2", "ranks")] == ["1", "2", "ranks"]


def test_bars_are_as_high_as_their_values():
    series = [Series(name="a", points=(Point(x=0, y=1), Point(x=1, y=2)))]
    root = parsed(bar_chart(["one", "two"], series, AXES))
    bars = [bar for bar in root.findall(f"{SVG}rect") if float(bar.get("width")) > 10]
    assert float(bars[1].get("height")) == pytest.approx(2 * float(bars[0].get("height")), abs=0.1)


def test_an_interval_chart_has_its_zero_between_losses_and_gains():
    rows = [("loss", Point(x=0, y=-4, low=-6, high=-2)), ("gain", Point(x=0, y=3))]
    root = parsed(interval_chart(rows, AXES))
    (zero,) = [line for line in root.findall(f"{SVG}line") if line.get("class") == "zero"]
    loss, gain = (float(marker.get("cx")) for marker in root.findall(f"{SVG}circle"))
    assert loss < float(zero.get("x1")) < gain
