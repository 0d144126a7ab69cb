"""Pages: what they say is what the terminal says, their numbers add up, and nothing in a trace is obeyed."""

import itertools
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import profkit
from profkit.cli import group
from profkit.model.budget import PARTS
from profkit.model.code import CodePlace, Phase, PlaceShare
from profkit.model.documents.comparison import Comparison
from profkit.model.documents.report import Report
from profkit.model.documents.tracks import CATEGORIES, Role, Track
from profkit.pipeline import analyse, triage_trace
from profkit.render import formats_of, renderer_for
from profkit.render.html.page import Hider
from profkit.render.html.parts import bars, lanes, rows, tables
from profkit.render.html.triage import Links
from profkit.render.words import compare as compare_words
from profkit.render.words import triage as words
from profkit.shell import clean, line_of
from profkit.testing import kernel, launch, operator, span, trace_of
from profkit.tracks import tracks_of
from tests.conftest import ROOT
from tests.render.documents import DOCUMENTS as DRAWN
from tests.render.pages import Page, checked
from tests.render.reports import ALL, overhead, two_ranks

HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover=alert(1) x='",
    "javascript:alert(1)",
    "]]><!-- --!> <?php ?> </style></title></textarea>",
    "&lt;b&gt; &#60;script&#62;",
    "\u202egnp.exe\u2066\u200f",
    "\ud800lone\udfff",
    "{{ 7 * 7 }} {% for %} ${x}",
    "line\nbreak\x00\x1b[31m\x07",
)
TRACES = ROOT / "traces"
STARTER = "kernel_cpu.pt.trace.json.gz"
MOST_BYTES = 1_500_000


@cache
def drawn(name: str) -> Report:
    """The report on a trace of the repository, with its rows."""
    return profkit.triage(str(TRACES / name), with_tracks=True)


def page_of(document: str, value: Any, *, with_paths: bool = False) -> Page:
    """The page of a document, of which all holds that must hold of any page."""
    return checked(renderer_for(document, "html")(value, with_paths=with_paths))


# ------------------------------------------------------------------------------------------------------------- any page


@pytest.mark.parametrize(("kind", "name"), DRAWN, ids="-".join)
def test_every_document_is_a_whole_and_harmless_page(kind: str, name: str, tmp_path: Path) -> None:
    value = DRAWN[kind, name](tmp_path)
    assert "html" in formats_of(kind)
    for with_paths in (False, True):
        page = page_of(kind, value, with_paths=with_paths)
        assert page.ids.count("main") == 1
        assert ("--with-paths was asked for" in page.text) == with_paths


@pytest.mark.parametrize("name", ["overhead_cpu.pt.trace.json.gz", "ddp_straggler_ws4", "fsdp_vlm_prefetch_off"])
def test_the_page_of_a_trace_links_to_what_it_draws(name: str) -> None:
    report = drawn(name)
    html = renderer_for("triage", "html")(report)
    page = checked(html)
    assert sum(link.startswith("#see=") for link in page.links) > 5
    assert len(html) - len(page.scripts["profkit-data"]) < MOST_BYTES
    assert [rank["rank"] for rank in page.meta["ranks"]] == [one.rank for one in report.tracks]


def test_a_sentence_on_a_rank_leads_to_that_rank() -> None:
    report = drawn("ddp_straggler_ws4")
    first = next(finding for finding in report.verdict.findings if finding.id == "comm.exposed")
    said = next(item for item in first.evidence if "on rank 2" in item.statement)
    links = Links(report.tracks)
    assert links.to_evidence(first, said) == "#see=finding:comm.exposed&rank=2"
    assert links.to_evidence(first, replace(said, statement="on rank 77")) == ""


def test_without_rows_a_sentence_is_no_link() -> None:
    assert not [link for link in page_of("triage", overhead()).links if link.startswith("#see=")]


