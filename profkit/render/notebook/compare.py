"""A comparison for a notebook: the answer, where the time went on both sides, why, what settles it."""

from __future__ import annotations

from typing import Final

from profkit.model.documents.comparison import Comparison
from profkit.render.notebook import elements
from profkit.render.words import compare as words
from profkit.shell import clean

_MOST_READINGS: Final = 3


def drawn(comparison: Comparison) -> str:
    """The comparison as HTML."""
    rows = words.waterfall_rows(comparison)
    configurations = words.configuration_rows(comparison)
    why = [f"{clean(one.title)}: {clean(one.measure.statement)}" for one in comparison.readings[:_MOST_READINGS]]
    first, second = words.read_names(comparison)
    return elements.page(
        elements.answer(words.answer_name(comparison), words.tone(comparison), words.answer_sentence(comparison)),
        elements.table(words.CONFIGURATION_HEADERS, configurations, is_text=(True, True, False, False, False))
        if configurations
        else None,
        elements.listed("why" if comparison.waterfall is not None else "what we saw", why),
        elements.table(words.WATERFALL_HEADERS, rows, is_text=(True, False, False, False)) if rows else None,
        elements.command("next", words.next_command(comparison)),
        elements.faded(f"baseline: {first}; candidate: {second}"),
    )
