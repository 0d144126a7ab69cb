"""`python -m bench.pages`: what a page costs, how smoothly it moves in a real browser, and the pictures of the docs.

`frames`: a timeline of 200,000 intervals is panned for some seconds; frames as the browser's own trace has them.
`cost`: `-o report.html` beside `-f json` of one trace, in turn: CPU time, bytes, and how soon the page is ready.
`screens`: the pictures in `docs/screens`, from captures in `traces/`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

REPO: Final = Path(__file__).resolve().parent.parent
SCREENS: Final = REPO / "docs" / "screens"
FLAGS: Final = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
READY: Final = "document.documentElement.dataset.state || ''"
_PAN_S: Final = 4
_TRACED: Final = ("devtools.timeline", "disabled-by-default-devtools.timeline.frame", "cc,benchmark")
_PAN: Final = """([most]) => new Promise((done) => {
  const stage = document.querySelector("#timeline [aria-label^='Timeline']");
  const between = [], began = performance.now();
  let last = began, code = "KeyD";
  const frame = (now) => {
    between.push(now - last);
    last = now;
    if (now - began > most) return done(between);
    if (Math.floor((now - began) / 1000) % 2) code = "KeyA"; else code = "KeyD";
    stage.dispatchEvent(new KeyboardEvent("keydown", { code, key: code === "KeyA" ? "a" : "d", bubbles: true }));
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})"""
"""Pans by a key's press in every frame, to and fro; the times between frames, ms."""
_PAGES: Final = {
    "data": ("triage", ("data_cpu.pt.trace.json.gz",)),
    "ranks": ("triage", ("ddp_straggler_ws4",)),
    "compare": ("compare", ("fsdp_vlm_prefetch_off", "fsdp_vlm_prefetch_on")),
}


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("PROFKIT_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    if not path:
        raise SystemExit("no chromium on PATH: apt-get install chromium, or PROFKIT_BROWSER=/path/to/it")
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        yield opened
        opened.close()


def opened(shown: Any, path: Path) -> None:
    """Open a page and wait until its script is done."""
    shown.goto(path.as_uri())
    while not shown.evaluate(READY):
        shown.wait_for_timeout(10)


def drawn(path: Path) -> None:
    """A page of 24 rows and 200,016 intervals, made of synthetic rows."""
    import numpy as np
    from msgspec.structs import replace

    import profkit
    from profkit.model.documents.tracks import CATEGORIES, Role, Track
    from profkit.render.html import triage

    report = profkit.triage(REPO / "traces" / "data_cpu.pt.trace.json.gz", with_tracks=True)
    one, random = report.tracks[0], np.random.default_rng(20261122)
    low, high = one.window_ns
    rows = []
    for number in range(24):
        edges = np.sort(random.choice(high - low, 2 * 8334, replace=False)) + low
        rows.append(
            Track(
                key=f"stream:0:{number}",
                label=f"stream {number}",
                group="GPU 0",
                role=Role.STREAM,
                start_ns=edges[::2].astype(np.int64),
                end_ns=edges[1::2].astype(np.int64),
                name=random.integers(0, len(one.names), 8334).astype(np.int32),
                category=random.integers(0, len(CATEGORIES), 8334).astype(np.uint8),
            )
        )
    report = replace(report, tracks=(replace(one, tracks=tuple(rows), curves=()),))
    path.write_text(triage.render(report), encoding="utf-8")


def frames(_: argparse.Namespace) -> None:
    """Pan 200,000 intervals and print the time between frames, ms."""
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        page = Path(folder) / "page.html"
        drawn(page)
        shown = chromium.new_page(viewport={"width": 1600, "height": 900})
        opened(shown, page)
        stage = shown.locator("#timeline [aria-label^='Timeline']")
        stage.scroll_into_view_if_needed()
        for zoom, n_wheels in (("half of it", 2), ("an eighth", 6), ("a hundredth", 14)):
            stage.click()
            shown.keyboard.press("0")
            for _ in range(n_wheels):
                shown.keyboard.press("+")
            shown.wait_for_timeout(300)
            trace = Path(folder) / "trace.json"
            chromium.start_tracing(page=shown, path=trace, categories=list(_TRACED))
            own = shown.evaluate(_PAN, [1000 * _PAN_S])
            chromium.stop_tracing()
            events = json.loads(trace.read_text())["traceEvents"]
            times = sorted(told["ts"] for told in events if told["name"] == "DrawFrame")
            between = [(after - before) / 1000 for before, after in pairwise(times)]
            if between:
                worst = statistics.quantiles(between, n=20)[-1]
                print(
                    f"{zoom} in view: {len(times)} frames, {statistics.median(between):.1f} ms between two (median), "
                    f"{worst:.1f} (p95); between two calls of the script {statistics.median(own):.1f} ms"
                )


def cost(given: argparse.Namespace) -> None:
    """CPU seconds of both commands in turn, the page's size, and when it is ready."""
    spent: dict[str, list[float]] = {"json": [], "html": []}
    cached = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(REPO / "profkit")], env=cached, check=True)
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        page = Path(folder) / "page.html"
        for _ in range(given.runs):
            for name, output in (("json", Path(folder) / "report.json"), ("html", page)):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                command = [sys.executable, "-m", "profkit", "triage", str(given.trace), "-o", str(output), "-j", "1"]
                subprocess.run(command, cwd=REPO, env=cached, check=True, capture_output=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                spent[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        text = page.read_text(encoding="utf-8")
        data = len(text.partition('id="profkit-data">')[2].partition("</script>")[0])
        ready = []
        for _ in range(given.runs):
            shown = chromium.new_page()
            opened(shown, page)
            told = "[performance.getEntriesByType('paint')[0]?.startTime ?? -1, performance.now()]"
            ready.append(shown.evaluate(told))
            shown.close()
    low = {name: statistics.median(values) for name, values in spent.items()}
    print(
        f"CPU s, median of {given.runs}: json {low['json']:.2f}, html {low['html']:.2f}, "
        f"{low['html'] / low['json']:.2f}x"
    )
    print(f"page: {len(text) / 1e6:.2f} MB, of these {data / 1e6:.2f} MB rows and curves")
    first, done = (statistics.median(column) for column in zip(*ready, strict=True))
    print(f"first paint after {first:.0f} ms, all drawn after {done:.0f} ms (medians)")


def screens(_: argparse.Namespace) -> None:
    """The pictures of the docs: light, dark, phone; one rank, many, a comparison."""
    SCREENS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        pages = {}
        for name, (command, sources) in _PAGES.items():
            pages[name] = Path(folder) / f"{name}.html"
            paths = [str(REPO / "traces" / source) for source in sources]
            line = [sys.executable, "-m", "profkit", command, *paths, "-o", str(pages[name])]
            subprocess.run(
                line, cwd=REPO, check=False, capture_output=True
            )  # compare ends with 1 where it sees a change
        for picture, (name, scheme, width, height) in {
            "light": ("data", "light", 1200, 1000),
            "dark": ("ranks", "dark", 1200, 1000),
            "phone": ("data", "light", 390, 844),
            "ranks": ("ranks", "light", 1200, 1000),
            "compare": ("compare", "light", 1200, 1000),
        }.items():
            size = {"width": width, "height": height}
            context = chromium.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
            shown = context.new_page()
            opened(shown, pages[name])
            if picture == "ranks":
                shown.locator("#timeline").scroll_into_view_if_needed()
                shown.evaluate("document.getElementById('timeline-view').scrollIntoView()")
            shown.wait_for_timeout(500)
            shown.screenshot(path=SCREENS / f"{picture}.png")
            context.close()
    for file in sorted(SCREENS.glob("*.png")):
        print(f"{file.relative_to(REPO)}: {file.stat().st_size / 1000:.0f} kB")


def main() -> int:
    """One of the three."""
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description=__doc__.partition("\n")[0])
    parts = parser.add_subparsers(required=True)
    parts.add_parser("frames").set_defaults(run=frames)
    parts.add_parser("screens").set_defaults(run=screens)
    costs = parts.add_parser("cost")
    costs.add_argument("trace", type=Path)
    costs.add_argument("--runs", type=int, default=5)
    costs.set_defaults(run=cost)
    given = parser.parse_args()
    given.run(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
