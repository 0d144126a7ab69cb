"""Whatever a file says under the keys that a capture adds, it is read: no reader fails, and the report stays JSON."""

import json
import random
from contextlib import nullcontext

import pytest

from profkit import pipeline
from profkit.model.documents.report import Report
from profkit.model.trace import Trace
from profkit.pipeline import analyse
from profkit.render import renderer_for
from profkit.testing import operator, span, trace_of
from tests.conftest import IN_FULL
from tests.drawing import in_steps
from tests.told import HOT, MS, TOLD, instead

SAMPLED = 40
"""Of the odd values for a key, tried by `make test`."""
NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
SHOWN = [renderer_for("triage", name) for name in ("json", "terminal")]


def starved(**metadata: object) -> Trace:
    """Five steps of 40 ms on a CPU that wait for workers half of the time."""
    drawn = lambda at, _: [  # noqa: E731
        span(NEXT, at, at + 20 * MS),
        operator("aten::mm", at + 21 * MS, at + 39 * MS, Input_Dims=[[8, 8], [8, 8]]),
    ]
    return trace_of(in_steps(5, 40 * MS, drawn), **metadata)


def said(**metadata: object) -> list[str]:
    """The report of such a trace, in JSON and for the terminal."""
    told = pipeline.alone(analyse(starved(**metadata)))
    rank = told.rank
    report = Report(verdict=told.verdict, ranks=(rank,), findings=rank.findings, skipped=rank.skipped)
    return [show(report) for show in SHOWN]


@pytest.mark.sampled
@pytest.mark.parametrize("key", TOLD)
def test_no_value_that_a_capture_tells_can_stop_the_report(key, monkeypatch):
    monkeypatch.setattr(pipeline, "blamed", lambda *_: nullcontext())
    document, _ = said(**TOLD)
    assert json.loads(document)["verdict"]["bottleneck"]
    values = list(instead(TOLD[key]))
    for value in values if IN_FULL else random.Random(key).sample(values, min(len(values), SAMPLED)):  # noqa: S311
        document, page = said(**{**TOLD, key: value})
        json.loads(document, parse_constant=pytest.fail)
        assert "\x1b" not in page


@pytest.mark.parametrize("odd", [{}, {"share": 1.0}, {"share": 0.9}, {"in_thirds": [0.1, 0.4, 1 - 1e-12]}])
def test_a_line_that_grows_says_something_only_where_its_shares_fit_together(odd, monkeypatch):
    monkeypatch.setattr(pipeline, "blamed", lambda *_: nullcontext())
    run = {
        **TOLD["profkit_run"],
        "rare": None,
        "slower": None,
        "memory": None,
        "lines": [{**HOT, "text": "x = torch.cat([x, y])", **odd}],
    }
    document, _ = said(profkit_run=run)
    assert ("of the first third of the run" in document) is (not odd)
