"""Recordings are judged again, and limits are chosen by what the recordings of others say."""

import shutil

import msgspec
import pytest

from analyses.accuracy import again, limits
from analyses.accuracy.limits import AS_ON_GPU, IN_USE, Setting
from analyses.accuracy.results import read_rows, with_all
from profkit.findings.host import LAUNCH_BOUND
from profkit.verdict import case
from tests.analyses.drawn_cells import cell, said
from tests.conftest import ROOT

RECORDED = {"mlp": "overhead_cpu", "cnn": "data_cpu"}
"""A recording of the project for the cell of each family."""


@pytest.fixture
def recorded(tmp_path):
    """Two cells with recordings, and one without, in a file of results."""
    rows = []
    for family, name in RECORDED.items():
        one = cell(key=f"{family}/plain/none/0", family=family, tools={"profkit": said("kernel-bound")})
        folder = again.recording_of(one, tmp_path / "kept")
        folder.mkdir(parents=True)
        shutil.copy(ROOT / "traces" / f"{name}.pt.trace.json.gz", folder / "rank0.pt.trace.json.gz")
        rows.append(one)
    rows.append(cell(key="rnn/plain/none/0", family="rnn", tools={"profkit": said("kernel-bound")}))
    again.write_rows(rows, tmp_path / "results.jsonl")
    return tmp_path


def test_what_is_kept_is_judged_again_and_told(recorded):
    told = []
    rows = again.again(read_rows(recorded / "results.jsonl"), recorded / "kept", told.append)
    words = {row.family: row.tools["profkit"].bottleneck for row in rows}
    assert words == {"mlp": "overhead-bound", "cnn": "data-bound", "rnn": "kernel-bound"}
    assert told == ["cnn/plain/none/0: kernel-bound -> data-bound", "mlp/plain/none/0: kernel-bound -> overhead-bound"]


def test_what_was_said_before_stands_beside_it(recorded, monkeypatch):
    path = recorded / "results.jsonl"
    monkeypatch.setattr("sys.argv", ["again", str(path), "--recordings", str(recorded / "kept"), "--keep-as", "before"])
    again.main()
    tools = {row.family: row.tools for row in with_all(path)}
    assert (tools["mlp"]["before"].bottleneck, tools["mlp"]["profkit"].bottleneck) == ("kernel-bound", "overhead-bound")


def test_a_setting_holds_while_it_is_tried_and_no_longer(recorded):
    rows = limits.collected(read_rows(recorded / "results.jsonl"), recorded / "kept")
    assert [row.cell.family for row in rows] == ["cnn", "mlp"]
    nothing = Setting(usual=1.0, dominant=0.9, work=0.0)
    with limits.under(nothing):
        assert [(row.case.dominant, row.case.is_nearly_all_work(None)) for row in rows] == [(0.9, True)] * 2
        assert LAUNCH_BOUND.limit("usual") == 1.0
    assert limits.scored(rows, IN_USE).n_alarms == 2
    now = LAUNCH_BOUND.limit("usual"), case.DOMINANT_ON_CPU, case.NEARLY_ALL_WORK_ON_CPU
    assert now == msgspec.structs.astuple(IN_USE)


def test_each_family_is_judged_by_the_others(recorded, monkeypatch):
    monkeypatch.setattr(limits, "GRID", (AS_ON_GPU, IN_USE, Setting(1.0, 0.9, 0.0)))
    rows = limits.collected(read_rows(recorded / "results.jsonl"), recorded / "kept")
    found = limits.limits(rows)
    (recorded / limits.LIMITS).write_bytes(msgspec.json.encode(found))
    assert limits.read_limits(recorded / "results.jsonl") == found
    assert {family.family: family.setting for family in found.families} == {
        family: limits.best([row for row in rows if row.cell.family != family]) for family in RECORDED
    }
    assert limits.held_out(found).n == 2
