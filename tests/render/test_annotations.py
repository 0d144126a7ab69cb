"""Findings beside lines of code: SARIF as the standard has it, workflow commands that GitHub reads as meant."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from profkit.api import triage
from profkit.findings import KINDS
from profkit.model.code import CodePlace, Phase, PlaceShare
from profkit.model.documents.report import Report
from profkit.model.finding import Severity
from profkit.render import format_of, renderer_for
from profkit.render.json.triage import report_to_dict
from tests.conftest import ROOT
from tests.golden import TRACES
from tests.render import reports

PART = jsonschema.Draft202012Validator(json.loads((Path(__file__).parent / "sarif_part.schema.json").read_text()))
COMMAND = re.compile(r"::(error|warning|notice) ((?:\w+=[^:,\s][^:,]*,?)+)::(.*)")


def place(file: str, line: int = 0, **more: Any) -> CodePlace:
    return CodePlace(file=file, function=more.pop("function", "step"), line=line, **more)


def placed(*places: CodePlace) -> Report:
    shares = tuple(PlaceShare(place=one, phase=Phase.FORWARD, ns=10, share=0.4, count=3) for one in places)
    first = replace(reports.SYNC, places=shares, severity=Severity.HIGH)
    report = reports.overhead()
    return replace(report, verdict=replace(report.verdict, findings=(first,)), findings=(first, reports.UNFUSED))


def sarif(report: Report) -> dict[str, Any]:
    log = json.loads(renderer_for("triage", "sarif")(report))
    PART.validate(log)
    (run,) = log["runs"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    return run


def commands(report: Report) -> list[tuple[str, dict[str, str], str]]:
    """Each command as GitHub reads it: its name, its properties and its text, unescaped."""
    found = []
    for line in renderer_for("triage", "github")(report).splitlines():
        name, given, said = re.fullmatch(COMMAND, line).groups()
        pairs = (pair.split("=", 1) for pair in given.split(","))
        found.append((name, {key: unescaped(value, ":,") for key, value in pairs}, unescaped(said, "")))
    return found


def unescaped(text: str, more: str) -> str:
    for char in f"\r\n{more}%":
        text = text.replace(f"%{ord(char):02X}", char)
    return text


@pytest.mark.parametrize("report", reports.ALL.values(), ids=reports.ALL)
def test_every_report_is_a_log_of_the_standard_and_lines_of_commands(report: Report) -> None:
    run = sarif(report)
    assert len(run["results"]) == len(report.findings)
    assert len(run["invocations"][0]["toolExecutionNotifications"]) == len(report.failures)
    assert len(commands(report)) == 1 + len(report.findings) + len(report.failures)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.partition(".")[0])
def test_committed_captures_are_too(path: Path) -> None:
    report = triage([path])
    assert {result["ruleId"] for result in sarif(report)["results"]} == {one.id for one in report.findings}
    assert commands(report)[0][2].startswith(report.verdict.headline.removeprefix("healthy: "))


def test_a_result_stands_at_the_line_with_most_of_it() -> None:
    places = (place("src/train.py", 83, text="loss.item()"), place("src/my data.py", defined=12))
    first, second = sarif(placed(*places))["results"]
    (location,) = first["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "src/train.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 83, "snippet": {"text": "loss.item()"}},
    }
    (other,) = first["relatedLocations"]
    assert other["physicalLocation"]["artifactLocation"]["uri"] == "src/my%20data.py"
    assert other["physicalLocation"]["region"]["startLine"] == 12
    assert (first["level"], second["level"]) == ("error", "warning")
    assert "src/train.py:83 in step(): loss.item()" in first["message"]["text"]
    (of_trace,) = second["locations"]
    assert of_trace["physicalLocation"]["artifactLocation"]["uri"] == "runs/llama_rank0.json.gz"

    name, properties, said = commands(placed(*places))[1]
    assert (name, properties["file"], properties["line"]) == ("error", "src/train.py", "83")
    assert properties["title"] == "host.sync: the host waits for results in every step"
    assert "2 blocking calls per step, 1.20 ms in which nothing is queued behind them" in said
    assert [one[0] for one in commands(placed(*places))] == ["notice", "error", "warning"]
    assert "file" not in commands(placed())[1][1]


def test_evidence_is_where_the_json_has_it() -> None:
    report = placed(place("train.py", 3))
    document = report_to_dict(report)
    shown = [item for result in sarif(report)["results"] for item in result["properties"]["evidence"]]
    assert len(shown) == sum(len(finding.evidence) for finding in report.findings)
    for item in shown:
        number, of = map(int, re.findall(r"\d+", item["id"]))
        there = document["findings"][number]["evidence"][of]
        assert (there["metric"], there["value"], there["unit"]) == (item["metric"], item["value"], item["unit"])


def test_rules_are_the_kinds_of_findings() -> None:
    rules = {rule["id"]: rule for rule in sarif(reports.overhead())["tool"]["driver"]["rules"]}
    assert set(rules) == {"host.launch_bound", "host.sync", "kernel.unfused"}
    for name, rule in rules.items():
        assert rule["shortDescription"]["text"] == KINDS[name].title
        assert rule["properties"]["tags"][0] == "performance"
        assert all(fix.splitlines()[0] in rule["help"]["text"] for fix in KINDS[name].fixes)


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("train.py", "train.py"),
        (str(ROOT / "workloads" / "a.py"), "workloads/a.py"),
        ("/home/alice/code/train.py", "code/train.py"),
        ("<stdin>", None),
        ("a%,b:\nc.py", "a%,b: c.py"),
    ],
)
def test_files_are_named_from_the_repositorys_root(file: str, shown: str | None, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    report = placed(place(file, 7))
    _, properties, _ = commands(report)[1]
    assert properties.get("file") == shown
    uri = sarif(report)["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == ("runs/llama_rank0.json.gz" if shown is None else uri)
    assert "alice" not in uri


def test_a_fingerprint_outlives_numbers_and_moved_lines() -> None:
    def of(*places: CodePlace, **changes: Any) -> str:
        report = placed(*places)
        first = replace(report.findings[0], **changes)
        (result,) = sarif(replace(report, findings=(first,)))["results"]
        return result["partialFingerprints"]["profkit/1"]

    known = of(place("train.py", 3, text="x"))
    assert of(place("train.py", 9, text="x"), fraction=0.5, confidence=0.1) == known
    assert of(place("train.py", 3, text="y")) != known
    assert of(place("train.py", 3, text="x"), rank=1) != known
    assert of() != known


def test_a_log_is_known_by_its_suffix() -> None:
    assert format_of(Path("out/report.sarif"), "triage") == "sarif"


def test_ranks_are_named_where_there_are_several() -> None:
    two = reports.two_ranks()
    late = replace(two.findings[0], rank=1)
    report = replace(two, findings=(late,))
    (result,) = sarif(report)["results"]
    assert result["message"]["text"].startswith("rank 1: the GPU waits")
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "runs/llama_rank1.json.gz"
    assert commands(report)[-1][:2] == ("warning", {"title": "profkit: not read"})
