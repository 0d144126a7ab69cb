"""Numbers as evidence, a function for each unit: metric, value, sentence, and what is expected where that is known."""

from __future__ import annotations

from profkit.model.finding import Evidence


def in_ns(metric: str, value_ns: float, statement: str, expected: str | None = None) -> Evidence:
    """A time, ns."""
    return Evidence(statement, metric, float(value_ns), "ns", expected)


def as_share(metric: str, value: float, statement: str, expected: str | None = None) -> Evidence:
    """A share of something (0-1), or the difference of two."""
    return Evidence(statement, metric, value, "fraction", expected)


def as_count(metric: str, count: float, statement: str, expected: str | None = None) -> Evidence:
    """How many there are."""
    return Evidence(statement, metric, float(count), "count", expected)


def as_factor(metric: str, value: float, statement: str, expected: str | None = None) -> Evidence:
    """A number without a unit: how many times something is another."""
    return Evidence(statement, metric, value, "", expected)
