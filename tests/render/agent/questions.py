"""Twenty questions about six captures, and a reader that knows nothing of profkit.

It takes the line of a page that shares most words with the question (rare words count more) and gives the line's number
with its id. The right answer is worked out from the events of the trace, by plain Python, or is what the workload was
built to do, or is asked of the report by the name of its metric, not by the id.
"""

import gzip
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from itertools import pairwise
from statistics import mean, stdev

import msgspec

from profkit.api import triage
from profkit.model.documents.fleet import RankRow
from profkit.model.documents.report import Report
from profkit.render import renderer_for
from tests.conftest import ROOT
from tests.render.agent.pages import ID, rows

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


@cache
def marked_steps(name: str) -> list[tuple[Decimal, Decimal]]:
    """Start and end of each marked step, us, as the file has them."""
    with gzip.open(ROOT / "traces" / CAPTURES[name]) as file:
        events = json.load(file, parse_float=Decimal)["traceEvents"]  # floats would round to half a ns
    marks = [one for one in events if one["name"].startswith("ProfilerStep#") and one["ph"] == "X"]
    return sorted((one["ts"], one["ts"] + one["dur"]) for one in marks)


def step_ns(name: str) -> int:
    """The window that the marked steps span, by their number."""
    steps = marked_steps(name)
    return round(1000 * (steps[-1][1] - steps[0][0]) / len(steps))


def variation(name: str) -> float:
    """The standard deviation of the steps over their mean; each lasts until the next begins, the last to its end."""
    begins = [begin for begin, _ in marked_steps(name)]
    lengths = [end - begin for begin, end in pairwise([*begins, marked_steps(name)[-1][1]])]
    return float(stdev(lengths) / mean(lengths))


def built(name: str) -> str:
    """The verdict that the workload was built for."""
    told = tomllib.loads((ROOT / "traces" / "MANIFEST.toml").read_text())["trace"]
    return next(one["bottleneck"] for one in told if one["file"] == CAPTURES[name])


def of_rank(name: str, rank: int) -> RankRow:
    fleet = report_on(name).fleet
    assert fleet is not None
    return next(one for one in fleet.rows if one.ranks == (rank,))


Question = tuple[str, str, str, Callable[[], float | str]]
QUESTIONS: list[Question] = [
    ("data", "What is the verdict?", "verdict.bottleneck", lambda: built("data")),
    ("data", "How long is a step in ms?", "verdict.step_ns", lambda: step_ns("data")),
    ("kernel", "What is the speed-up ceiling?", "verdict.speedup_ceiling",
     lambda: step_ns("kernel") / (step_ns("kernel") - report_on("kernel").verdict.recoverable_ns)),
    ("data", "How long is the part idle_data?", "ranks[0].devices[0].budget_ns.idle_data",
     lambda: part("data", "idle_data")),
    ("data", "How long does the training thread wait for the DataLoader?", "findings[0].evidence[0]",
     lambda: seen("data", "input.starved", "budget_ns.idle_data")),
    ("overhead", "What is the verdict?", "verdict.bottleneck", lambda: built("overhead")),
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
    ("baseline", "What is the verdict?", "verdict.bottleneck", lambda: built("baseline")),
    ("baseline", "What is the confidence?", "verdict.confidence", lambda: report_on("baseline").verdict.confidence),
    ("baseline", "By how much do the steps vary?", "ranks[0].steps.cv",
     lambda: variation("baseline")),
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