# --------------------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize("name", sorted(set(ALL) - {"hostile"}))
def test_the_page_says_what_the_terminal_says(name: str) -> None:
    report = ALL[name]
    verdict, page = report.verdict, page_of("triage", report)
    wanted = [
        words.verdict_name(verdict),
        words.headline(verdict),
        words.step_sentence(report),
        words.gain_sentence(verdict),
        verdict.next_tool.command,
        verdict.proof,
        *verdict.fixes,
        *verdict.ruled_out,
        *words.caveats(report),
        *(statement for reason in words.reasons(verdict) for statement in reason.statements),
        *(finding.title for finding in words.other_findings(report)),
    ]
    for said in wanted:
        assert " ".join(clean(said).split()) in page.text


def test_the_first_screen_comes_in_the_order_in_which_it_is_needed() -> None:
    report = overhead()
    text = page_of("triage", report).text
    said = ["OVERHEAD-BOUND", "confidence high", "Step 41.2 ms", "Where the step goes".lower(), "3,264 operations"]
    places = [text.lower().index(one.lower()) for one in [*said, "Run next", "What limits this verdict"]]
    assert places == sorted(places)


def test_an_open_verdict_has_its_next_command_before_its_budget() -> None:
    text = page_of("triage", ALL["inconclusive"]).text
    assert text.index("Run next") < text.index("what was recorded")


def test_a_view_without_data_says_what_would_give_it() -> None:
    report = replace(overhead(), skipped=(replace(overhead().skipped[0], analyzer="allocations"),))
    assert "Not in this capture: no memory events. To have it: profile_memory=True" in page_of("triage", report).text


# --------------------------------------------------------------------------------------------------------------- sums


@pytest.mark.parametrize("name", sorted(set(ALL) - {"failure_only"}))
def test_the_parts_of_the_bar_add_up(name: str) -> None:
    report = ALL[name]
    rank = words.shown_rank(report)
    assert rank is not None
    device = words.main_device(rank)
    assert device is not None
    labels = words.labels_of(device)
    bar = bars.budget_bar(rank, device, title="", of="", labels=labels, see=lambda key: "")
    legend = [segment for one in bar.sums for segment in one.segments]
    assert sum(round(10 * float(segment.share.removesuffix(" %"))) for segment in legend) == 1000
    assert sum(segment.raw_ns for segment in bar.segments) == device.budget.window_ns
    assert sum(float(segment.width[:-1]) for segment in bar.segments) == pytest.approx(100, abs=0.01)
    text = page_of("triage", report).text
    for segment in legend:
        assert f"{segment.label} {segment.share}" in text


@pytest.mark.parametrize("name", ["ddp_straggler_ws4", "ddp_comm_ws4", "token_skew_long_tail_ws2"])
def test_the_table_of_ranks_adds_up_to_the_step(name: str) -> None:
    report = drawn(name)
    made = rows.ranks(report)
    assert made is not None
    headings = [column.text for column in made.table.columns]
    step = headings.index("step")
    for row, of in zip(made.table.rows, report.fleet.rows, strict=True):
        parts = [int(cell.raw or 0) for cell in row.cells[1:step]]
        assert sum(parts) == int(row.cells[step].raw) == of.step_ns
        assert (row.kind == "late") == bool(of.cause)
    assert [bar.kind for bar in made.bars] == [row.kind for row in made.table.rows]


def test_a_page_of_very_many_ranks_is_small_and_shows_who_is_late() -> None:
    few = drawn("ddp_straggler_ws4")
    row = few.fleet.rows[1]
    many = tuple(
        replace(row, ranks=(rank,), cause="data: loader" if rank in {200, 999} else "") for rank in range(1000)
    )
    report = replace(few, fleet=replace(few.fleet, rows=many), tracks=())
    made = rows.ranks(report)
    assert made is not None
    assert len(made.table.rows) == 256
    assert made.n_left_out == 744
    assert [bar.label for bar in made.bars if bar.kind == "late"] == ["rank 200", "rank 999"]
    html = renderer_for("triage", "html")(report)
    assert "744 more ranks: -f json has them all" in checked(html).text
    assert len(html) < MOST_BYTES


def test_the_waits_of_each_step_add_up_to_the_row_of_collectives() -> None:
    report = drawn("ddp_straggler_ws4")
    made = rows.ranks(report)
    assert made is not None
    assert made.heat is not None
    assert made.heat.n_columns == report.ranks[0].steps.n
    assert {cell.shade for cell in made.heat.cells} >= {0, 9}
    darkest = max(made.heat.cells, key=lambda cell: cell.shade)
    assert made.heat.rows[darkest.y] != str(report.verdict.rank)  # the late rank does not wait


