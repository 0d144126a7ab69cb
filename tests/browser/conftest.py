"""A real browser for pages: Chromium without a window, driven by playwright; skipped where there is none."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NAMES = ("chromium", "chromium-browser", "google-chrome")


def browser_path() -> str:
    named = os.environ.get("PROFKIT_BROWSER", "")
    return named or next((path for name in NAMES if (path := shutil.which(name))), "")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser, one for each module: other tests of the process start one of their own."""
    api = pytest.importorskip("playwright.sync_api")
    path = browser_path()
    if not path:
        if os.environ.get("CI"):
            pytest.fail("CI installs chromium (.ci/run), and none is here")
        pytest.skip("no chromium on PATH: apt-get install chromium, or PROFKIT_BROWSER=/path/to/it")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


_LOOKS, _BETWEEN_MS = 400, 25


class Watched:
    """A page with all that it said and asked for since it was opened."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda told: self.errors.append(told.text) if told.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, path: Path, fragment: str = "") -> Any:
        """The file from disk, as a mail's attachment is opened, when its script has drawn it."""
        self.page.goto(path.as_uri() + fragment)
        state = self.until("document.documentElement.dataset.state || ''", lambda told: told != "")
        assert state == "ready", self.errors
        return self.page

    def until(self, expression: str, fits: Callable[[Any], bool]) -> Any:
        """The value of an expression as soon as it fits: the page's policy forbids playwright's own way, eval."""
        for _ in range(_LOOKS):
            value = self.page.evaluate(expression)
            if fits(value):
                return value
            self.page.wait_for_timeout(_BETWEEN_MS)
        pytest.fail(f"{expression} stays {value!r}; {self.errors}")

    def check_quiet(self, path: Path) -> None:
        """Nothing went wrong, and nothing but the file itself was asked for."""
        assert self.errors == []
        beside = [url for url in self.requests if not url.startswith((path.as_uri(), "data:", "blob:"))]
        assert beside == []


@pytest.fixture
def watched(chromium: Any) -> Iterator[Watched]:
    """A fresh page at the size of a laptop."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    yield Watched(context.new_page())
    context.close()
