"""An id of a page leads to its number, what it means and how to make it again."""

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.agents.evidence import evidence_ids, looked_up
from profkit.agents.root import Root
from profkit.agents.tools import Desk, answered
from profkit.api import triage
from profkit.compare.paths import compare_paths
from profkit.errors import UsageError
from profkit.findings import KINDS
from profkit.render import renderer_for
from tests.calling import profkit
from tests.conftest import ROOT, every
from tests.golden import GOLDENS
from tests.render.agent.pages import at, ids, rows
from tests.test_where import _trace as _trace_with_stacks  # noqa: F401 - a fixture

TRACES = ROOT / "traces"
REPORT = GOLDENS / "data_cpu.json"
UNITS = {
    "ns",
    "fraction",
    "fraction of 1",
    "bytes",
    "x",
    "bytes/s",
    "percent",
    "ppm",
    "count",
    "flag",
    "ratio",
    "ns/step",
    "tokens/s",
    "",
}


KEYS = st.sampled_from(
    ["verdict", "findings", "readings", "evidence", "id", "value", "unit", "ranks", "source", "baseline", "judgement"]
)


@cache
def made(kind: str, *paths: str) -> tuple[str, dict[str, Any]]:
    told = triage([TRACES / paths[0]]) if kind == "triage" else compare_paths(*(str(TRACES / one) for one in paths))
    return renderer_for(kind, "agent")(told), json.loads(renderer_for(kind, "json")(told))


def of_page(page: str) -> Iterator[str]:
    yield from ids(page)
    for _, values, path in rows(page):
        yield from (f"{path}.{name}" for name in values)


REPORTS = [
    ("triage", "data_cpu.pt.trace.json.gz"),
    ("triage", "overhead_cpu.pt.trace.json.gz"),
    ("triage", "kernel_cpu.pt.trace.json.gz"),
    ("triage", "ddp_straggler_ws4"),
    ("triage", "ddp_comm_ws4"),
    ("triage", "token_skew_long_tail_ws2"),
    ("compare", "data_cpu.pt.trace.json.gz", "data_workers2_cpu.pt.trace.json.gz"),
    ("compare", "fsdp_vlm_prefetch_off", "fsdp_vlm_prefetch_on"),
]


@pytest.mark.parametrize("asked", every(1, [(one,) for one in REPORTS], 1.0))
def test_every_id_of_a_page_has_a_value_a_unit_and_a_definition(asked: tuple[tuple[str, ...]]) -> None:
    (report,) = asked
    page, document = made(*report)
    asked_for = list(of_page(page))
    assert len(asked_for) > 15
    for path in asked_for:
        found = looked_up(document, path)
        assert found.id == path
        assert found.definition, path
        assert found.unit in UNITS, path
        assert found.fields or found.value == at(document, path), path
        name = path.rpartition(".")[2]
        if name.endswith("_ns") or "budget_ns" in path:
            assert found.unit == "ns", path


@pytest.mark.parametrize("report", [REPORTS[0], REPORTS[6]])
def test_the_command_makes_the_number_again(report: tuple[str, ...]) -> None:
    """What stands before the pipe runs, and has the number where jq would look."""
    page, document = made(*report)
    path = next(one for one in ids(page) if "evidence" in one)
    command, *_ = looked_up(document, path).recompute
    words = shlex.split(command.partition(" | ")[0])
    assert words[0] == "profkit"
    again = json.loads(profkit(*words[1:]).stdout)
    jq = shlex.split(command.partition(" | ")[2])
    assert jq == ["jq", f".{path}"]
    assert at(again, path) == at(document, path)


def test_evidence_of_several_ranks_says_of_which_finding_it_is() -> None:
    _, document = made("triage", "ddp_comm_ws4")
    found = looked_up(document, "joint_findings[0].evidence[1]")
    assert found.finding == "collective.extra"
    assert found.definition == KINDS["collective.extra"].measured
    assert (found.metric, found.unit) == ("comm.transfer_exposed_ns", "ns")
    alone = looked_up(made("triage", "ddp_straggler_ws4")[1], "findings[0].evidence[0]")
    assert (alone.finding, alone.rank) == ("straggler.rank", 0)


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ("verdict.step_ns", "verdict.step_ns"),
        (".verdict.step_ns", "verdict.step_ns"),
        ("[verdict.step_ns]", "verdict.step_ns"),
        (" [findings[0].evidence[0]] ", "findings[0].evidence[0]"),
        ('.findings[0]["fraction"]', "findings[0].fraction"),
        ("findings[0].evidence[0].value", "findings[0].evidence[0].value"),
    ],
)
def test_a_path_is_taken_as_the_page_and_as_jq_have_it(asked: str, path: str) -> None:
    assert looked_up(json.loads(REPORT.read_text()), asked).id == path


