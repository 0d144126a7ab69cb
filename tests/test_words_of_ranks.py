"""What the reports of many ranks say, on the folders of `traces/`: read once, and on one screen."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from profkit.api import triage
from profkit.model.documents.report import Report
from profkit.render.terminal import triage as terminal

TRACES = Path(__file__).parent.parent / "traces"


@functools.cache
def report_of(name: str) -> Report:
    return triage([str(TRACES / name)])


def page(name: str, *, width: int = 80, verbose: bool = False) -> str:
    return terminal.render(report_of(name), width=width, color=False, verbose=verbose)


FOLDERS = [folder.name for folder in sorted(TRACES.iterdir()) if len(list(folder.glob("*.json.gz"))) > 1]


@pytest.mark.parametrize("name", FOLDERS)
def test_a_report_is_read_on_one_screen_of_80_columns(name):
    shown = page(name)
    assert len(shown.splitlines()) <= 50
    verdict = report_of(name).verdict
    said = " ".join(shown.split())
    for evidence in verdict.findings[0].evidence[:4]:
        assert evidence.statement in said
    assert verdict.next_tool.command in shown
    assert "where the step goes" in shown
    for finding in verdict.findings:  # with its reasons, or by its title alone
        assert finding.title in said


def test_what_a_screen_has_no_room_for_stands_in_the_whole_report():
    folder, verdict = "fsdp_vlm_prefetch_on", report_of("fsdp_vlm_prefetch_on").verdict
    third = verdict.findings[2]
    short, whole = (" ".join(page(folder, verbose=verbose).split()) for verbose in (False, True))
    assert f"also found {third.title} (" in short
    assert third.measure.statement not in short
    for said in (third.measure.statement, *verdict.fixes, "recorded the file says torchrun"):
        assert said in whole


def test_wide_pages_say_all_that_fits():
    """A page of 110 columns has fewer lines, and so room for more."""
    assert "recorded" in page("ddp_straggler_ws4", width=110)


def test_the_bar_says_which_parts_the_ranks_host_column_adds_up():
    assert "# host: between operators 5.7 %" in page("ddp_straggler_ws4")
    assert "host:" not in terminal.render(triage([str(TRACES / "data_cpu.pt.trace.json.gz")]), width=80, color=False)


def test_equal_tokens_are_ruled_out_and_neither_evidence_nor_advice():
    said = " ".join(page("token_skew_packing_ws4").split())
    assert "unequal tokens (<0.1 % above the mean)" in said
    assert "token counts do not explain it" not in said
    assert "step: equal tokens" not in said


def test_unequal_tokens_that_explain_no_waiting_stay_evidence():
    said = " ".join(page("token_skew_fixed_count_ws4").split())
    assert "token counts do not explain it: ranks with more tokens do not wait less: Spearman -0.32" in said
    assert "step: equal tokens" in said


def test_less_waiting_for_more_tokens_is_a_negative_correlation():
    assert "ranks with more tokens wait less: Spearman -0.83" in page("token_skew_long_tail_ws2")


def test_what_follows_from_a_late_rank_names_all_ranks_that_wait_for_it():
    effects = report_of("ddp_straggler_ws4").fleet.explained
    assert effects[0].endswith("; rank 0 causes 94.5 % of the delay")
    assert effects[1].startswith("exposed communication of ranks 1-3: ")
