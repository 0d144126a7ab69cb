"""Decimal microseconds become nanoseconds exactly, whatever their digits."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.ingest.decimals import DecimalError, us_to_ns

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
    [b'"12.5"', b"null", b"true", b"[1]", b"NaN", b"1e999999999", b"9223372036854775.808", b"99999999999999999999"],
)
def test_what_is_no_number_or_does_not_fit_is_refused_with_its_row(number: bytes) -> None:
    with pytest.raises(DecimalError) as caught:
        us_to_ns([b"1.000", b"2.000", number])
    assert caught.value.row == 2


def test_nothing_in_nothing_out() -> None:
    assert us_to_ns([]).size == 0
