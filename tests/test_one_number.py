"""In one report a quantity has one number: in the headline, the bar, the evidence and the tables."""

import re
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from profkit.api import triage
from profkit.capture.lines import told
from profkit.findings import kind_of, shown_share
from profkit.findings.ranks.tokens import PADDING
from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.report import Report
from profkit.model.finding import Finding
from profkit.pipeline import triage_trace
from profkit.render.markdown import triage as markdown
from profkit.render.terminal import triage as terminal
from profkit.render.words import triage as words
from profkit.testing import span, trace_of
from profkit.units import format_fraction, format_ns
from tests.analyzers.test_findings import Job, healthy, launch_bound, starved, synchronising
from tests.conftest import every
from tests.drawing import in_steps, triaged

HERE = Path(__file__).parent.parent / "traces"
TRACES = sorted(HERE.rglob("*.json.gz"))
FOLDERS = [folder for folder in sorted(HERE.iterdir()) if len(list(folder.glob("*.json.gz"))) > 1]
PERCENT = re.compile(r"([\d.]+) %")
MS = 1_000_000
REPLAYED = ("host.launch_bound", "input.starved", "memory.pressure", "comm.exposed")
"""Of these a fix saves what a replay without them says, or less than the exposed time: not what the evidence has."""


def assert_one_number(report: Report) -> None:
    """The report of one trace says each number once; real traces beside the repository are asked in their own test."""
    rank = report.ranks[0]
    device = words.main_device(rank)
    budget = device.budget
    assert sum(budget.tenths.values()) == (1000 if budget.window_ns else 0)
    for finding in report.findings:
        _assert_share(finding, rank)
        _assert_time_per_step(finding, report)
    verdict = report.verdict
    top = verdict.findings[0] if verdict.findings else None
    if top is not None and verdict.headline.startswith(f"{top.title}: "):
        assert f": {format_fraction(shown_share(top, budget))} of" in verdict.headline
    if found := re.search(r"([\d.]+ %) of the window is compute", verdict.headline):
        assert found[1] == words.percent(budget.tenths["compute"])
    _assert_steps(report, rank)


def _assert_share(finding: Finding, rank: RankReport) -> None:
    """What the evidence says of the window, and what stands beside the title, is what the bar shows."""
    device, part = words.main_device(rank), kind_of(finding.id).part
    if part is None or "of the window" not in finding.measure.statement or finding.id == "host.sync":
        return  # what waits cost comes from a replay, and is in later idle time too
    shown = round(1000 * shown_share(finding, device.budget))
    bar = sum(device.budget.tenths[name] for name in part.budget)
    whole, _, beside = finding.measure.statement.partition("not counted:")
    left = PERCENT.search(beside)
    seen = [round(10 * float(said)) for said in PERCENT.findall(whole.partition("; ")[0])]
    assert sum(seen[: len(part.budget)]) == shown
    if part.analyzer == "transfers" or finding.id == "comm.asked":  # one direction, one caller: parts of the bar's
        assert shown <= bar
    else:
        assert shown + (round(10 * float(left[1])) if left else 0) == bar


def _assert_time_per_step(finding: Finding, report: Report) -> None:
    """What goes lost per recorded step and what a fix saves are the same time where they are of the same cause."""
    verdict = report.verdict
    words_of = r"saves at most ([\d.,]+ \w+)|(?:idle|waits|runs) ([\d.,]+ \w+) (?:per step|in the window)"
    found = re.search(words_of, finding.measure.statement)
    said = next(filter(None, found.groups())) if found else None
    if said is None or finding.measure.unit != "ns" or finding.id in REPLAYED:
        return
    if verdict.recorded_step_ns is None:
        assert said == format_ns(finding.recoverable_ns)
    else:  # shares and evidence are of the recorded steps, savings of steps without the profiler
        assert verdict.step_ns is not None
        recorded_ns = finding.recoverable_ns * verdict.recorded_step_ns / verdict.step_ns
        assert said in {format_ns(recorded_ns + off) for off in (-2, 0, 2)}


def _assert_steps(report: Report, rank: RankReport) -> None:
    if report.verdict.step_ns is None:
        return
    step = format_ns(report.verdict.step_ns)
    assert words.step_sentence(report).startswith((f"Step {step} (", f"Step {step} on average ("))
    step = format_ns(report.verdict.recorded_step_ns or report.verdict.step_ns)  # tables are of the recorded steps
    assert f"**all** | {step} |" in markdown.render(report) or rank.steps.n == 0
    if rank.steps.n > 1:
        assert f"mean {step}" in terminal.render(report, width=200, color=False, verbose=True)
    if rank.steps.source != "period":
        assert sum(rank.steps.durations_ns) == rank.window_ns[1] - rank.window_ns[0]