def test_steps_are_drawn_with_their_parts() -> None:
    report = drawn("data_cpu.pt.trace.json.gz")
    steps = lanes.steps(report.ranks[0].steps.durations_ns, report.tracks[0], lambda key: f"#{key}")
    assert [step.href for step in steps] == [f"#step:{index}" for index in range(len(steps))]
    for step, size in zip(steps, report.ranks[0].steps.durations_ns, strict=True):
        assert sum(part.raw_ns for part in step.segments) == size
    whole = report.ranks[0].devices[0].budget.parts
    for name in PARTS:
        assert sum(part.raw_ns for step in steps for part in step.segments if part.category == name) == whole[name]


def test_the_waterfall_leads_from_one_step_to_the_other(tmp_path: Path) -> None:
    value: Comparison = DRAWN["compare", "more overlap"](tmp_path)
    found = bars.waterfall(value, words.part_labels(is_cpu=False))
    assert found is not None
    first, *parts, last = found.rows
    assert sum(row.raw_ns for row in parts) == last.raw_ns == value.waterfall.delta_ns
    at = float(first.at[:-1])
    for row in parts:
        low, high = float(row.x[:-1]), float(row.x[:-1]) + float(row.width[:-1])
        assert (low if row.is_more else high) == pytest.approx(at, abs=0.01)
        at = float(row.at[:-1])
    assert at == pytest.approx(float(last.at[:-1]), abs=0.01)
    text = page_of("compare", value).text
    assert compare_words.answer_sentence(value) in text
    for cells in compare_words.waterfall_rows(value):
        assert all(cell in text for cell in cells[1:])


def test_both_budgets_stand_on_one_scale() -> None:
    parts = (("compute", "compute", 60), ("idle_data", "data", 20))
    row = bars.stacked("a", parts, 160)
    assert (row.width, [segment.width for segment in row.segments]) == ("50.000%", ["37.500%", "12.500%"])


@given(st.data())
def test_time_inside_counts_every_nanosecond_once(data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, 200), min_size=2, max_size=20)))
    kept = data.draw(st.lists(st.booleans(), min_size=len(cuts) - 1, max_size=len(cuts) - 1))
    pairs = [pair for pair, is_kept in zip(itertools.pairwise(cuts), kept, strict=True) if is_kept]
    codes = data.draw(st.lists(st.integers(0, 2), min_size=len(pairs), max_size=len(pairs)))
    edges = np.array(sorted(data.draw(st.lists(st.integers(-5, 210), min_size=2, max_size=8))))
    columns = [np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1)]
    track = Track(
        key="k", label="", group="", role=Role.BUDGET, start_ns=columns[0], end_ns=columns[1],
        name=np.zeros(len(pairs), np.int32), category=np.array(codes, np.uint8),
    )  # fmt: skip
    found = lanes.time_inside(track, edges)
    for code in range(len(CATEGORIES)):
        for place, (low, high) in enumerate(itertools.pairwise(edges)):
            own = [(a, b) for (a, b), is_of in zip(pairs, codes, strict=True) if is_of == code]
            assert found[code, place] == sum(max(min(b, high) - max(a, low), 0) for a, b in own)


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("1.20 ms", "1200000"),
        ("-3 ns", "-3"),
        ("+1.5 us", "1500"),
        ("46.1 %", "0.461"),
        ("<0.1 %", "0.001"),
        ("3,264", "3264"),
        ("12.9 GB", "12900000000"),
        ("1.74x", "1.74"),
        ("-", ""),
        ("aten::mm", ""),
    ],
)
def test_a_printed_quantity_is_sorted_by_its_size(said: str, number: str) -> None:
    assert tables.quantity(said) == number


# -------------------------------------------------------------------------------------------------------------- safety


