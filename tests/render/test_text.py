"""Shares add up, sentences say what they should, names do no harm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profkit.model.budget import Budget
from profkit.model.finding import Severity
from profkit.render.words import triage as text
from profkit.shell import clean
from tests.render import reports

PARTS = tuple(reports.budget(9).parts)


@given(st.lists(st.integers(min_value=0, max_value=10**12), min_size=9, max_size=9))
def test_shares_add_up_and_are_near_the_truth(sizes: list[int]) -> None:
    budget = Budget(window_ns=sum(sizes), **dict(zip(PARTS, sizes, strict=True)))
    shares = budget.tenths
    assert list(shares) == list(PARTS)
    assert sum(shares.values()) == (1000 if budget.window_ns else 0)
    for name, share in shares.items():
        assert share / 1000 == pytest.approx(budget.fraction(name), abs=0.001)
        assert share == 0 or budget.parts[name] > 0
        assert share > 0 or 1000 * budget.parts[name] < max(budget.window_ns, 1)


def test_thirds_add_up() -> None:
    shares = reports.budget(3, idle_data=1, idle_sync=1).tenths
    assert [shares["compute"], shares["idle_data"], shares["idle_sync"]] == [334, 333, 333]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain [bold]name[/]", "plain [bold]name[/]"),
        ("a\x1b[31mb", "a?[31mb"),
        ("two\nlines\tand\r\n", "two lines and  "),
        ("\u202egnp.exe\u200b\x9b\ud800", "?gnp.exe???"),
        ("核 and é", "核 and é"),
    ],
)
def test_names_are_made_harmless(raw: str, shown: str) -> None:
    assert clean(raw) == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("aten::add_", "aten::add_"),
        (
            "void at::native::elementwise_kernel<4, at::native::FillFunctor<int> >(int)",
            "elementwise_kernel<FillFunctor>",
        ),
        ("ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*)", "ncclDevKernel_AllReduce_Sum_f16_RING_LL"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
    ],
)
def test_names_lose_what_nobody_reads(name: str, shown: str) -> None:
    assert text.name_cell(name) == shown


@pytest.mark.parametrize(
    "place",
    [
        "train.py:83 in step(): loss.item()",
        "forward() (model.py:5) calling Linear",
        "__getitem__() in data.py, by timm",
        "<listcomp> (model.py:12)",
        "train.py outside functions calling step()",
        "<lambda> in model.py",
    ],
)
def test_a_place_in_a_table_keeps_its_line(place: str) -> None:
    assert text.name_cell(place) == place


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (41_200_000, "ns", "41.2 ms"),
        (0.461, "fraction", "46.1 %"),
        (3264, "count", "3,264"),
        (12_900_000_000, "bytes", "12.9 GB"),
        ("a\nb", "text", "a b"),
        (None, "ns", "-"),
        ("mixed", "count", "mixed"),
    ],
)
def test_cells(value: object, unit: str, shown: str) -> None:
    assert text.cell(value, unit) == shown


def test_step_sentences() -> None:
    report = reports.overhead()
    assert text.step_sentence(report) == "Step 41.2 ms (5 steps, varies by 2.0 %)"
    assert text.step_sentence(reports.no_steps()) == "Window 206 ms, no steps found"
    assert text.step_sentence(reports.failure_only()) == ""
    found = replace(report.ranks[0].steps, source="period", n=1)
    one = replace(report, ranks=(replace(report.ranks[0], steps=found),))
    assert text.step_sentence(one) == "Step 41.2 ms (1 step, found by their period)"


def test_gain_sentences() -> None:
    answer = reports.overhead().verdict
    assert text.gain_sentence(answer) == "At best 1.74x faster: a fix saves at most 17.5 ms per step"
    assert text.gain_sentence(replace(answer, speedup_ceiling=None)) == ("A fix saves at most 17.5 ms per step")
    assert text.gain_sentence(replace(answer, recoverable_ns=0)) == ""


def test_the_verdict_speaks_of_its_own_rank() -> None:
    report = reports.two_ranks()
    shown = text.shown_rank(report)
    assert shown is not None
    assert shown.rank == 1
    assert text.shown_rank(reports.failure_only()) is None


def test_a_table_of_traces_tells_each_from_the_others() -> None:
    first = reports.two_ranks().ranks[0]
    names = {"a/run_with_a_long_name_1.pt.trace.json.gz": 0, "a/run_with_a_long_name_2.json": 1}
    ranks = [replace(first, rank=number, source=source) for source, number in names.items()]
    assert text.rank_labels(ranks) == ("rank", ("0", "1"))
    same = [replace(rank, rank=0) for rank in ranks]
    assert text.rank_labels(same) == ("trace", ("run_with_a_long_name_1", "run_with_a_long_name_2"))
    near = [replace(first, rank=None, source=f"a/run_{place}_with_a_long_name.json") for place in range(2)]
    assert text.rank_labels(near) == ("trace", ("run_0_with_a_lo…", "run_1_with_a_lo…"))
    twins = [replace(first, rank=None, source=f"{folder}/t.json") for folder in "ab"]
    assert text.rank_labels(twins) == ("trace", ("a/t", "b/t"))


def test_other_findings_are_one_per_id_the_worst_first() -> None:
    report = reports.overhead()
    mild = replace(reports.UNFUSED, severity=Severity.LOW, rank=3)
    other = replace(reports.UNFUSED, id="precision.fallback", severity=Severity.HIGH)
    more = replace(report, findings=(mild, *report.findings, other))
    assert [(item.id, item.severity) for item in text.other_findings(more)] == [
        ("precision.fallback", Severity.HIGH),
        ("kernel.unfused", Severity.MEDIUM),
    ]


def test_a_failed_check_is_said_once() -> None:
    report = reports.inconclusive()
    assert text.caveats(report) == ["one run shows where time goes, not whether a change helps"]
    quiet = replace(report, verdict=replace(report.verdict, headline="no"))
    assert text.caveats(quiet) == [
        "94.7 % of 3,264 kernel launches have no kernel in the trace (check launches.lost)",
        "one run shows where time goes, not whether a change helps",
    ]
