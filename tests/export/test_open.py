"""`profkit open`: a page and a trace on loopback, each given once, to whoever has the token and nobody else."""

import gzip
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from profkit.cli import group
from profkit.cli.shared.gathered import is_export
from profkit.errors import UsageError
from profkit.export.serve import POLICY, Handover, page, viewers_address
from tests.export.test_chrome import export
from tests.export.viewer import PAGE, Viewer, viewer

CHROMIUM = Path("/usr/bin/chromium")
TRACE = b'{"traceEvents": []}' * 1000


@pytest.fixture(name="handover")
def _handover(tmp_path: Path) -> Iterator[Handover]:
    trace = tmp_path / "t.json"
    trace.write_bytes(TRACE)
    handover = Handover(trace, "t.json")
    with handover.serving():
        yield handover


def ask(
    handover: Handover, path: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(*handover.host.split(":"), timeout=5)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body=body, headers=named)
    answer = connection.getresponse()
    answer.text = answer.read()
    connection.close()
    return answer


def token(handover: Handover) -> str:
    return "/" + handover.address.split("/")[3] + "/"


def test_the_page_and_the_trace_are_given_once(handover: Handover) -> None:
    at = token(handover)
    first = ask(handover, at)
    assert (first.status, first.text) == (200, handover.page)
    assert first.headers["Content-Security-Policy"] == POLICY
    assert "'none'" in POLICY
    assert first.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert first.headers["Referrer-Policy"] == "no-referrer"
    assert ask(handover, at).status == 410
    assert ask(handover, f"{at}trace").text == TRACE
    again = ask(handover, f"{at}trace")
    assert (again.status, again.text) == (410, b"")


@pytest.mark.parametrize(
    "path", ["/", "/trace", "/index.html", "/../", "/x/", "/%2e%2e/", "/done", "//", "/\xe9/", "*"]
)
def test_nothing_is_there_without_the_token(handover: Handover, path: str) -> None:
    answer = ask(handover, path.encode().decode("latin-1") if path.isascii() else "/%E9/")
    assert (answer.status, answer.text) == (404, b"")


@pytest.mark.parametrize("host", ["evil.example", "localhost", "127.0.0.1", "127.0.0.1:1", "[::1]", ""])
def test_a_name_that_leads_to_loopback_is_refused(handover: Handover, host: str) -> None:
    answer = ask(handover, f"{token(handover)}trace", Host=host)
    assert (answer.status, answer.text) == (403, b"")
    assert ask(handover, f"{token(handover)}trace").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_pages_of_other_origins_are_refused(handover: Handover, headers: dict[str, str]) -> None:
    at = token(handover)
    for path, method in ((f"{at}trace", "GET"), (f"{at}done", "POST")):
        answer = ask(handover, path, method, body=b"no-trace" if method == "POST" else None, **headers)
        assert (answer.status, answer.text) == (403, b"")
        assert "Access-Control-Allow-Origin" not in answer.headers
    assert handover.result == ""


@pytest.mark.parametrize("method", ["HEAD", "PUT", "OPTIONS", "DELETE", "CONNECT", "POST"])
def test_other_methods_are_refused(handover: Handover, method: str) -> None:
    answer = ask(handover, f"{token(handover)}trace", method)
    assert answer.status in {405, 501}
    assert answer.text == b""
    assert ask(handover, f"{token(handover)}trace").status == 200


def test_only_words_that_are_known_end_it(handover: Handover) -> None:
    at = f"{token(handover)}done"
    assert ask(handover, at, "POST", b"x" * 65).status == 400
    ask(handover, at, "POST", b"formatted c:")
    assert handover.wait(0.05) == ""
    assert ask(handover, at, "POST", b"handed-over").status == 204
    assert handover.wait(5) == "handed-over"
    ask(handover, at, "POST", b"no-trace")
    assert handover.result == "handed-over"


def test_tokens_differ_and_it_listens_on_loopback_alone(tmp_path: Path) -> None:
    one, other = Handover(tmp_path / "a", "a"), Handover(tmp_path / "a", "a")
    assert token(one) != token(other)
    assert len(token(one)) > 40
    assert one._server.server_address[0] == "127.0.0.1"
    with pytest.raises(UsageError, match="cannot listen"):
        Handover(tmp_path / "a", "a", port=one._server.server_address[1])
    for each in (one, other):
        each._server.server_close()


def test_a_name_is_text_in_the_page() -> None:
    text = page("https://ui.perfetto.dev", "</script><script>alert(1)</script>", 1).decode()
    assert "<script>alert" not in text
    assert "\\u003c/script\\u003e" in text


@pytest.mark.parametrize(
    "ui",
    [
        "https://ui.perfetto.dev",
        "https://perfetto.corp:8443/ui/",
        "http://localhost:10000",
        "http://127.0.0.1:1",
        "http://[::1]:8",
    ],
)
def test_viewers_are_on_https_or_on_this_machine(ui: str) -> None:
    assert viewers_address(ui) == ui


@pytest.mark.parametrize(
    "ui",
    [
        *("http://ui.perfetto.dev", "javascript:alert(1)", "file:///etc/passwd", "https://", "ui.perfetto.dev"),
        *("https://a@b/", "https://localhost:99999", "http://localhost.evil.example", "https://a b"),
        *("https://x/\u202e", "data:text/html,x", "https://[::1"),
    ],
)
def test_other_addresses_are_refused(ui: str) -> None:
    with pytest.raises(UsageError):
        viewers_address(ui)


