"""Files with the events of several ranks whose numbers not all events have."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import profkit
from profkit.errors import UnsupportedTraceError
from tests.ranks.disk_jobs import Job, programs
from tests.ranks.scripted import MS, run, write

Event = dict[str, Any]


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> Path:
    """Four ranks, each its host as process 4321 and its device as process 0."""
    return write(run(programs(Job(n_steps=4, slow={1: 6 * MS}))), tmp_path_factory.mktemp("job"))


def merged(traces: Path, into: Path, of_event: Callable[[int, Event], int | None], ranks: range = range(4)) -> str:
    """One file of all these ranks' events, each with the rank that `of_event` gives it."""
    events = []
    for number in ranks:
        document = json.loads(gzip.decompress((traces / f"rank{number}.json.gz").read_bytes()))
        for event in document["traceEvents"]:
            rank = of_event(number, event)
            events.append({**event, "args": {**event["args"], **({} if rank is None else {"rank": rank})}})
    head = {key: value for key, value in document.items() if key not in ("traceEvents", "distributedInfo")}
    into.write_text(json.dumps({**head, "traceEvents": events}))
    return str(into)


def test_processes_of_one_number_are_told_apart_by_the_events_ranks(traces, tmp_path):
    report = profkit.triage([merged(traces, tmp_path / "all.json", lambda number, event: number)])
    assert report.fleet.ranks == (0, 1, 2, 3)
    assert report.verdict.rank == 1


@pytest.mark.parametrize(("is_ranked", "absent"), [("kernel", "host"), ("host", "device")])
def test_a_file_whose_other_side_names_no_rank_is_refused(traces, tmp_path, is_ranked, absent):
    def of_event(number: int, event: Event) -> int | None:
        return number if (event["cat"] == "kernel") == (is_ranked == "kernel") else None

    with pytest.raises(UnsupportedTraceError, match=f"its {absent} rows do not say which rank they are of"):
        profkit.triage([merged(traces, tmp_path / "half.json", of_event)])


def test_ranges_that_speak_of_ranks_do_not_split_the_trace_of_one(traces, tmp_path):
    """A script may note the rank it talks to."""

    def of_event(number: int, event: Event) -> int | None:
        return int(event["ts"]) % 3 if event["cat"] == "user_annotation" else None

    report = profkit.triage([merged(traces, tmp_path / "one.json", of_event, range(1))])
    assert report.fleet is None
    assert report.ranks[0].devices[0].kind == "gpu"


def test_a_rank_whose_events_name_no_rank_is_missing(traces, tmp_path):
    def of_event(number: int, event: Event) -> int | None:
        event["pid"] += 10_000 * (number + 1)
        return None if number == 2 else number

    report = profkit.triage([merged(traces, tmp_path / "three.json", of_event)])
    assert (report.fleet.ranks, report.fleet.missing) == ((0, 1, 3), (2,))
