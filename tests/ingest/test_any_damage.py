"""A file damaged anywhere, in any way: a trace or a ProfkitError, the same in pieces of any size."""

import json
import random
import re
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profkit.errors import ProfkitError
from profkit.ingest.kineto.reader import read_trace
from tests.conftest import examples
from tests.ingest.test_same_trace import EVENTS

LONG = "9" * 5000  # Python refuses to turn more than 4,300 digits into an integer
TOKENS = [*'"\\{}[],: \n0', "null", "NaN", "1e999", "-1", '"\\ud800"', '"x":[[]],', '"ts":1,', '"traceEvents":[', LONG]


REFUSALS = {"TraceFormatError", "TruncatedTraceError", "UnsupportedTraceError"}


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Give the text with a few places overwritten, left out, repeated, or a whole value exchanged."""
    for _ in range(rng.choice([1, 1, 2, 4])):
        place, token = rng.randrange(len(data)), rng.choice(TOKENS).encode()
        values = list(re.finditer(rb':\s*("(?:[^"\\]|\\.)*"|-?[\d.]+|\[[^\]]*\])', data))
        value = rng.choice(values) if values else None
        spans = [
            (place, place + 1),
            (place, place),
            (place, place + rng.choice([1, 3, 30, 300])),
            value.span(1) if value else (place, place),
        ]
        start, stop = rng.choice(spans)
        data = data[:start] + rng.choice([token, b""]) + data[stop:]
    return data or b" "


@settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), chunk_bytes=st.sampled_from([1, 60, 400]))
def test_whatever_is_done_to_a_file(seed: int, chunk_bytes: int, tmp_path: Path) -> None:
    rng = random.Random(seed)  # noqa: S311 - a seed of hypothesis, so that it can make it smaller
    whole = json.dumps({"distributedInfo": {"rank": 1}, "traceEvents": EVENTS, "traceName": "t"}).encode()
    data = damaged(whole, rng)
    path = tmp_path / "damaged.json"
    path.write_bytes(data)
    outcomes: list[int | str] = []
    for options in ({}, {"chunk_bytes": chunk_bytes}, {"lenient": True}):
        try:
            outcomes.append(read_trace(str(path), **options).meta.n_events)
        except ProfkitError as error:
            is_proper = error.exit_code == 3 and "\n" not in error.message and "damaged.json" in error.message
            outcomes.append(type(error).__name__ if is_proper else error.message)
    assert {outcome for outcome in outcomes if isinstance(outcome, str)} <= REFUSALS
    assert outcomes[0] == outcomes[1]
    assert isinstance(outcomes[0], str) or outcomes[0] == outcomes[2]
