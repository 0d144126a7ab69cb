"""Pages in a real browser: what they show, what a click moves, and that nothing in a trace is obeyed."""

from pathlib import Path
from typing import Any

import pytest

import profkit
from profkit.model.documents.report import Report
from profkit.pipeline import analyse, triage_trace
from profkit.render.html import triage as page
from profkit.testing import kernel, launch, operator, span, trace_of
from profkit.tracks import tracks_of

TRACES = Path(__file__).resolve().parents[2] / "traces"
HOSTILE = (
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "javascript:window.hacked=1",
    "--></style><svg onload=window.hacked=1>",
    "\u202egnp.exe\u2066",
    "${window.hacked=1}{{7*7}}",
)
VIEW = "document.querySelector('#timeline [aria-live]').textContent"
"""What a reader of the screen is told of the stretch that is shown."""
POINTED = "document.querySelector('#timeline .tl-pointed').textContent"
"""What a link points at."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of a trace alone and of four ranks."""
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for name in ("data_cpu.pt.trace.json.gz", "ddp_straggler_ws4"):
        made[name.partition(".")[0]] = folder / f"{name.partition('.')[0]}.html"
        report = profkit.triage(TRACES / name, with_tracks=True)
        made[name.partition(".")[0]].write_text(page.render(report), encoding="utf-8")
    return made


def hostile_report() -> Report:
    """A trace whose every name tries to be obeyed."""
    rows = []
    for step in range(8):
        at = 10**9 + step * 10**6
        rows.append(span(f"ProfilerStep#{step}", at, at + 10**6))
        for number, name in enumerate(HOSTILE):
            begin, link = at + number * 150_000, 1 + step * 100 + number
            rows.append(operator(name, begin, begin + 40_000))
            rows.append(launch(begin + 10_000, begin + 20_000, correlation=link))
            rows.append(kernel(name, begin + 30_000, begin + 130_000, correlation=link))
    trace = trace_of(rows, **{name: name for name in HOSTILE})
    rank, verdict = triage_trace(trace)
    return Report(
        verdict=verdict,
        ranks=(rank,),
        findings=rank.findings,
        skipped=rank.skipped,
        tracks=(tracks_of(analyse(trace)),),
    )


@pytest.mark.parametrize("name", ["data_cpu", "ddp_straggler_ws4"])
def test_a_page_opens_quietly_with_verdict_budget_and_timeline(watched: Any, pages: dict[str, Path], name: str) -> None:
    shown = watched.open(pages[name])
    assert shown.locator("h1").inner_text().strip()
    assert shown.locator("svg.bar, .budget svg").first.is_visible()
    canvas = shown.locator("#timeline [aria-label^='Timeline'] canvas, #timeline canvas[aria-label^='Timeline']").first
    canvas.scroll_into_view_if_needed()
    assert canvas.bounding_box()["width"] > 600
    watched.check_quiet(pages[name])


def test_a_click_on_evidence_moves_the_timeline_and_back_returns(watched: Any, pages: dict[str, Path]) -> None:
    shown = watched.open(pages["data_cpu"])
    whole = watched.until(VIEW, bool)
    shown.locator("a.see[href^='#see=finding']").first.click()
    assert "1 of 5" in watched.until(POINTED, bool)
    watched.until(VIEW, lambda told: told != whole)
    shown.go_back()
    watched.until(VIEW, lambda told: told == whole)
    assert watched.until(POINTED, lambda told: not told) == ""
    watched.check_quiet(pages["data_cpu"])


def test_a_link_opens_at_what_it_names(watched: Any, pages: dict[str, Path]) -> None:
    watched.open(pages["data_cpu"], "#see=part:idle_data")
    assert "1 of 5" in watched.until(POINTED, bool)


def test_the_timeline_obeys_the_keyboard(watched: Any, pages: dict[str, Path]) -> None:
    shown = watched.open(pages["data_cpu"])
    shown.locator("#timeline [aria-label^='Timeline']").focus()
    whole = watched.until(VIEW, bool)
    shown.keyboard.press("+")
    watched.until(VIEW, lambda told: told != whole)
    shown.keyboard.press("0")
    watched.until(VIEW, lambda told: told == whole)
    watched.check_quiet(pages["data_cpu"])


def test_names_of_a_trace_are_text(watched: Any, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(page.render(hostile_report()), encoding="utf-8")
    watched.page.on("dialog", lambda dialog: pytest.fail(f"a name opened a dialog: {dialog.message}"))
    shown = watched.open(path)
    shown.locator("#timeline canvas").last.hover()
    shown.mouse.wheel(0, -400)
    for link in shown.locator("a").all():
        assert not (link.get_attribute("href") or "").lower().startswith("javascript:")
    assert shown.evaluate("window.hacked") is None
    watched.check_quiet(path)


def test_without_script_everything_that_is_said_is_there(chromium: Any, pages: dict[str, Path]) -> None:
    context = chromium.new_context(java_script_enabled=False)
    shown = context.new_page()
    shown.goto(pages["data_cpu"].as_uri())
    assert "DataLoader" in shown.locator("h1").inner_text()
    assert shown.locator("table").first.is_visible()
    assert shown.locator("pre, code").first.is_visible()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_the_page_without_scrolling_sideways(chromium: Any, pages: dict[str, Path], scheme: str) -> None:
    context = chromium.new_context(viewport={"width": 390, "height": 800}, color_scheme=scheme)
    shown = context.new_page()
    shown.goto(pages["ddp_straggler_ws4"].as_uri())
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    red, *_ = shown.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (red < 64) == (scheme == "dark")
    context.close()