def test_the_command_prints_the_address_and_says_where_the_trace_goes(traces: Path, tmp_path: Path) -> None:
    with running(traces / "data_cpu.pt.trace.json.gz") as (process, address):
        at = address.split("/", 3)[3]
        connection = http.client.HTTPConnection(address.split("/")[2], timeout=10)
        connection.request("GET", f"/{at}trace")
        data = connection.getresponse().read()
        document = json.loads(gzip.decompress(data))
        assert any(event.get("cat") == "profkit_track" for event in document["traceEvents"])
        connection.request("POST", f"/{at}done", body=b"handed-over")
        connection.getresponse().read()
        connection.close()
        assert process.wait(20) == 0
        assert "handed to a page of https://ui.perfetto.dev in your own browser" in process.said
        assert "has the trace" in process.stderr.read()


@pytest.mark.usefixtures("heeds_interrupts")
def test_control_c_ends_it_in_one_line(traces: Path) -> None:
    with running(traces / "data_cpu.pt.trace.json.gz") as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        text = process.stderr.read()
    assert "stopped" in text
    assert "Traceback" not in text


class running:  # noqa: N801 - reads as a phrase
    """`profkit open --no-browser` on a trace, and the address it prints."""

    def __init__(self, *words: object) -> None:
        command = [sys.executable, "-m", "profkit", "open", "--no-browser", *map(str, words)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))

    def __enter__(self) -> tuple[subprocess.Popen[str], str]:
        said = ""
        for line in self.process.stderr:
            said += line
            if "http://127.0.0.1" in line:
                break
        self.process.said = said
        return self.process, said.split()[-1]

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stderr.close()


def test_an_export_is_known_and_opened_as_it_is(traces: Path, tmp_path: Path) -> None:
    out, plain = tmp_path / "out.json.gz", tmp_path / "out.json"
    export(traces / "data_cpu.pt.trace.json.gz", "-o", out)
    export(traces / "data_cpu.pt.trace.json.gz", "-o", plain)
    assert is_export(out)
    assert is_export(plain)
    assert not is_export(traces / "data_cpu.pt.trace.json.gz")
    assert not is_export(tmp_path)


def test_what_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(group, ["open", "--ui", "http://x.example", str(tmp_path)], standalone_mode=False)
    assert isinstance(result.exception, UsageError)


@pytest.fixture(name="browser")
def _browser(tmp_path: Path) -> Iterator[object]:
    if not CHROMIUM.exists():
        pytest.skip("no chromium")
    started: list[subprocess.Popen[bytes]] = []

    def visit(address: str, *flags: str) -> None:
        command = [
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            f"--user-data-dir={tmp_path / 'profile'}",
            *flags,
            "--remote-debugging-port=0",
            address,
        ]
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    yield visit
    for process in started:
        process.terminate()
        process.wait()


def in_browser(tmp_path: Path, browser: object, ui: Viewer, address: str, answer_s: float = 30) -> Handover:
    trace = tmp_path / "t.json"
    trace.write_bytes(TRACE)
    handover = Handover(trace, "rank 0 <b>.json", ui=address, answer_s=answer_s)
    with handover.serving():
        browser(handover.address, "--disable-popup-blocking")
        handover.wait(90)
        ui.came.wait(3 if handover.result != "handed-over" else 30)
    return handover


def test_a_browser_hands_the_trace_to_the_viewer(tmp_path: Path, browser: object) -> None:
    with viewer() as ui:
        handover = in_browser(tmp_path, browser, ui, ui.address)
        assert handover.result == "handed-over"
        assert ui.got == [TRACE]
        assert "title=rank+0+%3Cb%3E.json" in ui.asked[0]
        assert "from=http%3A%2F%2F127.0.0.1" in ui.asked[0]


@pytest.mark.long(8)
def test_a_viewer_that_sends_visitors_elsewhere_gets_nothing_there(tmp_path: Path, browser: object) -> None:
    eager = (
        PAGE.replace(b"if (event.source", b"0;if (event.source")
        + b"<script>setInterval(() => opener.postMessage('PONG', '*'), 50)</script>"
    )
    with viewer(page=eager) as elsewhere, viewer(to=elsewhere.address) as ui:
        handover = in_browser(tmp_path, browser, elsewhere, ui.address, answer_s=3)
        assert handover.result == "no-answer"
        assert elsewhere.got == []
        assert ui.got == []


@pytest.mark.long(6)
def test_a_viewer_that_never_answers_is_told(tmp_path: Path, browser: object) -> None:
    with viewer(page=b"<title>no viewer</title>") as ui:
        begun = time.monotonic()
        handover = in_browser(tmp_path, browser, ui, ui.address, answer_s=2)
        assert handover.result == "no-answer"
        assert time.monotonic() - begun < 55
        assert ui.got == []


def test_where_the_browser_keeps_tabs_closed_a_button_opens_the_viewer(tmp_path: Path) -> None:
    api = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip("no chromium")
    trace = tmp_path / "t.json"
    trace.write_bytes(TRACE)
    flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    with viewer() as ui, api.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=str(CHROMIUM), args=flags, ignore_default_args=["--disable-popup-blocking"]
        )
        page_of_ours = browser.new_page()
        page_of_ours.set_default_timeout(90_000)  # a busy machine is no failure
        errors: list[str] = []
        page_of_ours.on("pageerror", lambda error: errors.append(str(error)))
        handover = Handover(trace, "t.json", ui=ui.address)
        with handover.serving():
            page_of_ours.goto(handover.address)
            button = page_of_ours.locator("#open")
            button.wait_for(state="visible")
            assert ui.got == []
            button.click()
            page_of_ours.get_by_text("can be closed").wait_for()
            ui.came.wait(30)
        browser.close()
    assert handover.result == "handed-over"
    assert ui.got == [TRACE]
    assert errors == []