def hostile_report(name: str) -> Report:
    """A report on a trace in which all that a trace may name is called so."""
    spans = []
    for step in range(8):
        at = 10**9 + step * 10**6
        spans += [span(f"ProfilerStep#{step}", at, at + 10**6), span(name, at, at + 800_000)]
        for number in range(4):
            begin, link = at + number * 200_000, 1 + step * 100 + number
            spans += [
                operator(name, begin, begin + 40_000),
                launch(begin + 10_000, begin + 20_000, correlation=link),
                kernel(name, begin + 100_000, begin + 110_000, correlation=link),
            ]
    trace = trace_of(spans, profkit_command=name, device=name)
    rank, verdict = triage_trace(trace)
    return Report(
        verdict=verdict,
        ranks=(replace(rank, source=name, recorded_command=name, torch_version=name),),
        findings=rank.findings,
        skipped=rank.skipped,
        tracks=(tracks_of(analyse(trace)),),
    )


@pytest.mark.parametrize("name", [name for name in HOSTILE if "\ud800" not in name])  # which no trace may hold
def test_names_of_a_trace_are_text(name: str) -> None:
    html = renderer_for("triage", "html")(hostile_report(name))
    page = checked(html)
    assert " ".join(clean(name).split())[:12] in page.text
    for char in "\u202e\u2066\u200f\x1b\x00\x07":
        assert char not in html


@pytest.mark.parametrize("name", HOSTILE)
def test_texts_of_a_report_are_text(name: str) -> None:
    first = replace(overhead().findings[0], title=name, fix=name, proof=name)
    first = replace(first, evidence=tuple(replace(item, statement=name, expected=name) for item in first.evidence))
    tool = replace(overhead().verdict.next_tool, name=name, purpose=name, look_for=name, line=line_of("a", name))
    answer = replace(
        overhead().verdict, headline=name, findings=(first,), fixes=(name,), caveats=(name,), ruled_out=(name,),
        proof=name, next_tool=tool, source=name,
    )  # fmt: skip
    ranks = tuple(
        replace(one, source=f"{name}/{number}", warnings=(name,)) for number, one in enumerate(two_ranks().ranks)
    )
    report = replace(two_ranks(), verdict=answer, ranks=ranks, findings=(first,))
    page = page_of("triage", report)
    assert " ".join(clean(name).split())[:12] in page.text


def test_constant_files_cannot_end_their_element(monkeypatch: pytest.MonkeyPatch) -> None:
    from profkit.render.html import page

    with pytest.raises(ValueError, match="could end"):
        page._raw("a < b")


# ------------------------------------------------------------------------------------------------------------- privacy

PRIVATE = "/home/alice smith/secret project"


def test_folders_and_hosts_are_left_out_unless_asked_for() -> None:
    name = "gpu-node-17.corp.example_4711.1720000000000000000.pt.trace.json.gz"
    source = f"{PRIVATE}/run 7/{name}"
    tool = replace(overhead().verdict.next_tool, line=line_of("profkit where", source))
    report = replace(
        two_ranks(),
        verdict=replace(two_ranks().verdict, source=source, next_tool=tool),
        ranks=tuple(replace(one, source=source, warnings=(f"{source} is odd",)) for one in two_ranks().ranks),
        failures=(replace(two_ranks().failures[0], source=source, message=f"{source} ends in event 3"),),
    )
    html = renderer_for("triage", "html")(report)
    for word in ("alice", "smith", "secret project", "gpu-node-17", "corp.example"):
        assert word not in html
    text = checked(html).text
    assert "host_4711.1720000000000000000.pt.trace.json.gz" in text
    assert "Left out: folders of files" in text
    assert source in page_of("triage", report, with_paths=True).text


def test_a_file_in_a_home_directory_does_not_say_whose() -> None:
    place = CodePlace(file="/home/alice/train.py", function="step", line=83, text="loss.item()")
    share = PlaceShare(place=place, phase=Phase.FORWARD, ns=10, share=0.9, count=3)
    assert "alice/train.py:83" in share.words
    first = replace(overhead().findings[0], places=(share,))
    report = replace(overhead(), verdict=replace(overhead().verdict, findings=(first,)), findings=(first,))
    html = renderer_for("triage", "html")(report)
    assert "alice" not in html
    assert "…/train.py:83 in step(): loss.item()" in checked(html).text
    assert "alice/train.py:83" in page_of("triage", report, with_paths=True).text


