"""The fast way to read usual events gives what the general way gives, to the last bit, or steps aside."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from profkit.ingest.kineto import fast_decoder as usual
from profkit.ingest.kineto.batch import decode_batch
from profkit.ingest.kineto.decimals import numbers_to_ns, us_to_ns
from tests.conftest import examples
from tests.ingest.test_same_trace import EVENTS

USUAL = [event for event in EVENTS if event["ph"] != "M"]


def as_plain(batch: Any) -> dict[str, Any]:
    """A batch as lists, its strings and threads in their order: equal only where everything is."""
    tables = {
        table: {name: (column.tolist(), str(column.dtype)) for name, column in columns.items()}
        for table, columns in batch.tables.items()
    }
    return {**asdict(batch), "tables": tables}


@pytest.mark.parametrize(
    ("ts", "read_as"),
    [
        ("1669783687464{:03}", int),
        ("4321002190{:03}.498", float),
        ("6024470669{:03}.001", msgspec.Raw),
        ("1669783687464{:03}.498", msgspec.Raw),
    ],
    ids=["whole since 1970", "since 50 days", "since 70 days", "decimals since 1970"],
)
def test_all_usual_events_go_the_fast_way_and_give_the_same(ts, read_as):
    events = [event | {"ts": f"@{ts.format(row)}@"} for row, event in enumerate(USUAL)]
    array = json.dumps(events).replace('"@', "").replace('@"', "").encode()
    groups = usual.decode_usual(array)
    assert groups is not None
    assert {type(event.ts) for (_, phase), rows in groups.items() if phase == "X" for event in rows} == {read_as}
    assert as_plain(decode_batch(array)) == as_plain(decode_batch(array, every_argument=True))


GONE = object()
VALUES = st.one_of(
    st.just(GONE),
    st.integers(-3, 2**63),
    st.floats(-1, 1e16),
    st.none(),
    st.booleans(),
    st.just("stream 7"),
    st.just([1, "2", None]),
)


def put(where, key, value):
    if value is GONE:
        where.pop(key, None)
    else:
        where[key] = value


@settings(max_examples=examples(150), deadline=None)
@given(
    rows=st.lists(st.sampled_from(EVENTS), max_size=12),
    changes=st.lists(
        st.tuples(st.integers(0, 11), st.sampled_from(["ts", "dur", "pid", "tid", "id", "cat", "ph"]), VALUES)
    ),
    arguments=st.lists(st.tuples(st.integers(0, 11), st.sampled_from(sorted(EVENTS[6]["args"])), VALUES)),
)
def test_both_ways_give_the_same_columns_or_the_same_refusal(rows, changes, arguments):
    events = [{**row, **({"args": dict(row["args"])} if "args" in row else {})} for row in rows]
    for place, key, value in changes:
        if place < len(events):
            put(events[place], key, value)
    for place, key, value in arguments:
        if place < len(events) and "args" in events[place]:
            put(events[place]["args"], key, value)
    array = json.dumps(events).encode()
    outcomes = []
    for every_argument in (False, True):
        try:
            outcomes.append(as_plain(decode_batch(array, every_argument=every_argument)))
        except ValueError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


@given(
    st.lists(
        st.one_of(
            st.integers(0, 2**45).map(str),
            st.tuples(st.integers(0, 2**43), st.integers(0, 10**9), st.integers(1, 9)).map(
                lambda parts: f"{parts[0]}.{parts[1] % 10 ** parts[2]:0{parts[2]}}"
            ),
            st.sampled_from(["0.0005", "1.0015", "4398046511103.9995", "2199023255552.4995", "0.4999999999999999999"]),
        ),
        min_size=1,
    )
)
def test_a_number_that_went_through_a_float_is_exact_or_refused(texts):
    found = numbers_to_ns(np.array([float(text) for text in texts]))
    if found is not None:
        exact = [int((Decimal(text) * 1000).to_integral_value()) for text in texts]
        assert found.tolist() == exact == us_to_ns([text.encode() for text in texts]).tolist()


@pytest.mark.parametrize("number", [-0.001, 2.0**42, 1.00049, float("inf"), float("nan")])
def test_what_a_float_cannot_tell_is_left_to_the_text(number):
    assert numbers_to_ns(np.array([1.5, number])) is None


def test_usual_numbers_need_no_text():
    assert numbers_to_ns(np.array([0.0, 1.5, 34.0, 1234567.891])).tolist() == [0, 1500, 34000, 1234567891]
