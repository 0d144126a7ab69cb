"""Quantities as people read them."""

import pytest

from profkit.units import (
    format_bytes,
    format_change,
    format_count,
    format_effect,
    format_fraction,
    format_ns,
    format_quantity,
    format_speedup,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 us"),
        (7_350, "7.35 us"),
        (41_200_000, "41.2 ms"),
        (999_499, "999 us"),
        (999_600, "1.00 ms"),
        (12_500_000_000, "12.5 s"),
        (-3_000, "-3.00 us"),
    ],
)
def test_durations(value: int, text: str) -> None:
    assert format_ns(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0.0 %"), (0.0001, "<0.1 %"), (0.461, "46.1 %"), (1, "100.0 %")])
def test_fractions(value: float, text: str) -> None:
    assert format_fraction(value) == text


def test_the_rest() -> None:
    assert format_count(3264) == "3,264"
    assert format_count(0.5) == "0.5"
    assert format_bytes(12_900_000_000) == "12.9 GB"
    assert format_bytes(640) == "640 B"
    assert format_speedup(1.736) == "1.74x"


def test_changes_are_signed() -> None:
    assert format_change(0.0158) == "+1.6 %"
    assert format_change(-0.0333) == "-3.3 %"
    assert format_effect(0.071) == "7.1 %"
    assert format_effect(19.38) == "20.4x"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3164.0, "tokens/s", "3,164 tokens/s"),
        (12.94, "GB", "12.9 GB"),
        (4.0, "", "4.00"),
        (41_400_000, "ns/step", "41.4 ms/step"),
        (2e9, "ns", "2.00 s"),
    ],
)
def test_measured_values_carry_their_unit(value: float, unit: str, text: str) -> None:
    assert format_quantity(value, unit) == text


def test_what_is_beyond_all_sense_is_not_given_in_digits() -> None:
    assert format_change(-116_509_379.058) == "beyond -100,000 %"
    assert format_change(1e9) == "beyond +100,000 %"
    assert format_change(999.0) == "+99900.0 %"
    assert format_fraction(1e9) == "more than 100,000 %"
    assert format_speedup(1e9) == "more than 1,000x"
