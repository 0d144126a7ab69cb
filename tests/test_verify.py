"""`profkit verify` as a user meets it: exit codes, what is said of a number that does not hold."""

import json
import re
from pathlib import Path

import pytest

from tests.calling import profkit
from tests.conftest import ROOT
from tests.golden import GOLDENS

DATA = ROOT / "traces" / "data_cpu.pt.trace.json.gz"
REPORT = GOLDENS / "data_cpu.json"


def changed(folder: Path, **verdict: object) -> Path:
    document = json.loads(REPORT.read_text())
    document["verdict"] |= verdict
    path = folder / "report.json"
    path.write_text(json.dumps(document))
    return path


def test_a_report_that_holds_is_one_line_with_the_count() -> None:
    done = profkit("verify", REPORT, DATA)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert line.startswith("data_cpu.json holds: ")
    assert "numbers and" in line
    assert line.endswith("recomputed from 1 trace, all equal")


def test_a_number_that_does_not_hold_is_named_with_both_values(tmp_path: Path) -> None:
    step_ns = json.loads(REPORT.read_text())["verdict"]["step_ns"]
    report = changed(tmp_path, step_ns=step_ns + 1, headline="the step waits\x1b[31m for nothing: 1 %")
    done = profkit("verify", report, DATA)
    head, first, second = done.stdout.splitlines()
    assert done.returncode == 1
    assert head.startswith("report.json does not hold: 2 of ")
    assert first == f"  .verdict.headline: {second_half(done.stdout)}"
    assert second == f"  .verdict.step_ns: the report says {step_ns + 1}, the trace says {step_ns}"
    assert "\x1b" not in done.stdout


def second_half(printed: str) -> str:
    return next(line for line in printed.splitlines() if "headline" in line).partition(": ")[2]


def test_another_trace_or_window_is_told_in_ten_lines_and_a_hint() -> None:
    done = profkit("verify", REPORT, DATA, "--step-range", "2:5")
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert len(lines) == 13
    assert lines[-2].endswith("more: -v")
    whole = profkit("verify", REPORT, DATA, "--step-range", "2:5", "-v").stdout.splitlines()
    assert len(whole) > 13
    assert "with its --step-range" in whole[-1]


@pytest.mark.parametrize("words", [(), ("--step-range", "2:5")])
def test_a_fresh_report_holds_with_its_flags(words: tuple[str, ...], tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    assert profkit("triage", DATA, *words, "-o", report).returncode == 0
    assert profkit("verify", report, DATA, *words).returncode == 0


def test_a_report_on_ranks_holds(tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    folder = ROOT / "traces" / "ddp_straggler_ws4"
    assert profkit("triage", folder, "-o", report).returncode == 0
    assert "recomputed from 4 traces, all equal" in profkit("verify", report, folder).stdout


def test_the_command_given_to_triage_changes_no_number(tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    assert profkit("triage", DATA, "--command", "python my.py", "-o", report).returncode == 0
    assert profkit("verify", report, DATA).returncode == 0


def test_another_version_is_told(tmp_path: Path) -> None:
    document = json.loads(REPORT.read_text()) | {"profkit_version": "0.0.1"}
    report = tmp_path / "r.json"
    report.write_text(json.dumps(document))
    done = profkit("verify", report, DATA)
    assert done.returncode == 0
    assert "all equal; profkit 0.0.1 wrote it, this is " in done.stdout
    document["verdict"]["step_ns"] += 1
    report.write_text(json.dumps(document))
    done = profkit("verify", report, DATA)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].strip().startswith("rules and limits change between versions")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((DATA, DATA), 3, "is no JSON report"),
        (("none.json", DATA), 3, "cannot read none.json"),
        ((GOLDENS / "compare" / "data_workers2_cpu.json", DATA), 2, "is one side"),
        ((ROOT / "traces" / "ddp_comm_ws4" / "capture.json", DATA), 3, "has schema profkit.capture/1"),
        ((REPORT, "none.json"), 3, "no such file"),
        ((REPORT,), 2, "TRACE"),
    ],
)
def test_what_cannot_be_verified_is_told(words: tuple[object, ...], code: int, says: str) -> None:
    done = profkit("verify", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr


# ---------------------------------------------------------------------------------------------------------- comparisons


COMPARISON = GOLDENS / "compare" / "data_workers2_cpu.json"
SIDES = (DATA, ROOT / "traces" / "data_workers2_cpu.pt.trace.json.gz")


def test_a_comparison_holds_as_well() -> None:
    for words in (SIDES, ("--baseline", SIDES[0], "--candidate", SIDES[1])):
        done = profkit("verify", COMPARISON, *words)
        assert (done.returncode, done.stderr) == (0, "")
        assert re.fullmatch(
            r"data_workers2_cpu\.json holds: \d+ numbers and \d+ texts and flags recomputed from 2 traces, all equal\n",
            done.stdout,
        )


def test_a_number_of_a_comparison_that_does_not_hold_is_named(tmp_path: Path) -> None:
    document = json.loads(COMPARISON.read_text())
    document["judgement"]["change"] = -0.3
    document["readings"][0]["evidence"][0]["value"] += 1
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document))
    done = profkit("verify", path, *SIDES)
    assert done.returncode == 1
    head, first, second = done.stdout.splitlines()
    assert head.startswith("report.json does not hold: 2 of ")
    assert first.startswith("  .judgement.change: the report says -0.3, the traces say -0.518")
    assert second.startswith("  .readings[0].evidence[0].value: the report says ")
    swapped = profkit("verify", COMPARISON, *SIDES[::-1])
    assert swapped.returncode == 1
    assert ".judgement.baseline_mean: " in swapped.stdout


def test_the_margin_is_that_of_the_report_and_a_table_is_named_as_one(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    rows = [f"{arm},{value + place}" for arm, value in (("a", 100), ("b", 90)) for place in range(4)]
    table.write_text("\n".join(["arm,step_ms", *rows]) + "\n")
    report = tmp_path / "report.json"
    report.write_text(profkit("compare", table, "--margin", "20%", "-f", "json").stdout)
    assert json.loads(report.read_text())["judgement"]["answer"] == "equivalent"
    done = profkit("verify", report, table)
    assert (done.returncode, done.stderr) == (0, "")
    assert "recomputed from 1 table, all equal" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([COMPARISON], "two sides are needed, but nothing given"),
        ([COMPARISON, *SIDES, "--step-range", "1:2"], "--step-range and --probe are of reports of triage"),
        ([COMPARISON, "--baseline", DATA], "--candidate is missing"),
        ([REPORT], "is a report of triage: name its traces"),
        ([REPORT, "--baseline", DATA, "--candidate", DATA], "is a report of triage: name its traces"),
    ],
)
def test_what_is_given_must_fit_the_report(words: list[object], said: str) -> None:
    done = profkit("verify", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
