"""The hand-over for a terminal: one sentence with its evidence; in full also the budgets and kernels side by side."""

from __future__ import annotations

from collections.abc import Iterable

from profkit.model.documents.handover import Handover
from profkit.render.terminal import layout
from profkit.render.terminal.layout import MARGIN, Line
from profkit.render.words import crosscheck as handover

Block = list[Line]


def block(told: Handover | None, width: int, *, is_full: bool = False) -> Block:
    """What stands after the verdict; nothing without a second tool."""
    if told is None:
        return []
    lines = layout.wrapped(layout.label("second tool"), handover.sentence(told), width, style="strong")
    for statement in handover.evidence(told, is_full=is_full):
        lines += layout.wrapped(" " * layout.LABEL_WIDTH + "- ", statement, width)
    return lines


def tables(told: Handover | None, width: int) -> Iterable[Block]:
    """The budgets and the kernels side by side, rank by rank, then the profiled kernels."""
    if told is None:
        return
    for timeline in told.timelines:
        if timeline.parts:
            head: Block = [((MARGIN + handover.title(timeline), "label"),)]
            is_text = [True, *[False] * (len(handover.PART_HEADERS) - 1)]
            yield [*head, *layout.table(handover.PART_HEADERS, handover.part_rows(timeline), is_text, width)]
            is_text = [True, True, *[False] * (len(handover.FUNCTION_HEADERS) - 2)]
            yield layout.table(handover.FUNCTION_HEADERS, handover.function_rows(timeline), is_text, width)
    if told.kernels is not None and told.kernels.kernels:
        rows = handover.kernel_rows(told.kernels)
        is_text = [True, False, True, *[False] * (len(handover.KERNEL_HEADERS) - 3)]
        yield layout.table(handover.KERNEL_HEADERS, rows, is_text, width)
