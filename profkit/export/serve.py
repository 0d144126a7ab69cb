"""A server on this machine's own loopback for one page and one trace, each given once, then it ends.

Who else may reach it: other programs and other users of this machine, and any page in the user's browser. So paths
begin with a token that cannot be guessed, the Host header must be the loopback address (a name that somebody has
pointed at it is not), other origins are refused, and nothing is given twice.

The page opens the viewer, waits until that answers, and posts it the trace. The handshake is Perfetto's own
(https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui): "PING" is posted until "PONG" comes back, then
`{perfetto: {buffer, title, fileName}}`. All is in one file, by a policy that allows this script and this style alone,
and nothing to be loaded from elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from profkit import files
from profkit.errors import UsageError

_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 15vh auto; padding: 0 1rem; }
button { font: inherit; padding: .5rem 1rem; }
@media (prefers-color-scheme: dark) { body { background: #111418; color: #ddd; } }
"""
_SCRIPT: Final = """
"use strict";
const told = JSON.parse(document.getElementById("told").textContent);
const origin = new URL(told.ui).origin;
const state = document.getElementById("state");
const button = document.getElementById("open");
let viewer = null, buffer = null, timer = 0, isOver = false;
function say(text) { state.textContent = text; }
function end(result, text) {
  if (isOver) return;
  isOver = true;
  clearInterval(timer);
  button.hidden = true;
  say(text);
  fetch("done", {method: "POST", body: result, keepalive: true}).catch(() => {});
}
function post() {
  const name = told.name, message = {perfetto: {buffer: buffer, title: name, fileName: name}};
  viewer.postMessage(message, origin, [buffer]);
  end("handed-over", "The trace is in " + origin + ". This page can be closed.");
}
window.addEventListener("message", (event) => {
  if (isOver || viewer === null || event.source !== viewer || event.origin !== origin || event.data !== "PONG") return;
  if (buffer !== null) post();
});
function open_viewer() {
  viewer = window.open(told.ui);
  if (viewer === null) {
    button.hidden = false;
    say("The browser keeps new tabs closed until you ask for one.");
    return;
  }
  button.hidden = true;
  say("Waiting for " + origin + " ...");
  clearInterval(timer);
  timer = setInterval(() => { if (buffer !== null) viewer.postMessage("PING", origin); }, 100);
  setTimeout(() => end("no-answer", origin + " did not answer."), told.wait_s * 1000);
}
button.addEventListener("click", open_viewer);
fetch("trace").then((answer) => {
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.arrayBuffer();
}).then((bytes) => { buffer = bytes; }).catch(() => end("no-trace", "The trace could not be fetched."));
open_viewer();
"""


def _hash(text: str) -> str:
    return b64encode(hashlib.sha256(text.encode()).digest()).decode()


