"""docs/accuracy.md is what the committed results give, and says what it does not know."""

import xml.etree.ElementTree as ET

import pytest

from analyses.accuracy import page
from analyses.accuracy.limits import read_limits
from analyses.accuracy.results import RESULTS, with_all
from analyses.accuracy.score import judged
from analyses.accuracy.shares import Share
from analyses.accuracy.shown import tables
from analyses.svg import Axes, Count, Point, Series, matrix_chart, scatter_chart
from tests.analyses.drawn_cells import benchmark, cell, said, write

SVG = "{http://www.w3.org/2000/svg}"
AXES = Axes(title="a & b", x_label="x", y_label="y")


def parsed(text):
    return ET.fromstring(text)  # noqa: S314 - our own charts


@pytest.mark.torch
def test_the_committed_page_is_what_the_committed_results_give():
    pytest.importorskip("torch")  # without it the number of planned cells is not known
    given = page.files(with_all(RESULTS), n_planned=page.planned(), chosen=read_limits(RESULTS))
    for path, text in given.items():
        assert (page.DOCS / path).read_text(encoding="utf-8") == text, "python -m analyses.accuracy.page"
    there = {f"{page.CHARTS}/{path.name}" for path in (page.DOCS / page.CHARTS).glob("*")}
    assert there == given.keys() - {page.NAME}


def test_without_results_nothing_is_claimed():
    given = page.files([], n_planned=230)
    assert given.keys() == {page.NAME}
    assert "**Nothing is measured yet**: 0 of 230 cells." in given[page.NAME]
    assert "reached" not in given[page.NAME]


def test_a_run_that_was_cut_short_says_so():
    text = page.page(benchmark()[:40], n_planned=230)
    assert "40 of 230 cells are measured" in text
    assert "not complete" in text
    assert "not complete" not in page.page(benchmark(), n_planned=len(benchmark()))


def test_a_goal_is_reached_or_missed_by_its_share():
    rows = {goal.says: goal.row[2:] for goal in page.goals(judged(goals_by_hand(), "profkit"))}
    assert rows["the verdict is right, where it answers"] == ("75 % (3 of 4; 30 to 95)", "**missed**")
    assert rows["no answer (inconclusive)"] == ("0 % (0 of 4; 0 to 49)", "reached")
    assert rows["false alarms on healthy programs and decoys"] == ("100 % (1 of 1; 21 to 100)", "**missed**")
    assert rows["ceilings not below the interval of the measured gain"][1] == "reached"
    assert rows["the same, where the label is certain"] == rows["the verdict is right, where it answers"]
    nothing = page.Goal("nothing", Share(0, 0), 0.5, is_least=True)
    assert nothing.row[2:] == ("–", "not measured")


@pytest.mark.parametrize(("load", "word"), [(0.3, "below 1"), (1.0, "below 2"), (3.9, "below 4"), (7.0, "above 4")])
def test_cells_are_told_apart_by_the_load_of_the_machine(load, word):
    assert page.load_of(cell(load=load)) == word


def goals_by_hand():
    found = [cell(f"mlp/loader_serial/large/{n}", gain=0.3, says=said("data-bound", gain=0.4)) for n in range(3)]
    return [*found, cell("mlp/jitter/none/0", kind="healthy", says="sync-bound")]


def test_every_wrong_and_failed_cell_is_on_the_page():
    cells = benchmark(seed=5)
    text = page.page(cells, n_planned=None)
    of = judged(cells, "profkit")
    failed = [one.key for one in cells if one.error]
    wrong = [one.cell.key for one in of if one.is_wrong]
    assert failed
    assert wrong
    assert all(f"| {key} |" in text for key in (*failed, *wrong))
    assert f"### Wrong verdicts: {len(wrong)}" in text


def test_a_bar_in_a_cell_of_a_table_is_no_column():
    table = tables.Table(title="", head=("a",), rows=(("x | y",),))
    assert tables.markdown(table).splitlines()[-1] == "| x &#124; y |"


def test_a_table_names_no_folder_of_the_machine():
    said = "File /home/me/x/train.py failed; see https://a.b/c/d.html and mlp/loader/large/0"
    assert tables.short(said) == "File train.py failed; see https://a.b/c/d.html and mlp/loader/large/0"
    assert len(tables.short("word " * 100)) == 110


def test_one_command_writes_the_page_and_its_charts(tmp_path, monkeypatch, capsys):
    write(tmp_path / "results.jsonl", benchmark())
    monkeypatch.setattr("sys.argv", ["page", str(tmp_path / "results.jsonl"), "--folder", str(tmp_path)])
    page.main()
    names = sorted(path.name for path in (tmp_path / "accuracy").iterdir())
    assert names == ["ceilings.svg", "confusion.svg", "reliability.svg"]
    text = (tmp_path / "accuracy.md").read_text(encoding="utf-8")
    assert all(f"(accuracy/{name})" in text for name in names)
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_a_point_lies_as_far_along_both_axes_as_its_values():
    series = [Series(name="a", points=(Point(x=0, y=0), Point(x=50, y=50, low=40, high=60), Point(x=100, y=100)))]
    root = parsed(scatter_chart(series, AXES))
    first, middle, last = [(float(one.get("cx")), float(one.get("cy"))) for one in root.findall(f"{SVG}circle")][:3]
    assert middle == pytest.approx([(first[0] + last[0]) / 2, (first[1] + last[1]) / 2], abs=0.1)
    assert len(root.findall(f"{SVG}path")) == 1


def test_losses_are_below_the_zero_of_a_scatter_chart():
    root = parsed(scatter_chart([Series(name="a", points=(Point(x=10, y=-5), Point(x=10, y=5)))], AXES))
    low, high = (float(one.get("cy")) for one in root.findall(f"{SVG}circle")[:2])
    assert low > high
    assert {text.text for text in root.iter(f"{SVG}text")} >= {"−6", "0", "6"}


def test_a_matrix_draws_each_count_once_and_tells_right_from_wrong():
    cells = {
        ("a", "x"): Count(3, is_right=True),
        ("a", "y"): Count(1, is_right=False),
        ("b", "x"): Count(0, is_right=False),
    }
    root = parsed(matrix_chart(["a", "b"], ["x", "y"], cells, AXES))
    filled = [one for one in root.findall(f"{SVG}rect") if "fill" in (one.get("class") or "").split()]
    assert [(one.get("class"), one.get("fill-opacity")) for one in filled] == [("fill c2", "0.60"), ("fill c1", "0.30")]
    assert len(root.findall(f"{SVG}rect")) == 4 + 2
