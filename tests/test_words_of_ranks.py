"""What the reports of many ranks say, on the folders of `traces/`: read once, and on one screen."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from profkit.api import triage
from profkit.compare.captures.sides import read_side
from profkit.compare.comparison import compare
from profkit.model.documents.comparison import Comparison
from profkit.model.documents.report import Report
from profkit.render.terminal import compare as compare_terminal
from profkit.render.terminal import triage as terminal
from profkit.units import format_ns, format_signed_ns
from tests.conftest import every
from tests.ranks.scripted import MS, Group, Op, run, write

TRACES = Path(__file__).parent.parent / "traces"


@functools.cache
def report_of(name: str) -> Report:
    return triage([str(TRACES / name)])


def page(name: str, *, width: int = 80, verbose: bool = False) -> str:
    return terminal.render(report_of(name), width=width, color=False, verbose=verbose)


FOLDERS = [folder.name for folder in sorted(TRACES.iterdir()) if len(list(folder.glob("*.json.gz"))) > 1]


@pytest.mark.parametrize("name", every(3, FOLDERS, 0.6))
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
    assert f"{third.title} (" in short
    assert third.measure.statement not in short
    for said in (third.measure.statement, *verdict.fixes, "recorded with torchrun"):
        assert said in whole


def test_wide_pages_say_all_that_fits():
    """A page of 110 columns has fewer lines, and so room for more."""
    assert "recorded" in page("ddp_straggler_ws4", width=110)


def test_the_bar_says_which_parts_the_ranks_host_column_adds_up():
    assert "# host: between operators 5.7 %" in page("ddp_straggler_ws4")
    assert "host:" not in terminal.render(triage([str(TRACES / "data_cpu.pt.trace.json.gz")]), width=80, color=False)


PAIRS = [
    ("fsdp_vlm_prefetch_off", "fsdp_vlm_prefetch_on"),
    ("ddp_weak_ws4", "ddp_straggler_ws4"),
    ("token_skew_uniform_ws4", "token_skew_packing_ws4"),
    ("baseline_cpu.pt.trace.json.gz", "kernel_cpu.pt.trace.json.gz"),
]


@functools.cache
def compared(*names: str) -> Comparison:
    baseline, candidate = (str(TRACES / name) for name in names)
    return compare(read_side("baseline", [baseline]), read_side("candidate", [candidate]))


def comparison_page(names: tuple[str, str], *, verbose: bool = False) -> str:
    return compare_terminal.render(compared(*names), width=80, color=False, verbose=verbose)


@pytest.mark.parametrize("names", every(2, PAIRS, 1), ids="-".join)
def test_a_comparison_is_read_on_one_screen_of_80_columns(names):
    shown = comparison_page(names)
    assert len(shown.splitlines()) <= 50
    comparison = compared(*names)
    said = " ".join(shown.split())
    assert comparison.judgement.sentence in said
    for evidence in comparison.readings[0].evidence:
        assert evidence.statement.removeprefix("explains ") in said
    for bar in comparison.waterfall.bars:
        assert format_signed_ns(bar.delta_ns) in said or bar.baseline_ns == bar.candidate_ns == 0
    assert "profkit bench -n 8 -- COMMAND_A --vs COMMAND_B" in said


def test_collectives_that_take_longer_do_so_by_as_much_as_their_table_says():
    whole = " ".join(comparison_page(PAIRS[0], verbose=True).split())
    rows = compared(*PAIRS[0]).comm.rows
    longer = format_ns(sum(row.by_duration_ns for row in rows))
    assert f"(median of 60), in all {longer} per step longer" in whole


def test_the_first_line_of_a_comparison_says_whether_its_steps_were_profiled():
    assert "tokens per second (unprofiled): 1,006 -> 1,103 tokens/s" in " ".join(comparison_page(PAIRS[0]).split())


def test_a_check_that_fails_on_both_sides_is_said_once():
    said = comparison_page(PAIRS[2])
    assert said.count("profiler.cost") == 1


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


def test_a_barriers_delay_is_not_called_all_of_a_delay_that_elsewhere_may_be_chance():
    said = " ".join(page("ddp_barrier_ws4").split())
    assert "the others wait for rank 0 at barriers; elsewhere its delay may be chance" in said
    assert "all of the delay" not in said


def test_the_late_ranks_row_is_the_strongest():
    shown = terminal.render(report_of("ddp_straggler_ws4"), width=80, color=True)
    bold = [line for line in shown.splitlines() if line.startswith("\x1b[1m  ") and "13 of 22" in line]
    assert len(bold) == 1


def slow_hosts(rank: int) -> Iterator[Op]:
    """Steps in which every host sleeps under an all-reduce, and rank 2 loads for 20 ms longer."""
    for _ in range(10):
        yield Op(what="step")
        yield Op(what="data", ns=MS + 20 * MS * (rank == 2))
        for _ in range(6):
            yield Op(what="compute", ns=MS)
            yield Op(what="collective", name="allreduce", group=Group(name="0", ranks=(0, 1, 2)))
            yield Op(what="host", ns=3 * MS)
        yield Op(what="join")
        yield Op(what="sync")


def test_a_note_on_a_typical_rank_says_whose_it_is(tmp_path):
    """The bar is the late rank's: what is said of another rank's window must not read as its own."""
    report = triage([str(write(run({rank: slow_hosts(rank) for rank in range(3)}, transfer_ns=MS), tmp_path))])
    (note,) = [note for note in report.verdict.caveats if "communication runs alone" in note]
    assert report.verdict.rank == 2
    assert re.match(r"on rank [01]: for [\d.]+ % of the window communication runs alone", note)
    assert len(terminal.render(report, width=80, color=False).splitlines()) <= 50
