"""The page for an agent: short whatever a report holds, and each number is the one behind its id in the JSON."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from profkit.api import triage
from profkit.cli.compare import compared
from profkit.findings import KINDS
from profkit.render import renderer_for
from profkit.render.agent.page import MOST_CHARS
from profkit.shell import line_of
from tests.conftest import ROOT, every
from tests.render import reports
from tests.render.agent.pages import at, facts, ids, rows
from tests.render.documents import DOCUMENTS

TRACES = sorted(path for path in (ROOT / "traces").iterdir() if path.suffix != ".toml")
FOLDERS = [path for path in TRACES if path.is_dir()]


def checked(kind: str, document: Any) -> str:
    """The page of a document, with every id resolved and every number compared."""
    page = renderer_for(kind, "agent")(document)
    told = json.loads(renderer_for(kind, "json")(document))
    assert len(page) / 4 <= 2_000, "about four characters are a token"
    assert ids(page)
    for path in ids(page):
        at(told, path)
    for label, value, path in facts(page):
        if path != "judgement.change_interval":
            assert is_same(value, at(told, path)), (label, path)
    for label, values, path in rows(page):
        for name, value in values.items():
            assert is_same(value, at(told, f"{path}.{name}")), (label, name)
    return page


def is_same(value: str, told: Any) -> bool:
    if told is None or value == "none":
        return told is None and value == "none"
    if isinstance(told, str):
        return told.startswith(value)
    return math.isclose(float(value), told, rel_tol=1e-5, abs_tol=1e-9)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.partition(".")[0])
def test_the_page_of_a_committed_capture(path: Path) -> None:
    report = triage([path])
    page = checked("triage", report)
    told = {label: value for label, value, _ in facts(page)}
    assert told["verdict"] == report.verdict.bottleneck
    assert str(report.verdict.recoverable_ns) in page
    assert report.verdict.next_tool.command in page
    for finding in report.verdict.findings[:1]:
        assert finding.id in KINDS
        assert f"finding {finding.id}" in page
    assert len(told) >= 8
    assert len(list(rows(page))) == (0 if report.fleet is None else len(report.fleet.rows))
    assert "left out for room" not in page


@pytest.mark.parametrize("names", [("data_cpu", "data_workers2_cpu"), ("baseline_cpu", "kernel_cpu")])
def test_the_page_of_a_comparison(names: tuple[str, str]) -> None:
    one, other = ([str(ROOT / "traces" / f"{name}.pt.trace.json.gz")] for name in names)
    comparison = compared(one, other, margin=0.02, metric=None, lenient=False)
    page = checked("compare", comparison)
    assert page.splitlines()[1].startswith(f"answer = {comparison.judgement.answer} [judgement.answer]")
    assert all(f"finding {reading.id} = " in page for reading in comparison.readings[:2])
    assert "\nnext: profkit bench -n 8 -- COMMAND_A --vs COMMAND_B\n" in page


@pytest.mark.parametrize("pair", every(3, zip(FOLDERS[::2], FOLDERS[1::2], strict=False), 1.0))
def test_the_page_of_a_comparison_of_ranks(pair: tuple[Path, Path]) -> None:
    one, other = pair
    checked("compare", compared([str(one)], [str(other)], margin=0.02, metric=None, lenient=False))


@pytest.mark.parametrize(("kind", "name"), [key for key in DOCUMENTS if key[0] in {"triage", "compare", "where"}])
def test_the_page_of_a_drawn_document(kind: str, name: str, tmp_path: Path) -> None:
    page = checked(kind, DOCUMENTS[kind, name](tmp_path))
    assert page.isprintable() or all(line.isprintable() for line in page.splitlines())


def test_what_has_no_room_is_counted_and_the_verdict_stays() -> None:
    """A hundred long findings: verdict, next command and the first evidence are there, the rest is told."""
    long = "x" * 300
    many = tuple(reports.finding("host.sync", long, long, long, fraction=0.2, rank=n, fix=long) for n in range(100))
    command = "python train.py " + "--flag=1 " * 60
    tool = replace(reports.NSYS, line=line_of(command))
    verdict = replace(reports.overhead().verdict, findings=many[:3], next_tool=tool, caveats=(long,) * 40)
    page = checked("triage", replace(reports.overhead(), findings=many, verdict=verdict))
    assert len(page) <= MOST_CHARS
    assert page.splitlines()[1].startswith("verdict = overhead-bound")
    assert f"  command: {tool.command}" in page
    assert "[findings[0].evidence[0]]" in page
    assert "lines; `profkit triage ... -f json` has them" in page.splitlines()[-1]


def test_a_command_that_is_longer_than_a_page_is_named() -> None:
    tool = replace(reports.NSYS, line=line_of("python train.py " + "a" * 5_000))
    report = replace(reports.overhead(), verdict=replace(reports.overhead().verdict, next_tool=tool))
    assert "  command: too long for this page: -f json has it" in checked("triage", report)


def test_a_finding_on_several_ranks_has_an_id_of_its_own() -> None:
    of_ranks = tuple(replace(reports.SYNC, rank=rank, fraction=0.01 * (rank + 1)) for rank in range(3))
    joint = reports.finding("host.sync", "all ranks wait", "they wait together", fraction=0.03)
    verdict = replace(reports.overhead().verdict, findings=(of_ranks[1], joint))
    page = checked("triage", replace(reports.overhead(), findings=of_ranks, verdict=verdict))
    assert "finding host.sync of rank 1 = 0.02 [findings[1].fraction]" in page
    assert "finding host.sync = 0.03 [joint_findings[0].fraction]" in page
    assert "[joint_findings[0].evidence[0]] they wait together (expected < 5.0 %)" in page


@pytest.mark.parametrize("name", ["ddp_barrier_ws4", "ddp_comm_ws4", "ddp_straggler_ws4", "fsdp_vlm_prefetch_on"])
def test_every_finding_of_the_verdict_on_many_ranks_has_its_evidence_in_the_json(name: str) -> None:
    report = triage([ROOT / "traces" / name])
    told = json.loads(renderer_for("triage", "json")(report))
    assert told["joint_findings"]
    seen = [
        (one["id"], item["statement"]) for one in told["findings"] + told["joint_findings"] for item in one["evidence"]
    ]
    for finding in report.verdict.findings:
        assert {(finding.id, item.statement) for item in finding.evidence} <= set(seen)
    assert "  also: " not in checked("triage", report)