def test_of_an_object_the_ids_below_are_told() -> None:
    found = looked_up(json.loads(REPORT.read_text()), "ranks[0].devices[0].budget_ns")
    assert "ranks[0].devices[0].budget_ns.idle_data = 177730284" in found.fields
    assert found.lines[0] == "ranks[0].devices[0].budget_ns = 9 fields"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("findings[7]", r"the report has no findings\[7\]: findings has 1"),
        ("verdict.step", "the report has no verdict.step"),
        ("verdict[0]", r"the report has no verdict\[0\]: verdict is no list"),
        ("verdict..step_ns", "is no path into a report"),
        ("findings[-1]", "is no path into a report"),
        ("", "is no path into a report"),
        ("a" * 400, "is no path into a report"),
        ("findings[0].evidence[0]; rm -rf /", "is no path into a report"),
    ],
)
def test_an_id_that_leads_nowhere_is_said_with_what_is_there(asked: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        looked_up(json.loads(REPORT.read_text()), asked)


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
JSON = PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(KEYS, PLAIN | st.lists(PLAIN, max_size=2), max_size=3)
EVIDENCE = st.fixed_dictionaries(
    {"statement": JSON, "metric": JSON, "value": JSON, "unit": JSON}, optional={"span_ns": JSON, "expected": JSON}
)
FINDING = st.fixed_dictionaries(
    {"id": st.sampled_from(list(KINDS)) | st.text(max_size=5), "evidence": st.lists(EVIDENCE | JSON, max_size=3)},
    optional={"rank": JSON},
)
FINDINGS = st.fixed_dictionaries({}, optional={name: st.lists(FINDING | JSON) for name in ("findings", "readings")})


@given(
    st.builds(lambda one, other: {**one, **other}, st.dictionaries(KEYS, JSON, max_size=6), FINDINGS),
    st.sampled_from(["profkit.triage/1", "profkit.compare/1", "profkit.where/1"]),
    st.lists(KEYS | st.integers(0, 2).map(lambda n: f"[{n}]"), min_size=1, max_size=4) | st.text(max_size=12),
)
def test_whatever_a_report_holds_an_id_gives_lines_or_a_sentence(
    document: dict[str, Any], kind: str, asked: list[str] | str
) -> None:
    """A report of a stranger's: its fields are of any kind, and may be missing."""
    path = asked if isinstance(asked, str) else ".".join(asked).replace(".[", "[")
    whole = {**document, "schema": kind}
    for line in evidence_ids(whole):
        assert looked_up(whole, line.partition(" = ")[0]).metric is not None
    with suppress(UsageError):
        assert all(line.isprintable() for line in looked_up(whole, path, report="report.json").lines[1:])


# -------------------------------------------------------------------------------------------------- on the command line


def test_explain_from_a_report_prints_the_number_and_how_to_check_it() -> None:
    done = profkit("explain", "findings[0].evidence[0]", "--report", REPORT)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "findings[0].evidence[0] = 177730284 ns"
    told = dict(re.match(r"  (\w+): (.*)", line).groups() for line in lines[1:])
    assert told["finding"] == "input.starved"
    assert told["metric"] == "budget_ns.idle_data"
    assert told["recompute"].startswith("profkit verify ")


def test_explain_from_a_report_without_an_id_lists_its_evidence() -> None:
    done = profkit("explain", "--report", REPORT)
    assert done.stdout.splitlines() == list(evidence_ids(json.loads(REPORT.read_text())))
    assert "findings[0].evidence[2] = 0.2045" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["findings[0].evidence[0]"], 2, "is a path into a report: which one?"),
        (["verdict.step_ns"], 2, "is a path into a report: which one?"),
        (["findings[5]", "--report", REPORT], 2, "the report has no findings[5]"),
        (["verdict.step_ns", "--report", TRACES / "MANIFEST.toml"], 3, "is no JSON report"),
        (["verdict.step_ns", "--report", "gone.json"], 3, "cannot read gone.json"),
    ],
)
def test_explain_says_what_is_wrong_in_a_line(words: list[object], code: int, said: str) -> None:
    done = profkit("explain", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "hint: " in done.stderr


def test_where_has_a_page_for_agents_with_ids(trace: Path) -> None:
    page = profkit("where", trace, "-f", "agent").stdout
    document = json.loads(profkit("where", trace, "-f", "json").stdout)
    assert len(page) <= 8_000
    for path in of_page(page):
        assert looked_up(document, path).value == at(document, path) or looked_up(document, path).fields
    assert re.search(r'where = 0\.\d+ \[subjects\[0\]\.places\[0\]\.share\] .*"forward\(\) \(net\.py:6\)', page)


def test_the_tools_resolve_the_ids_of_where_as_well(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trace.parent)
    desk = Desk(Root(str(trace.parent)))
    for what in ("", "vectorized"):
        page = answered(desk, "where", {"path": trace.name, "what": what}).text
        path = next(one for one in ids(page) if "places" in one)
        found = answered(desk, "evidence", {"path": trace.name, "id": path, "what": what}).values
        asked = f" {what}" if what else ""
        assert f"where = {found['value']:.6g} [{path}]" in page
        assert list(found["recompute"]) == [f"profkit where {trace.name}{asked} -f json | jq '.{path}'"]