def test_the_names_that_are_drawn_are_without_folders_too() -> None:
    report = hostile_report(f"{PRIVATE.replace(' ', '_')}/train.py(12): forward")
    page = page_of("triage", report)
    assert "alice" not in page.scripts["profkit-meta"]
    assert "…/train.py(12): forward" in page.meta["ranks"][0]["names"]
    whole = page_of("triage", report, with_paths=True)
    assert "alice" in whole.scripts["profkit-meta"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("python /home/ann/train.py --lr 1e-3", "python …/train.py --lr 1e-3"),
        ("python '/data/my run/train.py' x", "python '…/train.py' x"),
        ("read /scratch/a/b/c.json.gz", "read …/c.json.gz"),
        ("in /home/ann", "in ~"),
        ("~/runs/a.json and ~bob/b.json", "…/a.json and …/b.json"),
        ("C:\\Users\\ann\\t.py", "…/t.py"),
        ("s3://bucket/team/run7/rank0.json?token=1", "s3://…/rank0.json"),
        ("PATH=/opt/a/b", "PATH=…/b"),
        ("train.py:83 in step()", "train.py:83 in step()"),
        ("tokens/s and 3 / 4 of compute/memory/host", "tokens/s and 3 / 4 of compute/memory/host"),
        ("Net/Block[0]/Linear[3]", "Net/Block[0]/Linear[3]"),
        ("runs/llama_rank0.json.gz", "runs/llama_rank0.json.gz"),
        ("h100-3_12.1720000000001.pt.trace.json", "host_12.1720000000001.pt.trace.json"),
    ],
)
def test_what_is_hidden_and_what_is_not(text: str, shown: str) -> None:
    assert Hider((), with_paths=False).shown(text) == shown
    assert Hider((), with_paths=True).shown(text) == text


@pytest.mark.parametrize("unit", ["/a", "=/aaaa", "a.", "_1.", "'/", "~", "://", "a://b?", "\\a"])
def test_a_long_name_is_hidden_in_no_time(unit: str) -> None:
    import time

    began = time.process_time()
    Hider(("/x/y.json",), with_paths=False).shown(unit * (16_384 // len(unit)) + ".pt.trace.json")
    assert time.process_time() - began < 0.5


# ------------------------------------------------------------------------------------------------------- command line


def test_the_command_writes_a_page(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    done = CliRunner().invoke(group, ["triage", str(TRACES / STARTER), "-o", str(out)])
    assert done.exit_code == 0
    page = checked(out.read_text(encoding="utf-8"))
    assert page.meta is not None
    assert any(link.startswith("#see=finding:") for link in page.links)
    shown = CliRunner().invoke(group, ["triage", str(TRACES / STARTER), "-f", "html", "--with-paths"])
    assert "--with-paths was asked for" in shown.output
    done = CliRunner().invoke(group, ["compare", *[str(TRACES / STARTER)] * 2, "-o", str(out)])
    assert done.exit_code == 0
    assert re.search(r"<h1[^>]*>step time|unproven|profiled", out.read_text(encoding="utf-8"))


def test_the_wheel_has_templates_and_constant_files() -> None:
    import tomllib

    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert told["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["profkit"]}
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    assert not {"*.html", "*.js", "*.css", "static/", "*.j2"} & set(ignored)


def test_slopes_stand_where_their_numbers_are() -> None:
    from profkit.render.html.probe import slopes
    from tests.probe.drawn import probed, slope

    report = probed(input=slope(0.0, 0.2), forward=slope(1.0, 0.2), rank3=slope(0.4, 9.0))
    picture = slopes(report.slopes)
    assert picture is not None
    ticks = {said: float(at) for at, said in picture.ticks}
    hidden, critical, wide = picture.marks
    assert (float(hidden.x), float(critical.x)) == (ticks["0"], ticks["1"])
    assert float(hidden.low) < ticks["0"] < float(hidden.high) < ticks["0.5"]
    assert float(wide.low) == picture.left
    assert float(wide.high) <= picture.width
    page = page_of("probe", report)
    assert "each 1 ms saved there shortens the step by about 1.00 ms" in page.text
