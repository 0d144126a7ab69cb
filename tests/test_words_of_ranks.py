"""What the reports of many ranks say, on the folders of `traces/`: read once, and on one screen."""

from __future__ import annotations

import functools
from pathlib import Path

from profkit.api import triage
from profkit.model.documents.report import Report
from profkit.render.terminal import triage as terminal

TRACES = Path(__file__).parent.parent / "traces"


@functools.cache
def report_of(name: str) -> Report:
    return triage([str(TRACES / name)])


def page(name: str, *, width: int = 80, verbose: bool = False) -> str:
    return terminal.render(report_of(name), width=width, color=False, verbose=verbose)


def test_equal_tokens_are_ruled_out_and_neither_evidence_nor_advice():
    said = " ".join(page("token_skew_packing_ws4").split())
    assert "unequal tokens (<0.1 % above the mean)" in said
    assert "token counts do not explain it" not in said
    assert "batches of equal tokens" not in said


def test_unequal_tokens_that_explain_no_waiting_stay_evidence():
    said = " ".join(page("token_skew_fixed_count_ws4").split())
    assert "token counts do not explain it: ranks with more tokens do not wait less: Spearman -0.32" in said
    assert "batches of equal tokens" in said


def test_less_waiting_for_more_tokens_is_a_negative_correlation():
    assert "ranks with more tokens wait less: Spearman -0.83" in page("token_skew_long_tail_ws2")


def test_what_follows_from_a_late_rank_names_all_ranks_that_wait_for_it():
    effects = report_of("ddp_straggler_ws4").fleet.explained
    assert effects[0].endswith("; rank 0 causes 94.5 % of the delay")
    assert effects[1].startswith("exposed communication of ranks 1-3: ")
