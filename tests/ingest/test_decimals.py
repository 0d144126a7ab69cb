"""Decimal microseconds become nanoseconds exactly, whatever their digits."""

from decimal import ROUND_HALF_EVEN, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.ingest.kineto.decimals import DecimalError, us_to_ns

whole = st.integers(0, 9 * 10**15).map(str)
three_digits = st.builds("{}.{:03}".format, st.integers(0, 9 * 10**15), st.integers(0, 999))
any_digits = st.builds("{}.{}".format, st.integers(-(10**9), 10**15), st.text("0123456789", min_size=1, max_size=12))
exponents = st.builds("{}e{}".format, st.integers(-999, 999), st.integers(-4, 9))


def oracle(text: str) -> int:
    return int((Decimal(text) * 1000).to_integral_value(ROUND_HALF_EVEN))


@pytest.mark.parametrize("numbers", [whole, three_digits, any_digits, exponents, whole | three_digits | any_digits])
def test_equals_decimal_arithmetic(numbers: st.SearchStrategy[str]) -> None:
    @given(st.lists(numbers, max_size=30))
    def check(texts: list[str]) -> None:
        assert us_to_ns([text.encode() for text in texts]).tolist() == [oracle(text) for text in texts]

    check()


def test_a_unix_time_keeps_its_last_digits() -> None:
    assert us_to_ns([b"1732109889123456.789"]).tolist() == [1732109889123456789]
    assert us_to_ns([b"1732109889123456.789", b"0.001"]).tolist() == [1732109889123456789, 1]


@pytest.mark.parametrize(
    "number",
    [
        b'"12.5"',
        b"",
        b"1.",
        b".5",
        b"+1",
        b"1_000",
        b" 1",
        b"1e99999999999999999999",
        b"null",
        b"true",
        b"[1]",
        b"NaN",
        b"1e999999999",
        b"9223372036854775.808",
        b"99999999999999999999",
    ],
)
def test_what_is_no_number_or_does_not_fit_is_refused_with_its_row(number: bytes) -> None:
    with pytest.raises(DecimalError) as caught:
        us_to_ns([b"1.000", b"2.000", number])
    assert caught.value.row == 2


def test_more_digits_than_a_decimal_context_holds_round_once() -> None:
    """At 28 digits the first number would become 1000.5, and then, half to even, 1000."""
    texts = [b"1.0005000000000000000000000000000000000001", b"1.0005", b"1.0015", b"-1.0005"]
    assert us_to_ns(texts).tolist() == [1001, 1000, 1002, -1000]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"9223372036854775.807", 2**63 - 1),
        (b"-9223372036854775.807", 1 - 2**63),
        (b"9223372036854775", 9_223_372_036_854_775_000),
        (b"0.5", 500),
        (b"0", 0),
        (b"-0.001", -1),
        (b"1e-400", 0),
    ],
)
@pytest.mark.parametrize("company", [[], [b"1.000"], [b"1"], [b"1.5"], [b"-1.25"], [b"1e3"]])
def test_the_edges_of_the_range_in_any_company(text: bytes, expected: int, company: list[bytes]) -> None:
    assert us_to_ns([*company, text]).tolist()[-1] == expected


def test_nothing_in_nothing_out() -> None:
    assert us_to_ns([]).size == 0
