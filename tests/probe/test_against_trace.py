"""A probe beside a trace: measured ceilings, an overturned verdict, and silence where it cannot tell."""

import json
import shutil

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from profkit import triage
from profkit.cli import group
from profkit.errors import ProfkitError
from profkit.model.documents.report import Bottleneck
from profkit.probe.against_trace import read_probe, with_probe
from profkit.render.json.probe import render
from tests.conftest import ROOT
from tests.probe.drawn import probed, slope

TRACE = ROOT / "traces" / "data_cpu.pt.trace.json.gz"


@pytest.fixture(scope="module")
def report():
    return triage(TRACE)


def probe_of(report, **slopes):
    return replace(probed(**slopes), step_ns=report.verdict.step_ns)


def test_a_critical_place_gives_a_measured_ceiling(report):
    told = with_probe(report, probe_of(report, input=slope(0.8, 0.06)))
    before, after = report.verdict, told.verdict
    assert after.bottleneck is Bottleneck.DATA
    assert after.recoverable_ns == round(0.86 * before.recoverable_ns)
    assert before.speedup_ceiling is None  # the trace alone leaves 6 % of the step: no bound
    whole_ns = before.step_ns
    assert after.speedup_ceiling == pytest.approx(whole_ns / (whole_ns - after.recoverable_ns))
    found = next(one for one in told.findings if one.id == "input.starved")
    assert found.recoverable_ns == after.recoverable_ns
    assert found.seen("probe_slope").value == 0.8
    assert "slope 0.80 (0.74 to 0.86)" in found.evidence[-1].statement
    assert any("the ceiling is measured" in text for text in after.caveats)


def test_a_slope_above_one_raises_no_ceiling(report):
    told = with_probe(report, probe_of(report, input=slope(1.1, 0.2)))
    assert told.verdict.recoverable_ns == report.verdict.recoverable_ns
    assert told.verdict.speedup_ceiling == report.verdict.speedup_ceiling


def test_a_hidden_place_overturns_the_verdict_openly(report):
    told = with_probe(report, probe_of(report, input=slope(0.02, 0.1), forward=slope(1.0, 0.1))).verdict
    assert told.bottleneck is Bottleneck.INCONCLUSIVE
    assert told.recoverable_ns == 0
    assert told.speedup_ceiling is None
    assert not told.fixes
    assert "data-bound by the trace, overturned by the probe: input is hidden" in told.headline
    assert "on the critical path: forward" in told.headline
    assert any("the trace alone says data-bound" in text for text in told.caveats)
    assert told.next_tool.command == "profkit run -- python train.py"


def test_an_inconclusive_slope_changes_nothing_but_says_so(report):
    told = with_probe(report, probe_of(report, input=slope(0.4, 0.7)))
    assert told.findings == report.findings
    assert told.verdict.bottleneck is Bottleneck.DATA
    assert told.verdict.recoverable_ns == report.verdict.recoverable_ns
    assert "more steps would settle it" in told.verdict.caveats[-1]


def test_a_place_of_another_kind_leaves_the_verdict(report):
    told = with_probe(report, probe_of(report, optimizer=slope(0.0, 0.1)))
    assert told.verdict == report.verdict


def test_the_probe_of_another_job_is_left_out(report):
    told = with_probe(report, replace(probed(input=slope(0.0, 0.1)), step_ns=9 * report.verdict.step_ns))
    assert told.findings == report.findings
    assert told.verdict.bottleneck is Bottleneck.DATA
    assert "another job or machine" in told.verdict.caveats[-1]


def test_triage_reads_what_probe_wrote(report, tmp_path):
    path = tmp_path / "probe.json"
    path.write_text(render(probe_of(report, input=slope(0.02, 0.1))))
    assert read_probe(path) == probe_of(report, input=slope(0.02, 0.1))
    done = CliRunner().invoke(group, ["triage", str(TRACE), "--probe", str(path), "-f", "json"], standalone_mode=False)
    assert json.loads(done.stdout)["verdict"]["bottleneck"] == "inconclusive"


def test_a_probe_in_the_folder_of_the_traces_is_found(report, tmp_path):
    shutil.copy(TRACE, tmp_path)
    place = tmp_path / "probe.json"
    for text, bottleneck in (
        (render(probe_of(report, input=slope(0.02, 0.1))), "inconclusive"),
        ('{"schema": "of somebody else"}', "data-bound"),
    ):
        place.write_text(text)
        done = CliRunner().invoke(group, ["triage", str(tmp_path), "-f", "json"], standalone_mode=False)
        assert json.loads(done.stdout)["verdict"]["bottleneck"] == bottleneck


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema": "profkit.triage/1"}', '{"schema": "profkit.probe/1"}'])
def test_what_is_no_probe_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "probe.json"
    path.write_text(text)
    with pytest.raises(ProfkitError, match="is not what profkit probe writes"):
        read_probe(path)
    with pytest.raises(ProfkitError, match="cannot read"):
        read_probe(tmp_path / "none.json")
