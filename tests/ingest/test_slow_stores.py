"""Web servers that trickle, never end or lead elsewhere: one line each, within a bound. All on this machine."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest

from profkit.errors import TraceError, TraceNotFoundError, UnsupportedTraceError
from profkit.ingest.bytes import remote, spool
from profkit.ingest.bytes.remote import Patience
from profkit.ingest.discover import find_sources
from profkit.ingest.read import read_traces
from profkit.ranks.reduce.options import Options
from profkit.ranks.run.jobs import Job, done
from profkit.testing import span, to_json

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

TRACE = to_json([span("ProfilerStep#0", 10**9, 10**9 + 1000)])
BRIEF = Patience(answer_s=0.3, stall_s=0.3, least_bytes=1000, whole_s=20)


@contextmanager
def served(answer: Callable[[BaseHTTPRequestHandler, Event], None]) -> Iterator[str]:
    """Give the address of a server that does one thing; the event is set when it is over."""
    over = Event()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            with_suppressed(lambda: answer(self, over))

        do_HEAD = do_GET  # noqa: N815 - the name is http.server's

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/rank0.json"
        finally:
            over.set()
            server.shutdown()
            thread.join()


def with_suppressed(act: Callable[[], None]) -> None:
    try:
        act()
    except OSError:  # the client has gone
        return


def begin(handler: BaseHTTPRequestHandler, *, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content_Type": "application/json", **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()


def giving(data: bytes = b"", **said: object) -> Callable[[BaseHTTPRequestHandler, Event], None]:
    """Give these bytes behind these headers, and the status."""

    def answer(handler: BaseHTTPRequestHandler, over: Event) -> None:
        begin(handler, **said)
        handler.wfile.write(data)

    return answer


def refusal(url: str) -> TraceError:
    begun = time.monotonic()
    with pytest.raises(TraceError) as caught:
        list(read_traces(url))
    assert time.monotonic() - begun < 5
    assert "\n" not in caught.value.message
    assert url in caught.value.message
    return caught.value


@pytest.fixture
def brief(monkeypatch):
    monkeypatch.setattr(remote, "PATIENCE", BRIEF)
    monkeypatch.setattr(remote, "_BETWEEN_LOOKS_S", 0.02)


def silent(handler, over):
    over.wait(10)


def trickling(handler, over):
    begin(handler)
    while not over.wait(0.02):
        handler.wfile.write(b" ")


def stalling(handler, over):
    begin(handler, Content_Length=str(10**6))
    handler.wfile.write(b" " * 5000)
    over.wait(10)


@pytest.mark.parametrize("answer", [silent, trickling, stalling])
def test_a_server_that_gives_next_to_nothing_is_left(brief, temporary, answer):
    with served(answer) as url:
        error = refusal(url)
        assert isinstance(error, TraceNotFoundError)
        assert "fewer than 1,000 bytes in 0.3 s" in error.message
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_that_is_busy_is_asked_again(monkeypatch, status):
    asked = []

    def busy_twice(handler, over):
        asked.append(handler.command)
        if len(asked) <= 2:
            begin(handler, status=status)
        else:
            begin(handler)
            handler.wfile.write(TRACE)

    monkeypatch.setattr(remote, "_WAITS_S", (0.0, 0.0))
    with served(busy_twice) as url:
        (trace,) = read_traces(url)
        assert len(trace.steps) == 1
    assert asked == ["GET"] * 3


@pytest.mark.parametrize("status", [401, 403, 501])
def test_a_server_that_refuses_is_asked_once(monkeypatch, status):
    asked = []

    def refusing(handler, over):
        asked.append(handler.command)
        begin(handler, status=status)

    monkeypatch.setattr(remote, "_WAITS_S", (0.0, 0.0))
    with served(refusing) as url:
        assert str(status) in refusal(url).message
    assert asked == ["GET"]


def test_a_server_that_is_slow_and_gets_on_is_waited_for(brief):
    def slow(handler, over):
        begin(handler, Content_Length=str(len(TRACE) + 8000))
        handler.wfile.write(TRACE)
        for _ in range(8):
            over.wait(0.1)
            handler.wfile.write(b" " * 1000)

    with served(slow) as url:
        assert len(list(read_traces(url))) == 1


def test_a_whole_object_has_its_time(brief, monkeypatch):
    monkeypatch.setattr(remote, "PATIENCE", Patience(answer_s=1, stall_s=1, least_bytes=1, whole_s=0.4))
    with served(trickling) as url:
        assert "was not complete after 0.4 s" in refusal(url).message


def test_a_listing_that_never_ends_is_left(brief, monkeypatch):
    def listing(handler, over):
        begin(handler, Content_Type="text/html")
        while not over.wait(0.01):
            handler.wfile.write(b"<a href='x/'>x</a>")

    with served(listing) as url:
        with pytest.raises(TraceNotFoundError, match=r"no answer within 0\.3 s"):
            find_sources([url.removesuffix("rank0.json")])
        monkeypatch.setattr(remote, "PATIENCE", Patience())
        monkeypatch.setattr(remote, "_MOST_LISTED_BYTES", 100)
        with pytest.raises(TraceNotFoundError, match="more than 100 bytes of listing"):
            find_sources([url.replace("rank0", "*")])


def test_a_file_is_not_listed(brief):
    """Its whole content would be fetched as if it were a page with links."""
    asked: list[str] = []

    def answer(handler, over):
        asked.append(handler.command)
        begin(handler, Content_Type="text/html")
        handler.wfile.write(TRACE)

    with served(answer) as url:
        assert find_sources([url]) == [url]
        assert asked == []
        assert len(list(read_traces(url))) == 1
        assert asked == ["GET"]


def test_what_is_larger_than_the_temporary_folder_takes_is_not_begun(brief, monkeypatch, temporary):
    monkeypatch.setattr(spool, "MOST_BYTES", 10**6)

    def endless(handler, over):
        begin(handler)
        while not over.is_set():
            handler.wfile.write(b" " * 2**16)

    def large(handler, over):
        begin(handler, Content_Length=str(10**7))
        over.wait(10)

    for answer in (endless, large):
        with served(answer) as url:
            error = refusal(url)
            assert isinstance(error, UnsupportedTraceError)
            assert "has more than 976 KiB" in error.message
    assert list(temporary.iterdir()) == []


def test_a_compressed_answer_counts_by_what_it_expands_to(brief, monkeypatch):
    import gzip

    monkeypatch.setattr(spool, "MOST_BYTES", 10**6)
    bomb = gzip.compress(b" " * 10**7)

    with served(giving(bomb, Content_Encoding="gzip", Content_Length=str(len(bomb)))) as url:
        assert isinstance(refusal(url), UnsupportedTraceError)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "memory://x", "//"])
def test_a_redirect_leads_to_no_other_kind_of_store(brief, target):
    with served(giving(status=302, Location=target)) as url:
        error = refusal(url)
        assert isinstance(error, TraceNotFoundError)
        assert "root:" not in error.message


def test_redirects_come_to_an_end(brief):
    with served(giving(status=302, Location="/again.json")) as url:
        refusal(url)


def test_links_of_a_page_that_lead_elsewhere_are_not_followed(brief):
    page = b"".join(
        b'<a href="%s">x</a>' % link
        for link in (b"file:///etc/passwd.json", b"http://127.0.0.1:1/x.json", b"rank0.json", b"../../up.json")
    )

    with served(giving(page, Content_Type="text/html", Content_Length=str(len(page)))) as url:
        folder = url.removesuffix("rank0.json") + "run/"
        found = find_sources([folder])
    assert folder + "rank0.json" in found
    assert all(name.startswith(folder) for name in found)


@pytest.mark.parametrize("name", ["..", ".", "", "%2e%2e", "a" * 300 + ".json", "rank0.json?x=/../../y"])
def test_no_name_of_an_object_leaves_the_temporary_folder(brief, temporary, name):
    with served(giving(TRACE, Content_Length=str(len(TRACE)))) as url:
        assert len(list(read_traces(url.removesuffix("rank0.json") + name))) == 1
    assert list(temporary.iterdir()) == []


def test_a_slow_object_costs_one_rank_and_no_more(brief):
    with served(trickling) as url:
        finished = done(Job(source=url, options=Options()))
    assert finished.failure is not None
    assert finished.failure.error == "TraceNotFoundError"


def test_patience_is_told_by_the_environment(monkeypatch):
    monkeypatch.setenv("PROFKIT_URL_STALL_S", "7.5")
    assert (remote.patience().stall_s, remote.patience().answer_s) == (7.5, Patience().answer_s)
    monkeypatch.setenv("PROFKIT_URL_STALL_S", "soon")
    assert remote.patience() == Patience()


def test_a_local_device_behind_a_url_is_no_file(brief, monkeypatch):
    monkeypatch.setattr(spool, "MOST_BYTES", 10**6)
    with pytest.raises(TraceError):
        list(read_traces("file:///dev/zero"))