POLICY: Final = "; ".join(
    [
        "default-src 'none'",
        f"script-src 'sha256-{_hash(_SCRIPT)}'",
        f"style-src 'sha256-{_hash(_STYLE)}'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
"""The page's content security policy."""
_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def page(ui: str, name: str, wait_s: float) -> bytes:
    """The page for a viewer's address and a trace's name, which may hold anything."""
    told = json.dumps({"ui": ui, "name": name, "wait_s": wait_s}).translate(_ESCAPES)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>profkit open</title>'
        f'<style>{_STYLE}</style></head><body><h1>profkit</h1><p id="state" role="status">Opening the viewer ...</p>'
        '<button id="open" hidden>Open the viewer</button>'
        "<noscript><p>This page needs JavaScript to hand the trace over.</p></noscript>"
        f'<script type="application/json" id="told">{told}</script><script>{_SCRIPT}</script></body></html>'
    ).encode()


PERFETTO: Final = "https://ui.perfetto.dev"
LIMIT_S: Final = 300.0
"""How long the trace waits to be fetched. Chosen: time to copy an address to another window, not a service."""
ANSWER_S: Final = 120.0
"""How long the page waits for the viewer, from when it opens that. Chosen: a slow network, a large page."""
LOOPBACK: Final = "127.0.0.1"
_HOSTS: Final = ("localhost", LOOPBACK, "::1")
_IDLE_S: Final = 10.0
_MOST_SAID: Final = 64
RESULTS: Final = ("handed-over", "no-answer", "no-trace")
"""What the page may say at its end."""
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin-allow-popups",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def viewers_address(text: str) -> str:
    """A viewer's address as it was given; raises UsageError for one that is neither https nor on this machine."""
    hint = f"give https://..., or http://localhost:PORT; by default {PERFETTO}"
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise UsageError(f"--ui {text!r} is no address", hint=hint) from None
    is_plain = text.isascii() and text.isprintable() and not set(text) & set(" \\\"'<>")
    if not is_plain or not host or parts.username is not None or parts.password is not None:
        raise UsageError(f"--ui {text!r} is no address", hint=hint)
    if parts.scheme != "https" and not (parts.scheme == "http" and host in _HOSTS):
        raise UsageError(f"--ui {text!r} is not https", hint=hint)
    return text


class Handover:
    """One trace on its way to a viewer: `address` is the page to open, `wait` ends when it is over."""

    def __init__(
        self, trace: Path, name: str, *, ui: str = PERFETTO, port: int = 0, answer_s: float = ANSWER_S
    ) -> None:
        self.trace = trace
        self.page = page(ui, name, answer_s)
        self.result = ""
        self._answer_s = answer_s
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._given: set[str] = set()
        self._token = secrets.token_urlsafe(32)
        try:
            self._server = _Server((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(
                f"cannot listen on {LOOPBACK}:{port}: {reason.lower()}", hint="leave out --port, or give a free one"
            ) from None
        self._server.handover = self
        self.host = f"{LOOPBACK}:{self._server.server_address[1]}"
        self.address = f"http://{self.host}/{self._token}/"

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve while the context lasts."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def wait(self, limit_s: float = LIMIT_S) -> str:
        """What became of it, one of `RESULTS`; "" where the time is over. A page that was opened has its own time."""
        if not self._over.wait(limit_s) and self.was_opened:
            self._over.wait(self._answer_s)
        return self.result

    @property
    def was_opened(self) -> bool:
        """Whether somebody has the page."""
        return "page" in self._given

    def asked_for(self, path: str) -> str:
        """What a path means: "page", "trace", "done", or "" for anything else."""
        known = {f"/{self._token}/": "page", f"/{self._token}/trace": "trace", f"/{self._token}/done": "done"}
        asked = path.encode(errors="surrogateescape")
        return next((what for each, what in known.items() if secrets.compare_digest(each.encode(), asked)), "")

    def take(self, what: str) -> bool:
        """Whether something is still there to be given; it is not afterwards."""
        with self._lock:
            is_first = what not in self._given
            self._given.add(what)
        return is_first

    def end(self, result: str) -> None:
        """Note what the page says; the first word counts."""
        if not self.result and result in RESULTS:
            self.result = result
            self._over.set()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = False
    handover: Handover

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that broke: a browser opens some that it does not use."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _IDLE_S
    protocol_version = "HTTP/1.1"
    server_version = "profkit"
    sys_version = ""

    def do_GET(self) -> None:
        """Give the page, then the trace, each once."""
        what = self._allowed()
        if not what:
            return
        if what == "done":
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED)
        elif not self.server.handover.take(what):
            self._refuse(HTTPStatus.GONE)
        elif what == "page":
            self._begin(HTTPStatus.OK, _of_length("text/html; charset=utf-8", len(self.server.handover.page)))
            self.wfile.write(self.server.handover.page)
        else:
            self._give_trace()

    def do_POST(self) -> None:
        """Hear from the page what became of it."""
        what = self._allowed()
        if not what:
            return
        length = self.headers.get("Content-Length", "")
        if what != "done" or not length.isdecimal() or len(length) > 4 or int(length) > _MOST_SAID:
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED if what != "done" else HTTPStatus.BAD_REQUEST)
            return
        said = self.rfile.read(int(length)).decode("ascii", "replace")
        self._begin(HTTPStatus.NO_CONTENT, {})
        self.wfile.flush()
        self.server.handover.end(said)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse without words: other methods, requests that are none."""
        with suppress(OSError):
            self._refuse(HTTPStatus(code))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class has it
        """Write no log: it would hold the token."""

    def _allowed(self) -> str:
        """What is asked for, if it may be given to whoever asks; else the refusal is sent, and ""."""
        handover = self.server.handover
        own = f"http://{handover.host}"
        site = self.headers.get("Sec-Fetch-Site")
        what = handover.asked_for(self.path)
        if self.headers.get_all("Host") != [handover.host] or self.headers.get("Origin") not in {None, own}:
            self._refuse(HTTPStatus.FORBIDDEN)
        elif not what:
            self._refuse(HTTPStatus.NOT_FOUND)
        elif what != "page" and site not in {None, "same-origin"}:
            self._refuse(HTTPStatus.FORBIDDEN)
        else:
            return what
        return ""

    def _give_trace(self) -> None:
        with files.open_file(self.server.handover.trace) as file:
            size = file.seek(0, 2)
            file.seek(0)
            self._begin(HTTPStatus.OK, _of_length("application/octet-stream", size))
            shutil.copyfileobj(file, self.wfile, 2**20)

    def _begin(self, status: HTTPStatus, more: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in (*_HEADERS.items(), *more.items()):
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: HTTPStatus) -> None:
        self.close_connection = True
        self._begin(status, {"Content-Length": "0", "Connection": "close"})


def _of_length(kind: str, length: int) -> dict[str, str]:
    return {"Content-Type": kind, "Content-Length": str(length)}
