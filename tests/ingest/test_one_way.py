"""Python's one way to read a batch: times read as numbers are those of their text, and each event stands for itself."""

import json
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.ingest.kineto.batch import columns_of, decode_batch
from profkit.ingest.kineto.decimals import numbers_to_ns, us_to_ns
from profkit.ingest.kineto.events import AS_TEXT, BadEventError, decode_events, quick_decoder
from tests.conftest import examples
from tests.ingest.both_ways import by_python_alone, exact
from tests.ingest.test_same_trace import EVENTS, other, x


def by_text(array: bytes) -> Any:
    """The batch with all times read as text, or the error."""
    try:
        return exact(columns_of(array, AS_TEXT))
    except BadEventError as error:
        return str(error)


def by_numbers_first(array: bytes) -> Any:
    """The batch as Python reads it, or the error."""
    try:
        with by_python_alone():
            return exact(decode_batch(array))
    except BadEventError as error:
        return str(error)


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
def test_times_are_read_as_numbers_and_give_the_same(ts: str, read_as: type) -> None:
    events = [event | {"ts": f"@{ts.format(row)}@"} for row, event in enumerate(EVENTS)]
    array = json.dumps(events).replace('"@', "").replace('@"', "").encode()
    decoder = quick_decoder(array)
    assert {type(event.ts) for event in decode_events(array, decoder)} == {read_as}
    assert exact(columns_of(array, decoder)) == by_numbers_first(array) == by_text(array)


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
        st.tuples(st.integers(0, 11), st.sampled_from(["ts", "dur", "pid", "tid", "id", "cat", "ph", "args"]), VALUES)
    ),
    arguments=st.lists(st.tuples(st.integers(0, 11), st.sampled_from(sorted(EVENTS[6]["args"])), VALUES)),
)
def test_an_event_is_good_or_bad_in_any_company(
    rows: list[dict[str, Any]], changes: list[tuple[int, str, Any]], arguments: list[tuple[int, str, Any]]
) -> None:
    events = [{**row, **({"args": dict(row["args"])} if "args" in row else {})} for row in rows]
    for place, key, value in arguments:
        if place < len(events) and "args" in events[place]:
            put(events[place]["args"], key, value)
    for place, key, value in changes:
        if place < len(events):
            put(events[place], key, value)
    together = by_text(json.dumps(events).encode())
    assert by_numbers_first(json.dumps(events).encode()) == together
    alone = [by_text(json.dumps([event]).encode()) for event in events]
    errors = [outcome for outcome in alone if isinstance(outcome, str)]
    assert together in errors if errors else not isinstance(together, str)


@pytest.mark.parametrize("cat", ["user_annotation", "kernel", "ac2g", "unheard-of"])
@pytest.mark.parametrize("args", [5, "text", [1], True])
def test_arguments_that_are_no_object_are_refused_of_any_event(args: object, cat: str) -> None:
    array = json.dumps([x("cpu_op", "a", 1, 2), x(cat, "b", 1, 2) | {"args": args}]).encode()
    with pytest.raises(BadEventError, match=r"object \| null.*'event.args'$"):
        decode_batch(array)


def test_no_category_and_an_empty_one_are_the_same() -> None:
    array = json.dumps([other("i", "", "a", 1), {"ph": "i", "name": "b", "ts": 2}]).encode()
    batch = decode_batch(array)
    assert (batch.n_events, batch.categories) == (2, {"i": 2})
    assert by_numbers_first(array) == exact(batch)


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
