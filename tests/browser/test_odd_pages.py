"""Pages of traces that nobody draws on purpose: hostile, huge, empty, many; and paper."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import profkit
from profkit.model.documents.report import Report
from profkit.pipeline import analyse, triage_trace
from profkit.render.html import triage as page
from profkit.testing import Row, kernel, launch, operator, span, trace_of
from profkit.tracks import tracks_of
from tests.conftest import dear, rarely
from tests.ranks.jobs import job_of

TRACES = Path(__file__).resolve().parents[2] / "traces"
POINTED = "document.querySelector('#timeline .tl-pointed').textContent"
LONG = "a::very<long, name>" * 530
ODD = ("\x00\x1b[31m", "</script>\u2028", "'\"`&amp;", "📈" * 200, " ", "__proto__", "constructor")


def steps_of(n: int) -> Iterator[Row]:
    for step in range(n):
        yield span(f"ProfilerStep#{step}", 10**9 + step * 10**6, 10**9 + (step + 1) * 10**6)


def named(*names: str) -> list[Row]:
    """Steps with an operator, a call and a kernel of each name, one after another."""
    rows = list(steps_of(6))
    for step in range(6):
        for number, name in enumerate(names):
            at, link = 10**9 + step * 10**6 + number * 90_000, 1 + step * 100 + number
            rows.append(operator(name, at, at + 40_000))
            rows.append(launch(at + 5_000, at + 9_000, correlation=link, name=name))
            rows.append(kernel(name, at + 30_000, at + 80_000, correlation=link))
    return rows


def report_of(rows: list[Row]) -> Report:
    """The report of a file whose name is no UTF-8."""
    trace = trace_of(rows)
    rank, verdict = triage_trace(trace)
    rank = replace(rank, source="runs/\udcff\ud800.json")
    return Report(
        verdict=replace(verdict, source=rank.source),
        ranks=(rank,),
        findings=rank.findings,
        skipped=rank.skipped,
        tracks=(tracks_of(analyse(trace)),),
    )


CASES = {
    "odd names": named(*ODD),
    "a name of 10,000 characters": named(LONG, LONG + "2"),
    "no kernels": [*steps_of(6), *(operator("aten::mm", 10**9 + n * 10**6, 10**9 + n * 10**6 + 9) for n in range(6))],
    "no steps": [row for row in named("gemm") if not row.name.startswith("ProfilerStep")],
    "one kernel": [launch(10**9, 10**9 + 5, correlation=1), kernel("gemm", 10**9 + 10, 10**9 + 20, correlation=1)],
}


@pytest.mark.parametrize(
    ("width", "name"),
    [
        *((1280, name) if name == "odd names" else rarely(1.5, 1280, name) for name in CASES),
        *((390, name) if "name" in name else dear(390, name) for name in CASES),  # names are what may be too wide
    ],
)
def test_a_page_of_an_odd_trace_opens_quietly(watched: Any, tmp_path: Path, name: str, width: int) -> None:
    path = tmp_path / "odd.html"
    path.write_text(page.render(report_of(CASES[name])), encoding="utf-8")
    watched.page.set_viewport_size({"width": width, "height": 800})
    shown = watched.open(path)
    assert shown.locator("h1").inner_text().strip()
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    for place in range(shown.locator("a.see").count()):
        shown.locator("a.see").nth(place).dispatch_event("click")
    watched.check_quiet(path)


@pytest.mark.long(5)
def test_a_page_of_more_ranks_than_are_drawn_says_how_to_draw_one(watched: Any, tmp_path: Path) -> None:
    path = tmp_path / "many.html"
    report = profkit.triage(job_of(tmp_path / "job", n_ranks=70, late_us={7: 400}), with_tracks=True)
    path.write_text(page.render(report), encoding="utf-8")
    shown = watched.open(path)
    assert "rank 7" in shown.locator("h1").inner_text()
    assert 0 < shown.locator("#ranks .bar-row").count() <= 64
    assert "triage the file of one rank" in shown.locator("#timeline").inner_text()
    watched.check_quiet(path)


def test_a_page_that_tells_of_failures_opens_quietly(watched: Any, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    data = (TRACES / "ddp_weak_ws2").glob("*rank0*")
    whole = next(iter(sorted(data))).read_bytes()
    (runs / "rank0.pt.trace.json.gz").write_bytes(whole)
    (runs / "rank1.pt.trace.json").write_text("{")
    (runs / "rank2.pt.trace.json").write_text('{"traceEvents": []}')
    path = tmp_path / "failed.html"
    report = profkit.triage(runs, with_tracks=True)
    assert report.failures
    path.write_text(page.render(report), encoding="utf-8")
    shown = watched.open(path)
    assert shown.locator(".failures, .caveats").first.is_visible()
    watched.check_quiet(path)


def test_on_paper_every_table_has_its_headers(watched: Any, tmp_path: Path) -> None:
    path = tmp_path / "paper.html"
    report = profkit.triage(TRACES / "ddp_straggler_ws4", with_tracks=True)
    path.write_text(page.render(report), encoding="utf-8")
    shown = watched.open(path)
    shown.emulate_media(media="print")
    heads = [head for head in shown.locator("thead th").all() if head.is_visible()]
    assert len(heads) > 20
    assert all(head.inner_text().strip() for head in heads if head.text_content().strip())
    assert not shown.locator("[data-copy-from]").first.is_visible()


@pytest.mark.parametrize("name", ["data_cpu.pt.trace.json.gz", "ddp_straggler_ws4"])
def test_a_phone_parts_no_number_from_its_unit(watched: Any, tmp_path: Path, name: str) -> None:
    path = tmp_path / "phone.html"
    path.write_text(page.render(profkit.triage(TRACES / name, with_tracks=True)), encoding="utf-8")
    watched.page.set_viewport_size({"width": 390, "height": 800})
    shown = watched.open(path)
    for text in shown.locator("#verdict h1, #verdict li, #verdict .facts li").all_inner_texts():
        for unit in (" ms", " us", " %"):
            assert not any(f"{digit}{unit}" in text for digit in "0123456789"), text


def test_the_keyboard_reaches_a_link_and_shows_where_it_is(watched: Any, tmp_path: Path) -> None:
    path = tmp_path / "keys.html"
    path.write_text(
        page.render(profkit.triage(TRACES / "data_cpu.pt.trace.json.gz", with_tracks=True)), encoding="utf-8"
    )
    shown = watched.open(path)
    focused = "document.activeElement.getAttribute('href') || ''"
    for _ in range(40):
        shown.keyboard.press("Tab")
        if shown.evaluate(focused).startswith("#see="):
            break
    assert shown.evaluate(focused).startswith("#see=")
    assert shown.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    shown.keyboard.press("Enter")
    assert "1 of 5" in watched.until(POINTED, bool)
    watched.check_quiet(path)