@pytest.mark.parametrize(
    "path", every(3, TRACES, 0.2), ids=lambda path: f"{path.parent.name}-{path.name.partition('.')[0]}"
)
def test_traces_of_the_repository_say_each_number_once(path: Path) -> None:
    assert_one_number(triage([str(path)]))


@pytest.mark.parametrize("folder", every(3, FOLDERS, 0.6), ids=lambda folder: folder.name)
def test_many_ranks_say_each_number_once(folder: Path) -> None:
    report = triage([str(folder)])
    assert_one_number_of_ranks(report)


def assert_one_number_of_ranks(report: Report) -> None:
    """The report of many ranks says each number once: a share of all ranks is not the bar's, which is one rank's."""
    verdict, fleet = report.verdict, report.fleet
    assert fleet is not None
    assert verdict.step_ns is not None
    for finding in verdict.findings:
        first = finding.measure
        if (said := re.search(r"([\d.]+ %) of the window\)", first.statement)) is not None:
            assert said[1] == words.share_of(finding, report), first.statement
    if (said := re.search(r"([\d.]+ %) of the window$", verdict.headline)) is not None:
        assert said[1] == words.share_of(verdict.findings[0], report)
    page = terminal.render(report, width=200, color=False)
    saved = set(re.findall(r"saves at most ([\d.]+ \w+)", page))
    assert saved <= {format_ns(verdict.recoverable_ns)}
    cvs = [rank.steps.cv for rank in report.ranks if rank.steps.cv is not None]
    assert f"varies by {format_fraction(statistics.median(cvs))}" in page  # of all ranks, as the step is
    if (said := re.search(r"waits longest waits ([\d.]+) ms", page)) is not None:
        assert said[1].startswith(f"{max(row.wait_ns or 0 for row in fleet.rows) / MS:.1f}")
    _assert_rate(report, page)


def _assert_rate(report: Report, page: str) -> None:
    """Tokens per second times the step that is printed are the tokens of a step."""
    said = re.search(r"([\d,]+) of [\d,]+ computed tokens are real: ([\d,]+) real tokens per second", page)
    if said is None:
        assert not any(finding.id == PADDING.id for finding in report.verdict.findings)
        return
    tokens, rate = (int(number.replace(",", "")) for number in said.groups())
    n_steps = report.ranks[0].steps.n
    step_ns = report.verdict.recorded_step_ns or report.verdict.step_ns
    assert step_ns is not None
    assert rate == pytest.approx(tokens / n_steps / step_ns * 1e9, rel=1e-3)


PROFILED = "profkit_profiled_step_mean_ns"


@pytest.mark.parametrize("job", [healthy, launch_bound, starved, synchronising])
def test_drawn_traces_say_each_number_once(job: Callable[[], Job]) -> None:
    rank, verdict = triage_trace(job().trace())
    assert_one_number(Report(verdict=verdict, ranks=(rank,), findings=rank.findings, skipped=rank.skipped))


def test_the_time_between_two_markers_is_part_of_a_step() -> None:
    """Markers of 27 ms that begin every 28 ms: a step takes 28 ms, in the headline and in the table."""
    work = lambda at, _: [span("aten::mm", at + MS, at + 26 * MS, cat="cpu_op")]  # noqa: E731
    rank, verdict = triage_trace(trace_of(in_steps(50, 28 * MS, work, marked_ns=27 * MS)))
    assert verdict.step_ns == round((50 * 28 * MS - MS) / 50)
    assert rank.steps.p50_ns == 28 * MS


def test_the_capture_and_its_triage_say_one_cost_of_the_profiler(tmp_path: Path) -> None:
    times = {"baseline": (100, 90), "profiled": (112, 93), "after": (100, 90)}
    facts = {name: {"n": 5, "mean_ns": mean * MS, "median_ns": median * MS} for name, (mean, median) in times.items()}
    of_capture = {"n_steps": 5, "first_step": 9, "step_source": "x", "stop_ns": 0, "export_ns": 0, "trace": "t.json"}
    (line,) = told([{"rank": 0, **of_capture, **facts}], tmp_path)
    assert "100 ms a step before, 112 ms profiled (1.12x)" in line
    rows = in_steps(5, 113 * MS, lambda at, _: [span("aten::mm", at, at + MS, cat="cpu_op")])

    def cost(profiled_ms: int) -> str:
        means = {"profkit_unprofiled_step_mean_ns": 100 * MS, PROFILED: profiled_ms * MS}
        (check,) = [one for one in triaged(rows, **means).rank.checks if one.id == "profiler.cost"]
        return check.message

    assert cost(112).startswith("the profiler makes the steps 1.12x as long")
    assert "112 ms for 100 ms by the clock of the capture" in cost(112), "the trace's steps take 113 ms"
    assert "clock" not in cost(113)
