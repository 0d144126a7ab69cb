"""What the studies of the labs publish follows from their committed tables, and their own arithmetic is right."""

import json
import xml.etree.ElementTree as ET

import pytest

from analyses import lab
from analyses.ddp import charts as ddp_charts
from analyses.ddp import run as ddp
from analyses.rank_runs import Fingerprint
from analyses.token_skew import run as token_skew
from workloads.rank_cases import CASES, DDP, TOKEN_SKEW

STUDIES = [pytest.param(ddp, DDP, id="ddp"), pytest.param(token_skew, TOKEN_SKEW, id="token_skew")]
SVG = "{http://www.w3.org/2000/svg}"


def published(study):
    return json.loads((study.HERE / "results.json").read_text(encoding="utf-8"))


def again(study):
    values = study.analysed(study.HERE / "timings.csv", study.HERE / "verdicts.csv")
    return json.loads(json.dumps({**values, "cores": published(study)["cores"]}))


@pytest.mark.parametrize(("study", "cases"), STUDIES)
def test_the_results_are_those_of_the_tables(study, cases):
    results = published(study)
    assert again(study) == results
    assert [cell["slug"] for cell in results["cells"]] == [case.slug for case in cases]
    assert {cell["slowest_step_ms"]["n"] for cell in results["cells"]} == {results["blocks"]}
    assert {answer["n"] for answer in results["verdicts"]} == {3}
    text = (study.HERE / "README.md").read_text(encoding="utf-8")
    assert study.results_text(results) in text


@pytest.mark.parametrize(("study", "cases"), STUDIES)
def test_a_verdict_counts_as_right_where_nothing_speaks_against_it(study, cases):
    rows = lab.read_rows(study.HERE / "verdicts.csv")
    for answer in lab.verdicts(cases, rows):
        wrong = [row for row in rows if row["slug"] == answer["slug"] and row["against_truth"]]
        assert answer["n_right"] + len(wrong) == answer["n"] == sum(answer["said"].values())


def test_the_charts_are_whole():
    for drawn in (ddp_charts.drawn(published(ddp)), token_skew.charts(published(token_skew))):
        for chart in drawn.values():
            root = ET.fromstring(chart)  # noqa: S314 - our own charts
            assert root.find(f"{SVG}title").text
            assert len(root.findall(f".//{SVG}rect")) + len(root.findall(f".//{SVG}polyline")) > 1


def test_a_fault_costs_all_ranks_and_the_straggler_alone_waits_for_data():
    cells = {cell["slug"]: cell for cell in published(ddp)["cells"]}
    healthy, slow = cells["weak_ws4"], cells["straggler_ws4"]
    assert slow["data_ms"][0]["mean"] > 40
    assert max(slow["data_ms"][rank]["mean"] for rank in (1, 2, 3)) < 5
    own, others = slow["compute_sync_ms"][0]["mean"], [one["mean"] for one in slow["compute_sync_ms"][1:]]
    assert min(others) > own + 20  # they wait for it in the all-reduce, and it shows as theirs
    assert cells["comm_ws4"]["slowest_step_ms"]["mean"] > 1.5 * healthy["slowest_step_ms"]["mean"]
    assert published(ddp)["largest_loss_difference"] == 0


def test_padding_is_what_the_strategy_makes():
    cells = {cell["slug"]: cell["padding_fraction"]["mean"] for cell in published(token_skew)["cells"]}
    assert cells["uniform_ws4"] == cells["packing_ws4"] == 0
    assert cells["fixed_count_ws4"] > 0.3
    assert max(cells["bucketing_ws4"], cells["token_budget_ws4"]) < 0.02


def said(stragglers, findings):
    return Fingerprint(
        bottleneck="comm-bound", confidence=0.5, headline="", stragglers=stragglers, findings=tuple(findings)
    )


def test_what_speaks_against_a_verdict():
    slow = next(case for case in CASES if case.slug == "straggler_ws4")
    healthy = next(case for case in CASES if case.slug == "weak_ws2")
    assert said({0: "data"}, ["straggler.rank"]).against(slow) == ""
    assert said({0: "host"}, ["straggler.rank"]).against(slow) == "late: {0: 'host'}, in truth {0: 'data'}"
    assert "not found: straggler.rank" in said({}, []).against(slow)
    assert said({}, ["comm.skew"]).against(healthy) == ""
    assert "found wrongly: collective.extra" in said({}, ["collective.extra"]).against(healthy)


def test_rows_are_written_to_six_digits_and_read_back(tmp_path):
    path = tmp_path / "rows.csv"
    lab.write_rows(path, ("slug", "block", "value"), [{"slug": "weak_ws1", "block": 1, "value": 1.23456789}])
    (row,) = lab.read_rows(path)
    assert row == {"slug": "weak_ws1", "block": "1", "value": "1.23457"}
    assert lab.of_case([row], DDP[0], "value") == (1.23457,)
