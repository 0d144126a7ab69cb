"""Twenty questions about six captures, answered from `-f agent` alone: the right number, and its id in the JSON.

The reader knows nothing of profkit. It takes the line that shares most words with the question (rare words count more)
and gives the line's number with its id. The right answer is worked out from the trace, or asked of the report by the
name of its metric, not by the id.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from functools import cache

import msgspec
import pytest

from profkit.api import triage
from profkit.ingest.read import read_traces
from profkit.model.documents.fleet import RankRow
from profkit.model.documents.report import Report
from profkit.render import renderer_for
from tests.conftest import ROOT
from tests.render.agent.pages import ID, at, rows

CAPTURES = {
    "data": "data_cpu.pt.trace.json.gz",
    "overhead": "overhead_cpu.pt.trace.json.gz",
    "kernel": "kernel_cpu.pt.trace.json.gz",
    "baseline": "baseline_cpu.pt.trace.json.gz",
    "straggler": "ddp_straggler_ws4",
    "tokens": "token_skew_long_tail_ws2",
}


class Told(msgspec.Struct, frozen=True):
    """A number or a word of the page, and its id."""

    value: str
    id: str


@cache
def report_on(name: str) -> Report:
    return triage([ROOT / "traces" / CAPTURES[name]])


@cache
def page_of(name: str) -> str:
    return renderer_for("triage", "agent")(report_on(name))


def words_of(text: str) -> set[str]:
    return set(re.findall(r"[a-z][a-z_-]+|\d+", text.lower().replace("_", " ")))


def answer(page: str, question: str) -> Told:
    """What a reader finds who looks for the question's words; of two lines with as many of them the shorter."""
    asked = words_of(question)
    found = [told for line in page.splitlines()[1:] for told in told_by(line)]
    n_lines = Counter(word for words, _ in found for word in words)

    def likeness(words: set[str]) -> float:
        return sum(math.log(2 * len(found) / n_lines[word]) for word in asked & words) / math.sqrt(len(words) + 8)

    return max(found, key=lambda one: likeness(one[0]))[1]


def told_by(line: str) -> list[tuple[set[str], Told]]:
    """Each number of a line, with the words that speak of it."""
    for label, values, path in rows(f"\n{line}"):
        return [(words_of(f"{label} {name}"), Told(value, f"{path}.{name}")) for name, value in values.items()]
    found = re.match(rf"\s*(.*?) = (\S+)(?: [^\[\]]*?)? {ID}(.*)", line)
    return [(words_of(f"{found[1]} {found[4]}"), Told(found[2], found[3]))] if found else []


def part(name: str, of: str) -> int:
    """A part of the main device's budget, ns."""
    (device,) = report_on(name).ranks[0].devices
    return getattr(device.budget, of)


def seen(name: str, finding: str, metric: str) -> float:
    """The number of a piece of evidence, by its finding and metric."""
    return next(one for one in report_on(name).findings if one.id == finding).seen(metric).value


def step_ns(name: str) -> int:
    """The window that the trace's marked steps span, by their number."""
    (trace,) = read_traces(str(ROOT / "traces" / CAPTURES[name]))
    return round((trace.steps[-1].end_ns - trace.steps[0].start_ns) / len(trace.steps))


def of_rank(name: str, rank: int) -> RankRow:
    fleet = report_on(name).fleet
    assert fleet is not None
    return next(one for one in fleet.rows if one.ranks == (rank,))


Question = tuple[str, str, str, Callable[[], float | str]]
QUESTIONS: list[Question] = [
    ("data", "What is the verdict?", "verdict.bottleneck", lambda: "data-bound"),
    ("data", "How long is a step in ms?", "verdict.step_ns", lambda: step_ns("data")),
    ("data", "What is the speed-up ceiling?", "verdict.speedup_ceiling",
     lambda: step_ns("data") / (step_ns("data") - report_on("data").verdict.recoverable_ns)),
    ("data", "How long is the part idle_data?", "ranks[0].devices[0].budget_ns.idle_data",
     lambda: part("data", "idle_data")),
    ("data", "How long does the training thread wait for the DataLoader?", "findings[0].evidence[0]",
     lambda: seen("data", "input.starved", "budget_ns.idle_data")),
    ("overhead", "What is the verdict?", "verdict.bottleneck", lambda: "overhead-bound"),
    ("overhead", "How long is the recorded step?", "verdict.recorded_step_ns", lambda: step_ns("overhead")),
    ("overhead", "What share of small operators is there per step?", "findings[0].evidence[1]",
     lambda: seen("overhead", "host.launch_bound", "launches.small_operator_fraction")),
    ("overhead", "How large is the part idle_launch, dispatch?", "ranks[0].devices[0].budget_ns.idle_launch",
     lambda: part("overhead", "idle_launch")),
    ("kernel", "What share of operator time is limited by memory bandwidth?", "findings[0].evidence[0]",
     lambda: seen("kernel", "kernel.unfused", "kernels.memory_share")),
    ("kernel", "How much does a fix save at most?", "verdict.most_recoverable_ns",
     lambda: report_on("kernel").verdict.most_recoverable_ns or 0),
    ("kernel", "How large is the part compute?", "ranks[0].devices[0].budget_ns.compute",
     lambda: part("kernel", "compute")),
    ("baseline", "What is the verdict?", "verdict.bottleneck", lambda: "kernel-bound"),
    ("baseline", "What is the confidence?", "verdict.confidence", lambda: report_on("baseline").verdict.confidence),
    ("baseline", "By how much do the steps vary?", "ranks[0].steps.cv",
     lambda: report_on("baseline").ranks[0].steps.cv or 0),
    ("straggler", "How much later does rank 0 arrive than the median rank?", "findings[0].evidence[0]",
     lambda: seen("straggler", "straggler.rank", "straggler.lateness_ns")),
    ("straggler", "What is comm_wait_ns of rank 2?", "fleet.rows[2].comm_wait_ns",
     lambda: of_rank("straggler", 2).wait_ns or 0),
    ("straggler", "What is the predicted step with rank 0 as fast as its peers?", "fleet.prediction.predicted_ns",
     lambda: report_on("straggler").fleet.prediction.predicted_ns),
    ("tokens", "How many tokens more than the mean has the rank with the most?", "findings[0].evidence[0]",
     lambda: seen("tokens", "token.skew", "tokens.skew_fraction")),
    ("tokens", "Which share of computed tokens is padding: how many are real?", "findings[1].evidence[0]",
     lambda: seen("tokens", "padding.waste", "padding.waste_fraction")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "question", "path", "truth"), QUESTIONS)
def test_the_page_answers(name: str, question: str, path: str, truth: Callable[[], float | str]) -> None:
    told = answer(page_of(name), question)
    assert told.id == path
    document = json.loads(renderer_for("triage", "json")(report_on(name)))
    right = truth()
    assert at(document, told.id) == (right if isinstance(right, str) else pytest.approx(right, rel=1e-9))
    assert told.value == right if isinstance(right, str) else float(told.value) == pytest.approx(right, rel=1e-5)


def test_there_are_twenty_about_six_captures() -> None:
    assert len(QUESTIONS) == 20
    assert {name for name, *_ in QUESTIONS} == set(CAPTURES)
